//! One small enum per operation.

use std::time::Duration;

use thiserror::Error;

use super::invalid::InvalidRequestError;
use super::questions::{Class, Classified, answers_questions};
use super::server::ServerError;
use super::subject::{Rounded, Subject};
use crate::env::{self, Instant};
use crate::fence::StaleTokenError;
use crate::identity::ClientInfo;
use crate::loss::Loss;
use crate::owner::Owner;
use crate::url::UrlError;

/// Why a client could not connect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is not supported.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// An option is out of its range.
    #[error(transparent)]
    Invalid(#[from] InvalidRequestError),
    /// The server did not reply, or refused.
    #[error("cannot connect to {}: {}", subject.server().unwrap_or("the server"), bare(cause))]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The server.
        subject: Subject,
    },
}

/// Why an acquire gave no guard.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Other owners held the lock for the whole wait. The server was available.
    #[error(
        "{subject} {}{} after {}{}{}",
        still_busy(subject), held_by(holder.as_ref(), client.as_deref()), Rounded(*waited), lease_text(*lease_left), of_own(*is_own)
    )]
    #[non_exhaustive]
    Timeout {
        /// How long the wait was.
        waited: Duration,
        /// The holder at the last attempt.
        holder: Option<Owner>,
        /// The client of the holder, as far as it was known when the wait was over. `None` after a single try, which does not
        /// query it.
        client: Option<Box<ClientInfo>>,
        /// How long the lease of the holder still lasted then, unless it is renewed. `None` if that is not known, or the holder
        /// has no lease.
        lease_left: Option<Duration>,
        /// Whether the holder is an owner of the same client. A task that acquires a lock twice waits for itself.
        is_own: bool,
        /// The lock.
        subject: Subject,
    },
    /// The wait was ended by an [`Interrupt`](crate::Interrupt).
    #[error("the wait for {subject} was interrupted after {}", Rounded(*waited))]
    #[non_exhaustive]
    Interrupted {
        /// How long the wait was.
        waited: Duration,
        /// The lock.
        subject: Subject,
    },
    /// No permits are set for the semaphore, because it was never set up, was deleted, or has expired: the wait could not
    /// succeed.
    #[error("{subject} has no permits, because none are set: call try_set_permits first (waited {})", Rounded(*waited))]
    #[non_exhaustive]
    NoPermitsSet {
        /// How long the wait was.
        waited: Duration,
        /// The semaphore.
        subject: Subject,
    },
    /// A read lock cannot be upgraded while there are other readers.
    #[error(
        "{subject} has other readers{}, so this read lock cannot be upgraded: release it and acquire the write lock",
        reader.as_ref().map_or_else(String::new, |reader| format!(" ({reader})"))
    )]
    #[non_exhaustive]
    OtherReaders {
        /// One of them.
        reader: Option<Owner>,
        /// The lock.
        subject: Subject,
    },
    /// There was no reply, or a refusal. If the request reached the server after all, it is rolled back.
    #[error("{subject} was not acquired: {cause}")]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The lock.
        subject: Subject,
    },
    /// The hold that was to be re-entered, upgraded, downgraded or completed is lost.
    #[error("{subject} is lost: {loss}")]
    #[non_exhaustive]
    Lost {
        /// Why.
        loss: Loss,
        /// The lock.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The lock.
        subject: Subject,
    },
}

/// Why a release did not free the lock, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock is not held, and was not at the moment of the release: the critical section may have run unprotected.
    #[error("{subject} was no longer held: {loss}{}; the work under it may have run unprotected", ago_text(*ago))]
    #[non_exhaustive]
    NotHeld {
        /// Why.
        loss: Loss,
        /// How long ago it was lost, if the moment is known. A loss on the server is found later, by a renewal.
        ago: Option<Duration>,
        /// The lock.
        subject: Subject,
    },
    /// This owner does not hold the lock.
    #[error("{owner} does not hold {subject}")]
    #[non_exhaustive]
    NotOwner {
        /// The owner.
        owner: Owner,
        /// The lock.
        subject: Subject,
    },
    /// The reply is missing. The release continues in the background until the lease is over.
    #[error("whether {subject} is released is not known yet: {cause}; the release is retried{}", frees_itself(*free_within))]
    #[non_exhaustive]
    Unknown {
        /// The failure of the server.
        cause: ServerError,
        /// When the server frees the lock by itself at the latest.
        free_within: Option<Duration>,
        /// The lock.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The lock.
        subject: Subject,
    },
}

/// Why a lease was not extended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost, so it cannot be extended.
    #[error("{subject} was no longer held: {loss}{}; the work under it may have run unprotected", ago_text(*ago))]
    #[non_exhaustive]
    NotHeld {
        /// Why.
        loss: Loss,
        /// How long ago it was lost, if the moment is known. A loss on the server is found later, by a renewal.
        ago: Option<Duration>,
        /// The lock.
        subject: Subject,
    },
    /// There was no reply, or a refusal. The hold lasts at least as long as before.
    #[error("the lease of {subject} was not extended: {cause}")]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The lock.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The lock.
        subject: Subject,
    },
}

