//! How a hold can end without a release.

use thiserror::Error;

/// Why a lock is no longer held. It is final: a lost hold is never restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Loss {
    /// Its lease expired, by our own clock.
    #[error("the lease ran out")]
    Expired,
    /// Another owner took it over on purpose, as [`steal`](crate::Acquire::steal) does.
    #[error("another owner took the lock over")]
    TakenOver,
    /// It was removed before its time: by hand, by eviction, by a restart without data, or by a release in its owner's name.
    #[error(
        "the lock is gone: the key was deleted or evicted, the server restarted without its data, or the lock was \
         released in its owner's name"
    )]
    Gone,
    /// The server could not be reached to renew it in time.
    #[error("the server could not be reached in time to renew the lock")]
    Unreachable,
    /// It was held for as long as [`max_hold`](crate::Acquire::max_hold) allows.
    #[error("the lock was held for as long as max_hold allows")]
    MaxHold,
    /// The work under it reported no [progress](crate::Guard::progress) for as long as
    /// [`renew_while_progress`](crate::Acquire::renew_while_progress) allows.
    #[error("the work under the lock made no progress for as long as renew_while_progress allows")]
    NoProgress,
    /// The client was shut down while the guard was still alive.
    #[error("the client was shut down")]
    Shutdown,
    /// A client removed it by [`force_unlock`](crate::Lock::force_unlock): on a server this client, in memory any.
    #[error("the lock was freed by force_unlock")]
    ForceUnlocked,
}

impl Loss {
    /// All causes, in the order of their numbers.
    pub(crate) const ALL: [Self; 8] = [
        Self::Expired,
        Self::TakenOver,
        Self::Gone,
        Self::Unreachable,
        Self::MaxHold,
        Self::NoProgress,
        Self::Shutdown,
        Self::ForceUnlocked,
    ];

    /// Its place in [`ALL`](Self::ALL).
    pub(crate) fn number(self) -> usize {
        self as usize
    }

    /// What it is called in metrics.
    #[cfg(feature = "metrics")]
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::Gone => "gone",
            Self::Unreachable => "unreachable",
            Self::MaxHold => "max_hold",
            Self::NoProgress => "no_progress",
            Self::Shutdown => "shutdown",
            Self::ForceUnlocked => "force_unlocked",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_in_its_place() {
        for (number, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss.number(), number, "{loss:?}");
        }
    }
}
