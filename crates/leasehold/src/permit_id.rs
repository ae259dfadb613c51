//! The ids of permits that have a lease.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::owner::OwnerId;

/// The id of one acquired permit of a [`LeasedSemaphore`](crate::LeasedSemaphore): any client that has it can release the
/// permit.
///
/// Printed and parsed as 32 hexadecimal digits, as in Redisson.
///
/// ```
/// let id: leasehold::PermitId = "00112233445566778899AABBCCDDEEFF".parse()?;
/// assert_eq!(id.to_string(), "00112233445566778899aabbccddeeff");
/// # Ok::<(), leasehold::PermitIdParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId(u128);

impl PermitId {
    /// The ids of a hold of so many permits: one for each number that was reserved for it.
    pub(crate) fn of(owner: OwnerId, amount: u32) -> impl Iterator<Item = Self> {
        let client = u128::from(owner.client.first_half()) << 64;
        (0..amount).map(move |n| Self(client | u128::from(owner.number + u64::from(n))))
    }

    /// The number whose digits it has. The ids of a hold follow each other.
    #[cfg(feature = "etcd")]
    pub(crate) fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PermitId {
    type Err = PermitIdParseError;

    fn from_str(text: &str) -> Result<Self, PermitIdParseError> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| PermitIdParseError(text.into()))
    }
}

/// The text is not the id of a permit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not the id of a permit: expected 32 hexadecimal digits")]
pub struct PermitIdParseError(String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;

    #[test]
    fn every_permit_of_a_hold_has_its_own_id() {
        let client = ClientId::random();
        let owner = OwnerId::fresh(client, 3);
        let ids: Vec<_> = PermitId::of(owner, 3).collect();
        assert_eq!(ids.len(), 3);
        let prefix = client.to_string().replace('-', "")[..16].to_owned();
        for (id, number) in ids.iter().zip(owner.number..) {
            assert_eq!(id.to_string(), format!("{prefix}{number:016x}"));
            assert_eq!(id.to_string().parse(), Ok(*id));
        }
        assert!(OwnerId::fresh(client, 1).number >= owner.number + 3);
    }

    #[test]
    fn invalid_permit_ids_are_refused() {
        for wrong in ["", "0", "+0112233445566778899aabbccddeeff", "00112233445566778899aabbccddeefg"] {
            assert!(wrong.parse::<PermitId>().is_err(), "{wrong}");
        }
    }
}
