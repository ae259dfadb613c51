//! The return type of every call that may wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::block::block_on;
use crate::interrupt::Interrupt;

/// An operation that has been described and not yet begun.
///
/// It is a future, so `.await` runs it from any executor; [`block`](Operation::block) runs it on a plain thread.
/// Nothing happens before one of the two. Dropping it, begun or not, leaves nothing behind. A tokio runtime that runs it
/// needs its timers (`enable_time` or `enable_all`).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = leasehold::Client::connect("memory:").block()?;
/// assert!(!client.lock("coupon:42").is_locked().block()?);
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation does nothing until it is awaited or `.block()` is called"]
pub struct Operation<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Operation<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }

    /// Runs the operation on this thread and blocks until it is done.
    ///
    /// For plain threads and `spawn_blocking`. It needs no runtime and starts none; in async code it would
    /// block the executor's thread, so use `.await` there: a call that blocks a thread of a tokio runtime for 2 s logs a warning
    /// with the place of the call.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "types that must be used are marked themselves")]
    pub fn block(self) -> T {
        block_on(self)
    }

    /// Runs the operation on this thread and blocks until it is done, or until `interrupt` is triggered: then `None`, and nothing
    /// is left behind.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "types that must be used are marked themselves")]
    pub fn block_until(self, interrupt: &Interrupt) -> Option<T> {
        block_on(interrupt.unless_triggered(self))
    }
}

impl<T> Future for Operation<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").finish_non_exhaustive()
    }
}
