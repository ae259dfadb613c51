//! What can go wrong, one small enum per operation.
//!
//! Contention, time-out, outage, denial, loss and misuse are told apart by variant, never by text.

use std::time::Duration;

use thiserror::Error;

use crate::fence::Stale;
use crate::loss::Loss;
use crate::owner::Owner;

/// What was asked cannot be done by any engine. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The name is empty.
    #[error("a lock needs a name: the given one is empty")]
    EmptyName,
    /// The name, with its namespace, is longer than [`Invalid::LONGEST_NAME`].
    #[error("a lock name may have {} bytes, namespace included: this one has {bytes}", Self::LONGEST_NAME)]
    NameTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The braces in the name would put the lock's key and its channel into different slots of a cluster.
    #[error(
        "the braces in the lock name {name:?} would put its key and its channel into different cluster slots: \
         use no braces, or one closed and non-empty {{tag}}"
    )]
    NameSplitsSlots {
        /// The name with its namespace, or the beginning of it.
        name: String,
    },
    /// The name, with its namespace, is nothing but a tag: the keys that a lock has besides its own would be those of the
    /// name without the braces, which is another lock.
    #[error(
        "the name \"{{{tag}}}\" is nothing but a tag in braces, and would share keys with the other name {tag:?}: \
         write {tag:?}"
    )]
    NameIsOnlyATag {
        /// What stands between the braces, or the beginning of it.
        tag: String,
    },
    /// A lease, `max_hold` or watchdog time shorter than [`Invalid::SHORTEST_LEASE`].
    #[error(
        "a {what} of {given:?} is too short to be kept: the least is {:?}, ten times the safety margin",
        Self::SHORTEST_LEASE
    )]
    TooShort {
        /// Which of them.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// A lease, `max_hold` or watchdog time longer than [`Invalid::LONGEST_LEASE`].
    #[error(
        "a {what} of {given:?} is longer than a hundred years: leave it out to hold as long as the guard lives"
    )]
    TooLong {
        /// Which of them.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// The owner was drawn by another client: only that one can lock and release in its name.
    #[error(
        "{0} belongs to another client, which alone can lock and release in its name; to free its lock, use force_unlock"
    )]
    ForeignOwner(Owner),
    /// More permits than Redisson can count: two to the power of 31, less one.
    #[error("{given} permits are more than a semaphore counts: the most are {}", i32::MAX)]
    TooManyPermits {
        /// What was given.
        given: u32,
    },
    /// No permits were asked for where each has an id.
    #[error("no permits were asked for, so there is nothing to hold")]
    NoPermits,
    /// The owner holds the lock already, and it is one that is not re-entered.
    #[error("the lock is held by this very owner, and a non-reentrant lock is not entered twice")]
    NotReentrant,
    /// A lock over several locks has none.
    #[error("a lock over several locks needs at least one")]
    NoMembers,
    /// One lock is a member twice: it would wait for itself.
    #[error("{0:?} is a member twice")]
    MemberTwice(String),
    /// The owner has to do with other values of the group among which is one of these: both sets would count it.
    #[error(
        "this very owner has another set of the same group with one of these values: enter that set again, or take another owner"
    )]
    SetsOverlap,
    /// More values of a group than [`Invalid::MOST_VALUES`].
    #[error("{given} values of a group are more than one lock can have: the most are {}", Self::MOST_VALUES)]
    TooManyValues {
        /// How many there were.
        given: usize,
    },
    /// The engine of this client cannot do that at all.
    #[error("the {engine} engine has no {what}: {}", advice(can))]
    Unsupported {
        /// What it lacks.
        what: String,
        /// What the engine is called.
        engine: &'static str,
        /// The engines of this build that have it.
        can: Vec<&'static str>,
    },
    /// The owner reads what it wants to write, and would wait for itself.
    #[error(
        "this very owner reads the lock that it wants to write, and would wait for itself: release the read lock first, \
         or use try_upgrade"
    )]
    OnlyReads,
    /// The client was told to shut down, or already has.
    #[error("the client is shut down")]
    ShutDown,
}

fn advice(can: &[&str]) -> String {
    if can.is_empty() { "no other of this build has it".into() } else { format!("use {}", can.join(" or ")) }
}

