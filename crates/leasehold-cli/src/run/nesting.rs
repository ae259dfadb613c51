//! A `run` inside the command of another one, which would wait for itself if both have the same lock.

use std::env;

use super::failure::{LockText, RunError};
use super::lock::RunLock;

/// The holds of the runs around a command, outermost first, by their [ids](super::held::Held::id).
pub(super) const VARIABLE: &str = "LEASEHOLD_HOLDS";

/// The holds of the runs around this one.
pub(super) fn outer() -> Vec<String> {
    env::var(VARIABLE).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// An error if a run around this one holds the lock now.
///
/// Ids are unique, so it does not matter how both runs name the server. A process that has outlived the run around it is
/// refused nothing, because that run holds nothing any more. If the query fails, the request for the lock will say why.
pub(super) async fn check(lock: &RunLock, text: &LockText) -> Result<(), RunError> {
    for id in outer() {
        if lock.is_excluded_by(&id).await == Ok(true) {
            return Err(RunError::Nested(text.clone()));
        }
    }
    Ok(())
}
