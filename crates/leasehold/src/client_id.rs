//! The id of one client.

use std::fmt;

use crate::env;

/// A random version 4 UUID, in the lower-case text form that Redisson's clients use.
///
/// It is part of every owner, and owners are in all records of a hold. As one number it would be aligned to 16 bytes, and
/// so would these records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId {
    first_half: u64,
    second_half: u64,
}

impl ClientId {
    pub(crate) fn random() -> Self {
        let mut bytes = env::random_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let half = |first| u64::from_be_bytes(std::array::from_fn(|byte| bytes[first + byte]));
        Self { first_half: half(0), second_half: half(8) }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn halves(self) -> (u64, u64) {
        (self.first_half, self.second_half)
    }

    /// The first eight bytes.
    pub(crate) fn first_half(self) -> u64 {
        self.first_half
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: String = text.split('-').collect();
        let half = |digits: Option<&str>| u64::from_str_radix(digits?, 16).ok();
        let id = Self { first_half: half(digits.get(..16))?, second_half: half(digits.get(16..))? };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is sent with every command, and formatting numbers one by one takes much of the time.
        let mut text = [b'-'; 36];
        let places = (0..36).filter(|place| ![8, 13, 18, 23].contains(place));
        for (digit, place) in places.enumerate() {
            let half = if digit < 16 { self.first_half } else { self.second_half };
            text[place] = b"0123456789abcdef"[(half >> (60 - digit % 16 * 4) & 15) as usize];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_is_a_version_4_uuid_and_no_other_text_is_parsed() {
        let id = ClientId::random();
        let text = id.to_string();
        assert_eq!((text.len(), &text[14..15]), (36, "4"));
        assert!("89ab".contains(&text[19..20]));
        assert_eq!(ClientId::parse(&text), Some(id));
        assert_eq!(ClientId::parse(&text.replace('-', "")), None);
        assert_eq!(ClientId::parse(&format!("{}Z", &text[..35])), None);
        assert_ne!(ClientId::random(), id);
    }
}