impl Invalid {
    /// The most bytes a name may have, namespace included: 64 KiB.
    pub const LONGEST_NAME: usize = 64 * 1024;
    /// The most values of a group that one lock may have. A server works on all of them in one step, and serves nobody
    /// else meanwhile: that takes some hundredths of a second for a thousand.
    pub const MOST_VALUES: usize = 10_000;
    /// The shortest lease: below it the safety margin would eat a tenth of the time.
    pub const SHORTEST_LEASE: Duration = Duration::from_millis(20);
    /// The longest lease: a hundred years.
    pub const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
}

/// The engine gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server is down, unreachable, loading or out of memory. Whether it did what was asked is not known.
    #[error("the lock server is unavailable: {0}")]
    Unavailable(String),
    /// The server refuses this client the command, and will again.
    #[error("the lock server refuses the request: {0}")]
    Denied(String),
    /// Under the name of the lock the server has something else.
    #[error("the key of that name holds something that is not a lock: choose another name or a namespace")]
    NotALock,
}

/// Why a client could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is not one we know.
    #[error(transparent)]
    Url(#[from] crate::url::UrlError),
    /// An option is out of its range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The server did not answer, or refused.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Why there is no guard.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else held the lock for the whole wait. The server was there.
    #[error("the lock stayed busy for the whole wait of {waited:?}{}", held_by(holder.as_ref()))]
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// Who held it when it was last looked at.
        holder: Option<Owner>,
    },
    /// A read lock cannot be upgraded while others read, too.
    #[error(
        "others read, too, so this read lock cannot become a write lock{}: release it and acquire for writing",
        held_by(reader.as_ref())
    )]
    OtherReaders {
        /// One of them.
        reader: Option<Owner>,
    },
    /// There was no answer, or a refusal. If the request reached the server after all, it is undone.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The hold that was to be re-entered is lost.
    #[error("cannot re-enter the lock: {0}")]
    Lost(#[from] Loss),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// What a single try comes to: nothing, if somebody else has it.
pub(crate) fn unless_busy<T>(tried: Result<T, AcquireError>) -> Result<Option<T>, AcquireError> {
    match tried {
        Err(AcquireError::Timeout { .. }) => Ok(None),
        other => other.map(Some),
    }
}

fn held_by(holder: Option<&Owner>) -> String {
    holder.map_or_else(String::new, |owner| format!(", held by {owner}"))
}

impl AcquireError {
    /// Whether somebody else has the lock: worth another try later.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::OtherReaders { .. })
    }

    /// Whether the server could not be reached: nothing is known about the lock.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Failure(Failure::Unavailable(_)))
    }

    /// Whether the same call can succeed later without anybody changing code or settings.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.is_contended() || self.is_unavailable()
    }
}

/// Why a release did not free anything that we know of.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock is not held, and was not at the moment of the release: what ran under it may have run unprotected.
    #[error("the lock was not held any more: {0}")]
    NotHeld(Loss),
    /// This owner does not hold the lock.
    #[error("{0} does not hold the lock")]
    NotOwner(Owner),
    /// The answer is missing. The release goes on in the background until the lease is over.
    #[error("whether the lock is released is not known yet: {0}")]
    Unknown(Failure),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a lease was not extended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost: nothing can be extended.
    #[error("the lock was not held any more: {0}")]
    NotHeld(#[from] Loss),
    /// There was no answer, or a refusal. The hold lasts at least as long as before.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a wait has ended without what it waited for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// It did not happen within the whole wait. The server was there.
    #[error("it did not happen within the wait of {waited:?}")]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// There was no answer, or a refusal.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a count was not changed that we know of.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It was sent, and the answer is missing: it was carried out once, or not at all.
    #[error("whether the count has changed is not known: {0}")]
    Unknown(Failure),
    /// One of the permits is not taken, or its lease is over. Nothing has changed.
    #[error("one of the permits is not taken, or its lease is over")]
    NotTaken,
    /// It was refused, or there was no server to send it to. Nothing has changed.
    #[error(transparent)]
    Failure(Failure),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ChangeError {
    /// Whether the server could not be reached, or gave no answer.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Failure(Failure::Unavailable(_)))
    }
}

/// Why a question about a lock has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There was no answer, or a refusal.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a guarded write was not made, as far as we know.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Somebody with a greater token has written since. Nothing was changed.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// There was no answer, or a refusal. The write may have been made; repeating it with the same token is safe.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// What was asked cannot be done.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}
