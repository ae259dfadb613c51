//! Acquiring the lock.

use std::future::IntoFuture as _;

use leasehold::{AcquireError, Client, ConnectError, Guard, Lock};
use tokio::select;

use super::failure::{Failure, held};
use super::notices::Notices;
use super::waiting;
use crate::options::{IfBusy, RunOptions};
use crate::url::Url;

/// Connects, and acquires the lock or returns the reason why not. `None` if it is busy and the options allow that. The lock
/// is returned with its guard, for later queries.
///
/// # Cancel safety
///
/// Dropping the future leaves no hold behind.
pub(super) async fn enter(
    options: &RunOptions,
    url: &Url,
    notices: &Notices,
) -> Result<Option<(Lock, Guard)>, Failure> {
    let client = Client::connect(url.secret()).watchdog(options.lease).label("leasehold-run").await;
    let client = client.map_err(|error| match error {
        ConnectError::Url(error) => Failure::Url(error),
        ConnectError::Invalid(invalid) => Failure::Invalid(invalid),
        ConnectError::Failure(cause) => Failure::Server { url: url.clone(), cause },
        other => unknown(url, &other),
    })?;
    let lock = client.lock(&options.name);
    let entered = match options.if_busy {
        IfBusy::Wait => wait(options, &lock, notices).await.map(Some),
        IfBusy::Fail | IfBusy::Skip => attempt(options, &lock).await,
    };
    let name = options.name.clone();
    match entered {
        Ok(Some(guard)) => Ok(Some((lock, guard))),
        Ok(None) => {
            let held = held(&lock).await;
            if options.if_busy == IfBusy::Fail {
                return Err(Failure::Busy { name, held });
            }
            notices.say(format!("the lock {name:?} is busy{held}: the command is skipped"));
            Ok(None)
        }
        Err(AcquireError::Timeout { waited, .. }) => {
            Err(Failure::TimedOut { name, waited, held: held(&lock).await })
        }
        Err(AcquireError::Failure(cause)) => Err(Failure::Server { url: url.clone(), cause }),
        Err(AcquireError::Invalid(invalid)) => Err(Failure::Invalid(invalid)),
        Err(other) => Err(unknown(url, &other)),
    }
}

async fn attempt(options: &RunOptions, lock: &Lock) -> Result<Option<Guard>, AcquireError> {
    let mut attempt = lock.try_acquire();
    if let Some(max_hold) = options.max_hold {
        attempt = attempt.max_hold(max_hold);
    }
    attempt.await
}

async fn wait(options: &RunOptions, lock: &Lock, notices: &Notices) -> Result<Guard, AcquireError> {
    let mut acquire = lock.acquire();
    if let Some(limit) = options.wait {
        acquire = acquire.wait(limit);
    }
    if let Some(max_hold) = options.max_hold {
        acquire = acquire.max_hold(max_hold);
    }
    select! {
        biased;
        guard = acquire.into_future() => guard,
        never = waiting::tell(lock, &options.name, notices) => match never {},
    }
}

/// An error that is newer than this command. The lock was not acquired in any case.
fn unknown(url: &Url, error: &impl ToString) -> Failure {
    Failure::Server { url: url.clone(), cause: leasehold::Failure::Denied(error.to_string()) }
}
