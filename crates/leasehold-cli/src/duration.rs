//! Durations in human-readable form.

use std::time::Duration;

pub(crate) use leasehold::parse_time as parse;

/// The units, longest first, in seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// Writes a duration as [`parse`] reads it, in its two longest units. Fractions of a millisecond are left out.
pub(crate) fn human(duration: Duration) -> String {
    if duration == Duration::MAX {
        return "ever".into();
    }
    let milliseconds = duration.as_millis();
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    if milliseconds < 60_000 {
        return match (milliseconds / 1000, milliseconds % 1000 / 100) {
            (seconds, 0) => format!("{seconds}s"),
            (seconds, tenths) => format!("{seconds}.{tenths}s"),
        };
    }
    let mut rest = duration.as_secs();
    let mut text = String::new();
    let mut left = 2;
    for (unit, seconds) in UNITS {
        if left > 0 && (rest >= seconds || !text.is_empty()) {
            if rest >= seconds {
                text = format!("{text}{}{unit}", rest / seconds);
                rest %= seconds;
            }
            left -= 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_readable_units() {
        for (text, read) in [
            ("0", "0ms"),
            ("999ms", "999ms"),
            ("1s", "1s"),
            ("1.25s", "1.2s"),
            ("59.96s", "59.9s"),
            ("60s", "1m"),
            ("61s", "1m1s"),
            ("2h", "2h"),
            ("2h1m1s", "2h1m"),
            ("2h0m1s", "2h"),
            ("30d1h", "30d1h"),
        ] {
            assert_eq!(human(parse(text).unwrap()), read, "{text}");
        }
        assert_eq!(human(Duration::MAX), "ever");
    }
}
