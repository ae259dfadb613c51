//! The number of permits that a semaphore gets if it has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::counter::{Counter, checked};
use crate::engine::Adjust;
use crate::error::{AcquireError, ChangeError, ServerError};

/// How long setting the permits may take before a single attempt, which has no wait of its own.
const LEAST: Duration = Duration::from_millis(500);

/// A number of permits to be set before the first acquire of a handle, unless they are set. Clones of the handle share it.
#[derive(Debug, Clone)]
pub(crate) struct InitialPermits {
    count: u32,
    is_set: Arc<AtomicBool>,
}

impl InitialPermits {
    pub(crate) fn new(count: u32) -> Self {
        Self { count, is_set: Arc::default() }
    }

    /// Sets the permits, if this handle has not done so yet. `wait`: how long the acquire may take.
    pub(crate) async fn set(&self, counter: &Counter, wait: Option<Duration>) -> Result<(), AcquireError> {
        if self.is_set.load(Ordering::Relaxed) {
            return Ok(());
        }
        let adjust = checked(self.count).map(|count| Adjust::TrySet { count, ttl: None });
        match counter.change_within(wait.map(|wait| wait.max(LEAST)), adjust, drop).await {
            Ok(()) => {
                self.is_set.store(true, Ordering::Relaxed);
                Ok(())
            }
            // Its text is about the limit for changes.
            Err(ChangeError::Unknown { cause: ServerError::Unavailable(_), .. }) => {
                Err(ServerError::Unavailable("no reply to the setting of its permits".into()).into())
            }
            Err(ChangeError::Unknown { cause, .. } | ChangeError::Server { cause, .. }) => Err(cause.into()),
            Err(ChangeError::Invalid { cause, .. }) => Err(cause.into()),
            // Only a release has permits to name.
            Err(ChangeError::NotAcquired { .. }) => Ok(()),
        }
    }

    /// They are gone: the next acquire sets them again.
    pub(crate) fn gone(&self) {
        self.is_set.store(false, Ordering::Relaxed);
    }
}
