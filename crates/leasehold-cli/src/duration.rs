//! Durations in human-readable form.

use std::time::Duration;

/// The units, longest first, in nanoseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

const NO_TIME: &str =
    "write a time like 30s, 500ms, 1m30s or 2h (d, h, m, s and ms are known; a number alone counts seconds)";
const TOO_MUCH: &str = "that is more than 500 years";

/// Reads `30s`, `500ms`, `2h`, `1m30s` or `1.5s`. A number alone counts seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    if text.is_empty() {
        return Err(NO_TIME);
    }
    let mut nanoseconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| !c.is_ascii_alphabetic());
        let unit = if unit.is_empty() && number.len() == text.len() { "s" } else { unit };
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NO_TIME)?;
        nanoseconds = nanoseconds.checked_add(scaled(number, *scale)?).ok_or(TOO_MUCH)?;
        rest = after;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

fn split_where(text: &str, end: impl FnMut(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

/// A decimal number of units, in nanoseconds.
fn scaled(number: &str, scale: u64) -> Result<u64, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // `.5` is a number, `5.` and `.` are not.
    if number.is_empty() || number.ends_with('.') || fraction.contains('.') {
        return Err(NO_TIME);
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| TOO_MUCH)? };
    let (mut parts, mut part) = (0, scale);
    for digit in fraction.bytes() {
        part /= 10;
        parts += part * u64::from(digit - b'0');
    }
    whole.checked_mul(scale).and_then(|whole| whole.checked_add(parts)).ok_or(TOO_MUCH)
}

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
    for (unit, nanoseconds) in UNITS {
        let seconds = nanoseconds / 1_000_000_000;
        if left > 0 && seconds > 0 && (rest >= seconds || !text.is_empty()) {
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
    fn durations_with_and_without_units_are_parsed() {
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("1m30s", 90_000),
            ("1.5s", 1500),
            (".5s", 500),
            ("0.25m", 15_000),
            ("30", 30_000),
            ("0.5", 500),
            ("0", 0),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn the_error_for_an_invalid_duration_gives_examples() {
        for text in
            ["", "s", "x", "5x", "5 s", "1s5", "5.", ".", "1..5s", "-1s", "1.5.5s", "1S", "1e3", "5.s"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains("like 30s, 500ms, 1m30s or 2h"), "{text}: {error}");
        }
        for text in ["99999999999999999999", "999999d", "213504d", "213503d213503d"] {
            assert!(parse(text).unwrap_err().contains("500 years"), "{text}");
        }
    }

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