/// Why the result of work under a guard is missing: the lock was lost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error("{subject} was lost: {loss}; the work under it was cancelled, or ended unprotected")]
pub struct LostError {
    /// Why.
    pub loss: Loss,
    /// The lock.
    pub subject: Subject,
}

/// Why a wait has ended without success.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The wait timed out. The server was available.
    #[error("{subject} was still closed after {}{}", Rounded(*waited), left_text(*left))]
    #[non_exhaustive]
    Timeout {
        /// How long the wait was.
        waited: Duration,
        /// The count at the last attempt.
        left: Option<u64>,
        /// The latch.
        subject: Subject,
    },
    /// The wait was ended by an [`Interrupt`](crate::Interrupt).
    #[error("the wait for {subject} was interrupted after {}", Rounded(*waited))]
    #[non_exhaustive]
    Interrupted {
        /// How long the wait was.
        waited: Duration,
        /// The latch.
        subject: Subject,
    },
    /// There was no reply, or a refusal.
    #[error("whether {subject} is open is not known: {cause}")]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The latch.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The latch.
        subject: Subject,
    },
}

/// Why a count was not changed, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The request was sent, and the reply is missing: it was executed once, or not at all.
    #[error("whether {subject} has changed is not known: {cause}")]
    #[non_exhaustive]
    Unknown {
        /// The failure of the server.
        cause: ServerError,
        /// The semaphore or latch.
        subject: Subject,
    },
    /// One of the permits is not acquired, or its lease is over. Nothing has changed.
    #[error("{subject} is not changed: one of the permits is not acquired, or its lease is over")]
    #[non_exhaustive]
    NotAcquired {
        /// The semaphore.
        subject: Subject,
    },
    /// The request was refused, or there was no server to send it to. Nothing has changed.
    #[error("{subject} is not changed: {cause}")]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The semaphore or latch.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The semaphore or latch.
        subject: Subject,
    },
}

/// Why a query about a lock has failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There was no reply, or a refusal.
    #[error("the state of {subject} is not known: {cause}")]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The lock.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The lock.
        subject: Subject,
    },
}

/// Why a ping has failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PingError {
    /// There was no connection, no reply, or a refusal.
    #[error("the ping of {} failed: {}", subject.server().unwrap_or("the server"), bare(cause))]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The server.
        subject: Subject,
    },
}

/// Why a fenced write was not made, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A holder with a greater token has written since. Nothing was changed.
    #[error("{subject} is not written: {cause}")]
    #[non_exhaustive]
    Stale {
        /// Both tokens.
        cause: StaleTokenError,
        /// The key.
        subject: Subject,
    },
    /// There was no reply, or a refusal. The write may have been made; it is idempotent with the same token.
    #[error(
        "whether {subject} is written is not known: {cause}; it is safe to write again with the same token"
    )]
    #[non_exhaustive]
    Server {
        /// The failure of the server.
        cause: ServerError,
        /// The key.
        subject: Subject,
    },
    /// The request is invalid.
    #[error("{}{cause}", subject.prefix())]
    #[non_exhaustive]
    Invalid {
        /// What is invalid.
        cause: InvalidRequestError,
        /// The key.
        subject: Subject,
    },
}

/// Converts a cause into the variant that has it, without a subject.
macro_rules! from_cause {
    ($($error:ident::$variant:ident { $field:ident: $cause:ty $(, $default:ident)* })+) => {$(
        impl From<$cause> for $error {
            fn from($field: $cause) -> Self {
                Self::$variant { $field, $($default: Default::default(),)* subject: Subject::default() }
            }
        }
    )+};
}

from_cause! {
    ConnectError::Server { cause: ServerError }
    AcquireError::Server { cause: ServerError }
    AcquireError::Lost { loss: Loss }
    AcquireError::Invalid { cause: InvalidRequestError }
    ReleaseError::NotHeld { loss: Loss, ago }
    ReleaseError::Invalid { cause: InvalidRequestError }
    ExtendError::NotHeld { loss: Loss, ago }
    ExtendError::Server { cause: ServerError }
    ExtendError::Invalid { cause: InvalidRequestError }
    WaitError::Server { cause: ServerError }
    WaitError::Invalid { cause: InvalidRequestError }
    ChangeError::Server { cause: ServerError }
    ChangeError::Invalid { cause: InvalidRequestError }
    QueryError::Server { cause: ServerError }
    QueryError::Invalid { cause: InvalidRequestError }
    PingError::Server { cause: ServerError }
    WriteError::Stale { cause: StaleTokenError }
    WriteError::Server { cause: ServerError }
    WriteError::Invalid { cause: InvalidRequestError }
}

