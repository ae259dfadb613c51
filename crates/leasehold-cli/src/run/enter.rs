//! Acquiring the lock.

use leasehold::{AcquireError, Client, ConnectError};
use tokio::select;

use super::Settings;
use super::failure::{RunError, held};
use super::held::Held;
use super::lock::{RunLock, Terms};
use super::nesting;
use super::notices::{Event, Level, Notices};
use super::waiting::Waiting;
use crate::options::IfBusy;

/// An acquired lock.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) client: Client,
    /// For later queries.
    pub(super) lock: RunLock,
    pub(super) held: Held,
}

/// Connects, and acquires the lock or returns the reason why not. `None` if it is busy and the options allow that.
///
/// # Cancel safety
///
/// Dropping the future leaves no hold behind.
pub(super) async fn enter(settings: &Settings<'_>, notices: &Notices) -> Result<Option<Entered>, RunError> {
    let options = settings.options;
    let client = settings.connect().await.map_err(|error| match error {
        ConnectError::Url(_) | ConnectError::Invalid(_) => RunError::Invalid(error.into()),
        other => RunError::Server(other.into()),
    })?;
    for warning in client.warnings() {
        notices.warn(warning);
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
        IfBusy::Wait => wait(&client, &lock, terms, settings, notices).await.map(Some),
        IfBusy::Fail | IfBusy::Skip => lock.try_acquire(terms).await,
    };
    match entered {
        Ok(Some(held)) => Ok(Some(Entered { client, lock, held })),
        Ok(None) => {
            let held = held(&lock, &text).await;
            if options.if_busy == IfBusy::Fail {
                return Err(RunError::Busy { lock: text, held });
            }
            let event = Event::new(Level::Notice, "skipped").with("exit_code", 0);
            notices.say(event, format!("{text} is busy{held}: the command is skipped"));
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
    client: &Client,
    lock: &RunLock,
    terms: Terms,
    settings: &Settings<'_>,
    notices: &Notices,
) -> Result<Held, AcquireError> {
    let waiting = Waiting { client, lock, text: &settings.lock_text(), limit: terms.wait, settings, notices };
    select! {
        biased;
        held = lock.acquire(terms) => held,
        never = waiting.report() => match never {},
    }
}
