//! Errors, one small enum per operation.
//!
//! Contention, time-out, outage, denial, loss and misuse differ by variant, never by text alone.

use std::time::Duration;

use thiserror::Error;

use crate::fence::Stale;
use crate::loss::Loss;
use crate::owner::Owner;

/// The request is invalid. Nothing was changed.
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
    /// The name, with its namespace, is only a tag: the derived keys of the lock would be those of the name without the
    /// braces, which is another lock.
    #[error(
        "the name \"{{{tag}}}\" is nothing but a tag in braces, and would share keys with the other name {tag:?}: \
         write {tag:?}"
    )]
    NameIsOnlyATag {
        /// The text between the braces, or the beginning of it.
        tag: String,
    },
    /// A lease, `max_hold` or watchdog time shorter than [`Invalid::SHORTEST_LEASE`].
    #[error(
        "a {what} of {given:?} is too short to be kept: the least is {:?}, ten times the safety margin",
        Self::SHORTEST_LEASE
    )]
    TooShort {
        /// Which setting it is.
        what: &'static str,
        /// The given value.
        given: Duration,
    },
    /// A lease, `max_hold` or watchdog time longer than [`Invalid::LONGEST_LEASE`].
    #[error(
        "a {what} of {given:?} is longer than a hundred years: leave it out to hold as long as the guard lives"
    )]
    TooLong {
        /// Which setting it is.
        what: &'static str,
        /// The given value.
        given: Duration,
    },
    /// The owner belongs to another client: only that client can lock and release in its name.
    #[error(
        "{0} belongs to another client, which alone can lock and release in its name; to free its lock, use force_unlock"
    )]
    ForeignOwner(Owner),
    /// More permits than Redisson can count: the most are two to the power of 31, less one.
    #[error("{given} permits are more than a semaphore counts: the most are {}", i32::MAX)]
    TooManyPermits {
        /// The given value.
        given: u32,
    },
    /// Zero permits were requested of a semaphore whose permits have ids.
    #[error("no permits were asked for, so there is nothing to hold")]
    NoPermits,
    /// The owner holds the lock already, and the lock is not re-entrant.
    #[error("the lock is held by this very owner, and a non-reentrant lock is not entered twice")]
    NotReentrant,
    /// A lock over several locks has no members.
    #[error("a lock over several locks needs at least one")]
    NoMembers,
    /// One lock is a member twice: it would wait for itself.
    #[error("{0:?} is a member twice")]
    MemberTwice(String),
    /// The owner uses another set of the group that has one of these values: both sets would count it.
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
    /// The engine of this client does not support the operation.
    #[error("the {engine} engine has no {what}: {}", advice(can))]
    Unsupported {
        /// The missing feature.
        what: String,
        /// The name of the engine.
        engine: &'static str,
        /// The engines of this build that have it.
        can: Vec<&'static str>,
    },
    /// The owner holds the read lock and requests the write lock: it would wait for itself.
    #[error(
        "this very owner reads the lock that it wants to write, and would wait for itself: release the read lock first, \
         or use try_upgrade"
    )]
    OnlyReads,
    /// The client is shutting down, or already has.
    #[error("the client is shut down")]
    ShutDown,
}

fn advice(can: &[&str]) -> String {
    if can.is_empty() { "no other of this build has it".into() } else { format!("use {}", can.join(" or ")) }
}

impl Invalid {
    /// The most bytes a name may have, namespace included: 64 KiB.
    pub const LONGEST_NAME: usize = 64 * 1024;
    /// The most values of a group that one lock may have. A server handles all of them in one step, and no other client
    /// meanwhile: that takes some hundredths of a second for a thousand.
    pub const MOST_VALUES: usize = 10_000;
    /// The shortest lease: below it the safety margin would be more than a tenth of the time.
    pub const SHORTEST_LEASE: Duration = Duration::from_millis(20);
    /// The longest lease: a hundred years.
    pub const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
}

/// The engine gave no usable reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server is down, unreachable, loading or out of memory. Whether it executed the request is unknown.
    #[error("the lock server is unavailable: {0}")]
    Unavailable(String),
    /// The server denies this client the command; a retry will fail, too.
    #[error("the lock server refuses the request: {0}")]
    Denied(String),
    /// The key of that name on the server is not a lock of this kind.
    #[error("the key of that name holds something that is not a lock: choose another name or a namespace")]
    NotALock,
}

/// Why a client could not connect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is not supported.
    #[error(transparent)]
    Url(#[from] crate::url::UrlError),
    /// An option is out of its range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The server did not reply, or refused.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Why an acquire gave no guard.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Other owners held the lock for the whole wait. The server was available.
    #[error("the lock stayed busy for the whole wait of {waited:?}{}", held_by(holder.as_ref()))]
    Timeout {
        /// How long the wait was.
        waited: Duration,
        /// The holder at the last attempt.
        holder: Option<Owner>,
    },
    /// A read lock cannot be upgraded while there are other readers.
    #[error(
        "others read, too, so this read lock cannot become a write lock{}: release it and acquire for writing",
        held_by(reader.as_ref())
    )]
    OtherReaders {
        /// One of them.
        reader: Option<Owner>,
    },
    /// There was no reply, or a refusal. If the request reached the server after all, it is rolled back.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The hold that was to be re-entered is lost.
    #[error("cannot re-enter the lock: {0}")]
    Lost(#[from] Loss),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// The result of a single try: `None` if another owner holds it.
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
    /// Whether another owner holds the lock: a later retry may succeed.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::OtherReaders { .. })
    }

    /// Whether the server could not be reached: the state of the lock is unknown.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Failure(Failure::Unavailable(_)))
    }

    /// Whether the same call can succeed later without a change of code or settings.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.is_contended() || self.is_unavailable()
    }
}

/// Why a release did not free the lock, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock is not held, and was not at the moment of the release: the critical section may have run unprotected.
    #[error("the lock was not held any more: {0}")]
    NotHeld(Loss),
    /// This owner does not hold the lock.
    #[error("{0} does not hold the lock")]
    NotOwner(Owner),
    /// The reply is missing. The release continues in the background until the lease is over.
    #[error("whether the lock is released is not known yet: {0}")]
    Unknown(Failure),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a lease was not extended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost, so it cannot be extended.
    #[error("the lock was not held any more: {0}")]
    NotHeld(#[from] Loss),
    /// There was no reply, or a refusal. The hold lasts at least as long as before.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a wait has ended without success.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The wait timed out. The server was available.
    #[error("it did not happen within the wait of {waited:?}")]
    Timeout {
        /// How long the wait was.
        waited: Duration,
    },
    /// There was no reply, or a refusal.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a count was not changed, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The request was sent, and the reply is missing: it was executed once, or not at all.
    #[error("whether the count has changed is not known: {0}")]
    Unknown(Failure),
    /// One of the permits is not acquired, or its lease is over. Nothing has changed.
    #[error("one of the permits is not taken, or its lease is over")]
    NotTaken,
    /// The request was refused, or there was no server to send it to. Nothing has changed.
    #[error(transparent)]
    Failure(Failure),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl ChangeError {
    /// Whether the server could not be reached, or gave no reply.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Failure(Failure::Unavailable(_)))
    }
}

/// Why a query about a lock has failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There was no reply, or a refusal.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Why a fenced write was not made, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A holder with a greater token has written since. Nothing was changed.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// There was no reply, or a refusal. The write may have been made; it is idempotent with the same token.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}
