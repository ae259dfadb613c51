//! Times in quotes, as the command `leasehold` reads them, too.

use std::time::Duration;

/// The units in nanoseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

pub(crate) const NO_TIME: &str = "write a time like \"30s\", \"500ms\", \"1m30s\" or \"2h\"";
const TOO_LONG: &str = "that is more than 500 years";

/// Reads `30s`, `500ms`, `2h`, `1m30s` or `1.5s`. A number alone counts seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut nanoseconds: u64 = 0;
    let mut rest = text;
    loop {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (number, after) = rest.split_at(number);
        let unit = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(unit);
        let scale = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, scale)) => *scale,
            None if unit.is_empty() && number == text => 1_000_000_000,
            None if unit.is_empty() || number.is_empty() => return Err(NO_TIME.into()),
            None => return Err(format!("there is no unit `{unit}`, but d, h, m, s and ms: {NO_TIME}")),
        };
        let part = scaled(number, scale)?;
        nanoseconds = nanoseconds.checked_add(part).ok_or(TOO_LONG)?;
        if after.is_empty() {
            return Ok(Duration::from_nanos(nanoseconds));
        }
        rest = after;
    }
}

/// A decimal number of units, in nanoseconds.
fn scaled(number: &str, scale: u64) -> Result<u64, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = !number.is_empty() && fraction.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number || fraction.is_empty() {
        return Err(NO_TIME);
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| TOO_LONG)? };
    let (mut part, mut parts) = (scale, 0);
    for digit in fraction.bytes() {
        part /= 10;
        parts += part * u64::from(digit - b'0');
    }
    whole.checked_mul(scale).and_then(|whole| whole.checked_add(parts)).ok_or(TOO_LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists of both tests are those of `parse_time` in the library, on which this crate cannot depend.
    #[test]
    fn times_are_read_as_the_command_reads_them() {
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
    fn the_error_for_an_invalid_time_gives_examples() {
        for text in
            ["", "s", "x", "5x", "5 s", "1s5", "5.", ".", "1..5s", "-1s", "1.5.5s", "1S", "1e3", "5.s"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains(NO_TIME), "{text}: {error}");
        }
        for text in ["99999999999999999999", "999999d", "213504d", "213503d213503d"] {
            assert_eq!(parse(text), Err(TOO_LONG.to_owned()), "{text}");
        }
    }
}
