//! `leasehold wait`: until a lock is free.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::HeldLock;
use tokio::time::{Instant, sleep};

use super::failure::LookError;
use super::{Target, text};
use crate::error::Error;
use crate::options::WaitOptions;

/// How often to look. Acquiring the lock to learn that it is free would keep other waiters out, and a message that it is free
/// may be missing.
const PAUSE: Duration = Duration::from_millis(250);

/// Waits until the lock is free.
///
/// # Errors
///
/// A URL or name that is malformed, a server that cannot be reached or refuses, and a wait that is over.
pub async fn run(options: &WaitOptions) -> Result<ExitCode, Error> {
    let Target { client, .. } = Target::connect(&options.target).await?;
    let begun = Instant::now();
    while let Some(lock) = client.find(&options.name).await.map_err(LookError::from)? {
        let left = options.wait.map(|limit| limit.saturating_sub(begun.elapsed()));
        if let (Some(waited), Some(Duration::ZERO)) = (options.wait, left) {
            return Err(LookError::TimedOut { held: text::held(&lock), waited }.into());
        }
        sleep(pause(&lock).min(left.unwrap_or(PAUSE))).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// No longer than the lease lasts.
fn pause(lock: &HeldLock) -> Duration {
    match lock.holder.remaining {
        Duration::ZERO => PAUSE,
        // A server rounds down.
        left => PAUSE.min(left.saturating_add(Duration::from_millis(1))),
    }
}
