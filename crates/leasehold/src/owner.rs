//! Who holds a lock.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::client_id::ClientId;
use crate::env::unique_numbers;

/// The identity a lock is held under.
///
/// Most code never names one: each [`acquire`](crate::Lock::acquire) draws a fresh owner, and the guard proves
/// the hold. Name one where Java would use the thread: to re-enter a lock deep inside a call, or to release it
/// from a place that has no guard.
///
/// An owner made here belongs to whichever client uses it; [`Guard::owner`](crate::Guard::owner) gives the full
/// form, `<client id>:<number>`, which every client can ask about and which survives being printed and parsed. Only
/// the client it belongs to can acquire and release in its name. The two forms are not equal: to know whether an owner
/// holds a lock, ask [`is_held_by`](crate::Lock::is_held_by).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use leasehold::Owner;
///
/// let me = Owner::unique();
/// let lock = client.lock("stock:7");
/// let outer = lock.acquire().as_owner(&me).await?;
/// let inner = lock.acquire().as_owner(&me).await?; // re-entered, not deadlocked
/// assert_eq!(lock.hold_count(&me).await?, 2);
/// assert_eq!(inner.owner().to_string().parse::<Owner>()?, outer.owner());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Repr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    /// A number under the id of whichever client uses it.
    Here(u64),
    Full(OwnerId),
}

impl Owner {
    /// An owner that nobody else is.
    #[must_use]
    pub fn unique() -> Self {
        Self(Repr::Here(unique_numbers(1)))
    }

    /// The owner of the calling thread, as in Java: the same for every call on one thread, and for no other.
    ///
    /// For blocking code. Tasks of an async runtime share threads and change them: two tasks on one thread would be one
    /// owner, and both get in.
    #[must_use]
    pub fn this_thread() -> Self {
        thread_local! {
            static NUMBER: u64 = unique_numbers(1);
        }
        Self(Repr::Here(NUMBER.with(|number| *number)))
    }

    /// An owner by a number of your own, for instance a job's. It never meets a number drawn by this library.
    #[must_use]
    pub fn number(number: u32) -> Self {
        Self(Repr::Here(number.into()))
    }

    /// The full form, if it is one.
    #[cfg(feature = "remote")]
    pub(crate) fn full(&self) -> Option<OwnerId> {
        match self.0 {
            Repr::Here(_) => None,
            Repr::Full(id) => Some(id),
        }
    }

    pub(crate) fn at(&self, client: ClientId) -> OwnerId {
        match self.0 {
            Repr::Here(number) => OwnerId { client, number },
            Repr::Full(id) => id,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Here(number) => number.fmt(f),
            Repr::Full(id) => id.fmt(f),
        }
    }
}

impl FromStr for Owner {
    type Err = OwnerParseError;

    fn from_str(text: &str) -> Result<Self, OwnerParseError> {
        let number = |digits: &str| -> Result<u64, OwnerParseError> {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten().ok_or_else(|| OwnerParseError(text.into()))
        };
        let repr = match text.rsplit_once(':') {
            // Larger ones are drawn, and mean something only with the client that drew them.
            None => Repr::Here(number(text).and_then(|number| {
                u32::try_from(number).map(u64::from).map_err(|_| OwnerParseError(text.into()))
            })?),
            Some((client, digits)) => {
                let client = ClientId::parse(client).ok_or_else(|| OwnerParseError(text.into()))?;
                Repr::Full(OwnerId { client, number: number(digits)? })
            }
        };
        Ok(Self(repr))
    }
}

/// The text is not an owner.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not an owner: expected `<client id>:<number>` or `<number>`")]
pub struct OwnerParseError(String);

/// An owner as the engines see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OwnerId {
    pub(crate) client: ClientId,
    pub(crate) number: u64,
}

impl OwnerId {
    /// An owner that holds nothing yet and never did. The `numbers` from its own on are nobody else's.
    pub(crate) fn fresh(client: ClientId, numbers: u32) -> Self {
        Self { client, number: unique_numbers(numbers) }
    }
}

impl From<OwnerId> for Owner {
    fn from(id: OwnerId) -> Self {
        Self(Repr::Full(id))
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let full = Owner::from(OwnerId::fresh(ClientId::random(), 1));
        assert_eq!(full.to_string().parse(), Ok(full));
        assert_eq!("7".parse(), Ok(Owner::number(7)));
        let of_java: Owner = "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42".parse().unwrap();
        assert_eq!(of_java.to_string(), "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42");
        for wrong in [
            "",
            ":",
            "x",
            "+1",
            "-1",
            "1:",
            ":1",
            "a:1",
            "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:",
            "4294967296",
        ] {
            assert!(wrong.parse::<Owner>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_thread_keeps_its_owner_and_shares_it_with_nobody() {
        assert_eq!(Owner::this_thread(), Owner::this_thread());
        let other = std::thread::spawn(Owner::this_thread).join().unwrap();
        assert_ne!(other, Owner::this_thread());
        assert_ne!(Owner::unique(), Owner::unique());
    }
}
