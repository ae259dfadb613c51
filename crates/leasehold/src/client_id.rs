//! The id of one client.

use std::fmt;

/// A random version 4 UUID, in the lower-case text form that Redisson's clients use.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(u128);

impl ClientId {
    pub(crate) fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(u128::from_be_bytes(bytes))
    }

    /// The first eight bytes.
    pub(crate) fn first_half(self) -> u64 {
        u64::try_from(self.0 >> 64).expect("half of the bits")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: String = text.split('-').collect();
        let id = Self(u128::from_str_radix(&digits, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..]
        )
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
    fn it_is_a_version_4_uuid_and_nothing_else_parses() {
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
