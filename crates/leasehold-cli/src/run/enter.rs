//! Acquiring the lock.

use std::future::IntoFuture as _;

use leasehold::{AcquireError, ConnectError, Guard, Lock};
use tokio::select;

use super::Settings;
use super::failure::{LockText, RunError, held};
use super::notices::Notices;
use super::waiting;
use crate::options::{IfBusy, RunOptions};

/// Connects, and acquires the lock or returns the reason why not. `None` if it is busy and the options allow that. The lock
/// is returned with its guard, for later queries.
///
/// # Cancel safety
///
/// Dropping the future leaves no hold behind.
pub(super) async fn enter(
    settings: &Settings<'_>,
    notices: &Notices,
) -> Result<Option<(Lock, Guard)>, RunError> {
    let (options, url) = (settings.options, &settings.url);
    let client = settings.connect().await.map_err(|error| match error {
        ConnectError::Url(_) | ConnectError::Invalid(_) => RunError::Invalid(error.into()),
        other => RunError::Server(other.into()),
    })?;
    for warning in client.warnings() {
        notices.say(warning);
    }
    let lock = client.lock(&options.name);
    let text = LockText::new(&options.name, url);
    let entered = match options.if_busy {
        IfBusy::Wait => wait(options, &lock, &text, notices).await.map(Some),
        IfBusy::Fail | IfBusy::Skip => attempt(options, &lock, &text).await,
    };
    match entered {
        Ok(Some(guard)) => Ok(Some((lock, guard))),
        Ok(None) => {
            let held = held(&lock, &text).await;
            if options.if_busy == IfBusy::Fail {
                return Err(RunError::Busy { lock: text, held });
            }
            notices.say(format!("{text} is busy{held}: the command is skipped"));
            Ok(None)
        }
        Err(AcquireError::Timeout { waited, .. }) => {
            let held = held(&lock, &text).await;
            Err(RunError::TimedOut { lock: text, waited, held })
        }
        Err(error @ AcquireError::Invalid { .. }) => Err(RunError::Invalid(error.into())),
        Err(error) => Err(RunError::Server(error.into())),
    }
}

async fn attempt(options: &RunOptions, lock: &Lock, text: &LockText) -> Result<Option<Guard>, AcquireError> {
    let mut attempt = lock.try_acquire();
    if let Some(max_hold) = options.max_hold {
        attempt = attempt.max_hold(max_hold);
    }
    if let Some(min_hold) = options.min_hold.filter(|_| !text.is_file()) {
        attempt = attempt.min_hold(min_hold);
    }
    attempt.await
}

async fn wait(
    options: &RunOptions,
    lock: &Lock,
    text: &LockText,
    notices: &Notices,
) -> Result<Guard, AcquireError> {
    let mut acquire = lock.acquire();
    if let Some(limit) = options.wait {
        acquire = acquire.wait(limit);
    }
    if let Some(max_hold) = options.max_hold {
        acquire = acquire.max_hold(max_hold);
    }
    if let Some(min_hold) = options.min_hold.filter(|_| !text.is_file()) {
        acquire = acquire.min_hold(min_hold);
    }
    select! {
        biased;
        guard = acquire.into_future() => guard,
        never = waiting::report(lock, text, notices) => match never {},
    }
}
