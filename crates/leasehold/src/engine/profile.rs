//! The features of an engine, and which other engines have those that it lacks.

use std::fmt;

use super::{Kind, schemes};
use crate::error::InvalidRequestError;

/// A feature that not every engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// The primitive of this kind.
    Kind(Kind),
    /// A fencing token with a lock.
    Fenced,
    /// A least time for which a lock stays taken, after its release, too.
    MinHold,
    /// Taking a lock over from its holder.
    Steal,
    /// Freeing a lock in place of its holder.
    ForceUnlock,
    /// From a read lock to a write lock and back, without a gap.
    Upgrade,
    /// The last fencing token of a lock that may be free.
    LastToken,
    /// Writing a value beside its greatest token.
    FencedWrite,
    /// Listing which locks are held.
    List,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind(Kind::Lock) => "lock",
            Self::Kind(Kind::Spin) => "spin lock",
            Self::Kind(Kind::Fair) => "fair lock",
            Self::Kind(Kind::SetNx) => "SET NX lock",
            Self::Kind(Kind::Read | Kind::Write) => "read-write lock",
            Self::Kind(Kind::Group) => "group lock",
            Self::Kind(Kind::Semaphore) => "semaphore",
            Self::Kind(Kind::LeasedSemaphore) => "leased semaphore",
            Self::Kind(Kind::Latch) => "latch",
            Self::Fenced => "fencing token",
            Self::MinHold => "hold that outlasts its guard (`min_hold`)",
            Self::Steal => "takeover (`steal`)",
            Self::ForceUnlock => "`force_unlock`",
            Self::Upgrade => "upgrade or downgrade of a read-write lock",
            Self::LastToken => "last fencing token (`last_token`)",
            Self::FencedWrite => "fenced write (`fenced_write`)",
            Self::List => "listing of locks (`list`, `find`)",
        })
    }
}

/// The name of an engine, its clock, and the features that it lacks.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) engine: &'static str,
    /// Replies take real time, so a paused clock jumps over them.
    pub(crate) real_time: bool,
    pub(crate) lacks: &'static [Feature],
}

impl Profile {
    /// Checks that the engine has this feature, before anything is sent.
    pub(crate) fn check(&self, feature: Feature) -> Result<(), InvalidRequestError> {
        if self.lacks.contains(&feature) { Err(self.unsupported(feature)) } else { Ok(()) }
    }

    fn unsupported(&self, feature: Feature) -> InvalidRequestError {
        let has = |other: &&Self| !other.lacks.contains(&feature);
        let can = schemes::profiles().filter(has).map(|other| other.engine).collect();
        InvalidRequestError::Unsupported { what: feature.to_string(), engine: self.engine, can }
    }
}
