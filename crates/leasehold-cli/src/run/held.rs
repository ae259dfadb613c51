//! A hold of any kind, as the supervisor of a command sees it.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::time::Duration;

use leasehold::{FencedGuard, Guard, LeasedPermits, ReadGuard, ReleaseError, WriteGuard};

use super::clock;

/// What a command runs under: a lock, half of a read-write lock, or a permit. It dereferences to [`Guard`], but has less time
/// left if there is a limit which the engine does not know.
#[derive(Debug)]
pub(super) struct Held {
    hold: Hold,
    /// When it ends at the latest, counted from the start of the machine.
    until: Option<Duration>,
}

#[derive(Debug)]
enum Hold {
    Lock(Guard),
    Fenced(FencedGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(LeasedPermits),
}

impl Held {
    /// A permit, which is held for no longer than `max_hold`.
    pub(super) fn permit(permit: LeasedPermits, max_hold: Option<Duration>) -> Self {
        let until = max_hold.map(|max_hold| clock::since_boot().saturating_add(max_hold));
        Self { hold: Hold::Permit(permit), until }
    }

    /// Whether it is held now, by the clock: not longer than the limit that the engine does not know.
    pub(super) fn is_held(&self) -> bool {
        self.deref().is_held() && self.until.is_none_or(|until| clock::since_boot() < until)
    }

    /// How long it is certainly held if nothing renews it from now on.
    pub(super) fn remaining(&self) -> Duration {
        let left = self.deref().remaining();
        self.until.map_or(left, |until| left.min(until.saturating_sub(clock::since_boot())))
    }

    /// What identifies this hold to a `run` inside of the command: the owner, or the id of the permit.
    pub(super) fn id(&self) -> String {
        match &self.hold {
            Hold::Permit(permit) => permit.ids().first().map_or_else(String::new, ToString::to_string),
            _ => self.owner().to_string(),
        }
    }

    /// A copy of the open file of the lock, on an engine that has one.
    pub(super) fn file(&self) -> io::Result<Option<File>> {
        match &self.hold {
            Hold::Permit(_) => Ok(None),
            _ => self.lock_file(),
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self.hold {
            Hold::Lock(guard) => guard.release().await.map(drop),
            Hold::Fenced(guard) => guard.release().await.map(drop),
            Hold::Read(guard) => guard.release().await.map(drop),
            Hold::Write(guard) => guard.release().await.map(drop),
            Hold::Permit(permit) => permit.release().await,
        }
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match &self.hold {
            Hold::Lock(guard) => guard,
            Hold::Fenced(guard) => guard,
            Hold::Read(guard) => guard,
            Hold::Write(guard) => guard,
            Hold::Permit(permit) => permit,
        }
    }
}

/// Makes each guard a hold without a limit of ours.
macro_rules! holds {
    ($($guard:ty: $hold:ident;)+) => {$(
        impl From<$guard> for Held {
            fn from(guard: $guard) -> Self {
                Self { hold: Hold::$hold(guard), until: None }
            }
        }
    )+};
}

holds! {
    Guard: Lock;
    FencedGuard: Fenced;
    ReadGuard: Read;
    WriteGuard: Write;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_permit_ends_at_its_own_limit_too() {
        let client = leasehold::Client::connect("memory:").await.unwrap();
        let semaphore = client.leased_semaphore("x").with_permits(2);
        let limit = Duration::from_secs(5);
        let limited = Held::permit(semaphore.acquire(1).await.unwrap(), Some(limit));
        let unlimited = Held::permit(semaphore.acquire(1).await.unwrap(), None);
        assert!(limited.remaining() <= limit && limited.remaining() > limit / 2);
        assert!(unlimited.remaining() > limit);
        assert!(limited.is_held() && unlimited.is_held());
        unlimited.release().await.unwrap();
        // The engine still has it, and the command must not begin.
        let over = Held::permit(semaphore.acquire(1).await.unwrap(), Some(Duration::ZERO));
        assert!(!over.is_held() && over.deref().is_held());
        over.release().await.unwrap();
        limited.release().await.unwrap();
        assert_eq!(semaphore.available().await, Ok(2));
    }
}