impl AcquireError {
    /// The same error for a wait that began at `begun`, of which the failed one was a part.
    pub(crate) fn of_wait_since(mut self, begun: Instant) -> Self {
        if let Self::Timeout { waited, .. } = &mut self {
            *waited = env::now().saturating_duration_since(begun);
        }
        self
    }
}

impl From<Loss> for LostError {
    fn from(loss: Loss) -> Self {
        Self { loss, subject: Subject::default() }
    }
}

/// Implements [`Classified`] for an enum: the class of each variant, all of which have a subject but those after `without`.
macro_rules! classify {
    ($error:ident { $($variant:ident $({ $field:ident })? => $class:expr,)+ } $(without { $($bare:ident),+ })?) => {
        impl Classified for $error {
            fn class(&self) -> Class {
                match self {
                    $(Self::$variant { $($field,)? .. } => $class,)+
                    $($(Self::$bare(_) => Class::Final,)+)?
                }
            }

            fn subject(&self) -> Option<&Subject> {
                match self {
                    $(Self::$variant { subject, .. })|+ => Some(subject),
                    $($(Self::$bare(_))|+ => None,)?
                }
            }

            fn subject_mut(&mut self) -> Option<&mut Subject> {
                match self {
                    $(Self::$variant { subject, .. })|+ => Some(subject),
                    $($(Self::$bare(_))|+ => None,)?
                }
            }
        }

        answers_questions!($error);
    };
}

classify! { ConnectError { Server { cause } => cause.into(), } without { Url, Invalid } }
classify! {
    AcquireError {
        Timeout => Class::Contended,
        Interrupted => Class::Final,
        NoPermitsSet => Class::Contended,
        OtherReaders => Class::Contended,
        Server { cause } => cause.into(),
        Lost { loss } => Class::Lost(*loss),
        Invalid => Class::Final,
    }
}
classify! {
    ReleaseError {
        NotHeld { loss } => Class::Lost(*loss),
        NotOwner => Class::Final,
        Unknown { cause } => cause.into(),
        Invalid => Class::Final,
    }
}
classify! {
    ExtendError {
        NotHeld { loss } => Class::Lost(*loss),
        Server { cause } => cause.into(),
        Invalid => Class::Final,
    }
}
classify! {
    WaitError {
        Timeout => Class::Contended,
        Interrupted => Class::Final,
        Server { cause } => cause.into(),
        Invalid => Class::Final,
    }
}
classify! {
    ChangeError {
        Unknown { cause } => cause.into(),
        NotAcquired => Class::Final,
        Server { cause } => cause.into(),
        Invalid => Class::Final,
    }
}
classify! {
    QueryError {
        Server { cause } => cause.into(),
        Invalid => Class::Final,
    }
}
classify! { PingError { Server { cause } => cause.into(), } }
classify! {
    WriteError {
        Stale => Class::Final,
        Server { cause } => cause.into(),
        Invalid => Class::Final,
    }
}

impl Classified for LostError {
    fn class(&self) -> Class {
        Class::Lost(self.loss)
    }

    fn subject(&self) -> Option<&Subject> {
        Some(&self.subject)
    }

    fn subject_mut(&mut self) -> Option<&mut Subject> {
        Some(&mut self.subject)
    }
}

answers_questions!(LostError);

/// The result of a single try: `None` if another owner holds it.
pub(crate) fn unless_busy<T>(tried: Result<T, AcquireError>) -> Result<Option<T>, AcquireError> {
    match tried {
        Err(AcquireError::Timeout { .. } | AcquireError::NoPermitsSet { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// The text of a failure whose subject says already that it is the server's.
fn bare(cause: &ServerError) -> String {
    match cause {
        ServerError::Unavailable(text) | ServerError::Denied(text) => text.clone(),
        ServerError::NotALock => cause.to_string(),
    }
}

fn still_busy(subject: &Subject) -> &'static str {
    if subject.noun() == "semaphore" { "still had too few free permits" } else { "was still held" }
}

fn held_by(holder: Option<&Owner>, client: Option<&ClientInfo>) -> String {
    match (holder, client) {
        (_, Some(client)) => format!(" by {client}"),
        (Some(owner), None) => format!(" by {owner}"),
        (None, None) => String::new(),
    }
}

fn lease_text(left: Option<Duration>) -> String {
    left.map_or_else(String::new, |left| format!("; its lease ends in {} unless renewed", Rounded(left)))
}

fn of_own(is_own: bool) -> &'static str {
    if is_own {
        ": that is an owner of this client, so if it is this very task, it waits for itself: use the guard that it has"
    } else {
        ""
    }
}

fn ago_text(ago: Option<Duration>) -> String {
    ago.map_or_else(String::new, |ago| format!(" {} ago", Rounded(ago)))
}

fn left_text(left: Option<u64>) -> String {
    left.map_or_else(String::new, |left| format!(" ({left} left)"))
}

fn frees_itself(within: Option<Duration>) -> String {
    within.map_or_else(String::new, |length| format!(", and the server frees it within {}", Rounded(length)))
}
