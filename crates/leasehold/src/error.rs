//! Errors: one small enum per operation, and [`Error`] for all of them.
//!
//! Contention, time-out, outage, denial, loss and misuse differ by variant, never by text alone. An error about a lock
//! names the lock in its text, and the server where that has a part in it; both are also [`name`](Error::name) and
//! [`server`](Error::server). No error has a secret in it. A cause is part of the text, so no error has a
//! `source`.

mod invalid;
mod operations;
mod questions;
mod server;
mod subject;

use thiserror::Error;

pub use self::invalid::InvalidRequestError;
pub(crate) use self::operations::unless_busy;
pub use self::operations::{
    AcquireError, ChangeError, ConnectError, ExtendError, LostError, PingError, QueryError, ReleaseError,
    WaitError, WriteError,
};
use self::questions::answers_questions;
pub(crate) use self::questions::{Class, Classified};
pub use self::server::ServerError;
pub(crate) use self::subject::Rounded;
pub use self::subject::Subject;
use crate::fence::StaleTokenError;
use crate::loss::Loss;

/// Any error of this library, for functions that use several operations.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Client, Error};
///
/// async fn issue(client: &Client) -> Result<u32, Error> {
///     let guard = client.lock("coupon:42").acquire().wait(Duration::from_secs(2)).await?;
///     let left = guard.run(async { 99 }).await?;
///     guard.release().await?;
///     Ok(left)
/// }
/// # #[tokio::main] async fn main() -> Result<(), Error> {
/// # let client = Client::connect("memory:").await?;
/// match issue(&client).await {
///     Ok(left) => println!("{left} coupons left"),
///     Err(error) if error.is_contended() => println!("try again later"),
///     Err(error) => println!("{:?}: {error}", error.name()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error(transparent)]
pub enum Error {
    /// A client could not connect.
    Connect(#[from] ConnectError),
    /// A lock, a permit or a re-entry was not acquired.
    Acquire(#[from] AcquireError),
    /// A release did not free the lock, as far as is known.
    Release(#[from] ReleaseError),
    /// A lease was not extended.
    Extend(#[from] ExtendError),
    /// Work under a guard was ended, because the lock was lost.
    Lost(#[from] LostError),
    /// A wait for a latch was not successful.
    Wait(#[from] WaitError),
    /// A count was not changed, as far as is known.
    Change(#[from] ChangeError),
    /// A query has failed.
    Query(#[from] QueryError),
    /// The server did not reply to a ping.
    Ping(#[from] PingError),
    /// A fenced write was not made, as far as is known.
    Write(#[from] WriteError),
    /// A fencing token was refused by a [`Fence`](crate::Fence).
    Stale(#[from] StaleTokenError),
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        Self::Lost(loss.into())
    }
}

impl Error {
    fn inner(&self) -> Option<&dyn Classified> {
        Some(match self {
            Self::Connect(error) => error,
            Self::Acquire(error) => error,
            Self::Release(error) => error,
            Self::Extend(error) => error,
            Self::Lost(error) => error,
            Self::Wait(error) => error,
            Self::Change(error) => error,
            Self::Query(error) => error,
            Self::Ping(error) => error,
            Self::Write(error) => error,
            Self::Stale(_) => return None,
        })
    }
}

impl Classified for Error {
    fn class(&self) -> Class {
        self.inner().map_or(Class::Final, Classified::class)
    }

    fn subject(&self) -> Option<&Subject> {
        self.inner()?.subject()
    }

    /// The error of an operation has got its subject already.
    fn subject_mut(&mut self) -> Option<&mut Subject> {
        None
    }
}

answers_questions!(Error);
