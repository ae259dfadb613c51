//! Lengths of time in human-readable form.

use std::time::Duration;

use thiserror::Error;

/// The units, longest first, in nanoseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// A text is no length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TimeParseError {
    /// It is written in another way.
    #[error(
        "write a time like 30s, 500ms, 1m30s or 2h (d, h, m, s and ms are known; a number alone counts seconds)"
    )]
    Malformed,
    /// It is out of range.
    #[error("that is more than 500 years")]
    TooLong,
}

/// Reads a length of time as every setting of Leasehold writes it: `30s`, `500ms`, `2h`, `1m30s` or `1.5s`. A number alone counts
/// seconds.
///
/// # Errors
///
/// If the text is something else.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(leasehold::parse_time("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(leasehold::parse_time("soon").is_err());
/// ```
pub fn parse_time(text: &str) -> Result<Duration, TimeParseError> {
    if text.is_empty() {
        return Err(TimeParseError::Malformed);
    }
    let mut nanoseconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| !c.is_ascii_alphabetic());
        let unit = if unit.is_empty() && number.len() == text.len() { "s" } else { unit };
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(TimeParseError::Malformed)?;
        nanoseconds = nanoseconds.checked_add(scaled(number, *scale)?).ok_or(TimeParseError::TooLong)?;
        rest = after;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

fn split_where(text: &str, end: impl FnMut(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

/// A decimal number of units, in nanoseconds.
fn scaled(number: &str, scale: u64) -> Result<u64, TimeParseError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // `.5` is a number, `5.` and `.` are not.
    if number.is_empty() || number.ends_with('.') || fraction.contains('.') {
        return Err(TimeParseError::Malformed);
    }
    let whole =
        if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| TimeParseError::TooLong)? };
    let (mut parts, mut part) = (0, scale);
    for digit in fraction.bytes() {
        part /= 10;
        parts += part * u64::from(digit - b'0');
    }
    whole.checked_mul(scale).and_then(|whole| whole.checked_add(parts)).ok_or(TimeParseError::TooLong)
}

/// Reads a time from a text in a configuration.
#[cfg(feature = "serde")]
pub(super) fn deserialize<'a, D: serde::Deserializer<'a>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text: std::borrow::Cow<'a, str> = serde::Deserialize::deserialize(from)?;
    parse_time(&text).map(Some).map_err(serde::de::Error::custom)
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
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn the_error_for_an_invalid_duration_gives_examples() {
        for text in
            ["", "s", "x", "5x", "5 s", "1s5", "5.", ".", "1..5s", "-1s", "1.5.5s", "1S", "1e3", "5.s"]
        {
            assert_eq!(parse_time(text), Err(TimeParseError::Malformed), "{text}");
        }
        for text in ["99999999999999999999", "999999d", "213504d", "213503d213503d"] {
            assert_eq!(parse_time(text), Err(TimeParseError::TooLong), "{text}");
        }
    }
}
