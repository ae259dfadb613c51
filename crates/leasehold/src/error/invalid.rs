//! Requests that are refused before anything is sent.

use std::time::Duration;

use thiserror::Error;

use super::subject::Quoted;
use crate::limits;
use crate::owner::Owner;

/// The request is invalid. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidRequestError {
    /// The name is empty.
    #[error("a lock needs a name: the given one is empty")]
    EmptyName,
    /// The name, with its namespace, is longer than [`limits::LONGEST_NAME`].
    #[error("a lock name may have {} bytes, namespace included: this one has {bytes}", limits::LONGEST_NAME)]
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
    /// A lease, `max_hold` or watchdog time shorter than [`limits::SHORTEST_LEASE`].
    #[error(
        "a {what} of {given:?} is too short to be kept: the least is {:?}, ten times the safety margin",
        limits::SHORTEST_LEASE
    )]
    TooShort {
        /// Which setting it is.
        what: &'static str,
        /// The given value.
        given: Duration,
    },
    /// A lease, `max_hold` or watchdog time longer than [`limits::LONGEST_LEASE`].
    #[error(
        "a {what} of {given:?} is longer than a hundred years: leave it out to hold as long as the guard lives"
    )]
    TooLong {
        /// Which setting it is.
        what: &'static str,
        /// The given value.
        given: Duration,
    },
    /// A `min_hold` that is longer than the hold can last.
    #[error(
        "a min_hold of {given:?} is longer than the {what} of {end:?}, which ends the hold before: make one of them fit"
    )]
    MinHoldTooLong {
        /// The given value.
        given: Duration,
        /// The setting that ends the hold before: `lease`, `max_hold` or `renew_while_progress`.
        what: &'static str,
        /// Its value.
        end: Duration,
    },
    /// A `token_retention` that is not longer than a hold may last.
    #[error(
        "a token_retention of {given:?} is not longer than the {what} of {end:?}, and the counter of tokens has to outlive \
         the hold: make it longer"
    )]
    TokenRetentionTooShort {
        /// The given value.
        given: Duration,
        /// The setting that it has to exceed: `watchdog time-out`, `lease` or `max_hold`.
        what: &'static str,
        /// Its value.
        end: Duration,
    },
    /// `renew_while_progress` together with a fixed lease.
    #[error("a fixed lease is not renewed, so renew_while_progress would do nothing: leave one of them out")]
    ProgressOfFixedLease,
    /// A `min_hold` of a request that cannot have one.
    #[error("{of} has no min_hold: leave it out")]
    NoMinHold {
        /// The request.
        of: &'static str,
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
    #[error("zero permits were requested, so there is nothing to hold")]
    NoPermits,
    /// The owner holds the lock already, and the lock is not re-entrant.
    #[error(
        "this very owner holds the lock, which is not re-entrant: use the guard that it has, or another owner"
    )]
    NotReentrant,
    /// A lock over several locks has no members.
    #[error("a lock over several locks needs at least one")]
    NoMembers,
    /// One lock is a member twice: it would wait for itself.
    #[error("{} is named twice among the members: name each of them once", Quoted(.0))]
    MemberTwice(String),
    /// The owner uses another set of the group that has one of these values: both sets would count it.
    #[error(
        "this very owner has another set of the same group with one of these values: re-enter that set, or use another \
         owner"
    )]
    SetsOverlap,
    /// More values of a group than [`limits::MOST_VALUES`].
    #[error(
        "{given} values of a group are more than one lock can have: the most are {}",
        limits::MOST_VALUES
    )]
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
        "this very owner holds the read lock and would wait for itself: release the read lock first, or use try_upgrade"
    )]
    OnlyReads,
    /// The call blocks a thread that runs under this very lock, by `run` or `run_blocking`, and would wait for itself for ever.
    #[error(
        "the work that runs under the lock on this thread would wait for itself: use its own hold, or give the acquire a wait"
    )]
    WouldDeadlock,
    /// The client is shutting down, or already has.
    #[error("the client is shut down")]
    ShutDown,
}

fn advice(can: &[&str]) -> String {
    if can.is_empty() { "no other of this build has it".into() } else { format!("use {}", can.join(" or ")) }
}
