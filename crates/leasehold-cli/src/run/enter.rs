//! Acquiring the lock.

use leasehold::{AcquireError, ConnectError};
use tokio::select;

use super::Settings;
use super::failure::{LockText, RunError, held};
use super::held::Held;
use super::lock::{RunLock, Terms};
use super::nesting;
use super::notices::Notices;
use super::waiting;
use crate::options::IfBusy;

/// Connects, and acquires the lock or returns the reason why not. `None` if it is busy and the options allow that. The lock
/// is returned with its hold, for later queries.
///
/// # Cancel safety
///
/// Dropping the future leaves no hold behind.
pub(super) async fn enter(
    settings: &Settings<'_>,
    notices: &Notices,
) -> Result<Option<(RunLock, Held)>, RunError> {
    let options = settings.options;
    let client = settings.connect().await.map_err(|error| match error {
        ConnectError::Url(_) | ConnectError::Invalid(_) => RunError::Invalid(error.into()),
        other => RunError::Server(other.into()),
    })?;
    for warning in client.warnings() {
        notices.say(warning);
    }
    let lock = RunLock::new(&client, options);
    let text = settings.lock_text();
    nesting::check(&lock, &text).await?;
    let terms = Terms {
        wait: options.wait,
        max_hold: options.max_hold,
        min_hold: options.min_hold.filter(|_| !text.is_file()),
        fenced: options.fenced,
    };
    let entered = match options.if_busy {
        IfBusy::Wait => wait(&lock, terms, &text, notices).await.map(Some),
        IfBusy::Fail | IfBusy::Skip => lock.try_acquire(terms).await,
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

async fn wait(
    lock: &RunLock,
    terms: Terms,
    text: &LockText,
    notices: &Notices,
) -> Result<Held, AcquireError> {
    select! {
        biased;
        held = lock.acquire(terms) => held,
        never = waiting::report(lock, text, notices) => match never {},
    }
}
