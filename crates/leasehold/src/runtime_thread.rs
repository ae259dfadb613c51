//! A thread of a runtime that is blocked for long: the tasks behind it cannot run, the holder of the awaited lock perhaps among
//! them.

use std::panic::Location;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::coop::poll_proceed;

use crate::env::{self, Instant};

/// How long a thread of a runtime may be blocked before a warning.
const LONG: Duration = Duration::from_secs(2);

/// Warns once when a call blocks a thread of a runtime for long.
pub(crate) struct Watch {
    caller: &'static Location<'static>,
    /// When to warn; `None` if there is nothing to warn of, or not any more.
    at: Option<Instant>,
}

impl Watch {
    /// For a call that is about to block.
    pub(crate) fn begin(caller: &'static Location<'static>) -> Self {
        Self { caller, at: env::has_runtime().then(|| env::now() + LONG) }
    }

    /// When the thread has to wake up for it.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Warns if it is time.
    pub(crate) fn check(&mut self) {
        if self.at.take_if(|at| env::now() >= *at).is_some() && is_running_a_task() {
            tracing::warn!(
                caller = %self.caller,
                "`block` has kept a thread of a runtime for {LONG:?}, and other tasks cannot run on it: \
                 use `.await`, or call it inside `spawn_blocking`"
            );
        }
    }
}

/// Whether this thread runs a task of a tokio runtime. Not so in `spawn_blocking` and `block_in_place`, where threads may block.
fn is_running_a_task() -> bool {
    // Only a task has a budget of polls, which is soon spent: it yields at its next `.await` for that.
    let mut context = Context::from_waker(Waker::noop());
    (0..=u8::MAX).any(|_| match poll_proceed(&mut context) {
        Poll::Ready(unit) => {
            unit.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_is_told_from_a_thread_that_may_block() {
        assert!(is_running_a_task());
        assert!(tokio::spawn(async { is_running_a_task() }).await.unwrap());
        assert!(!tokio::task::spawn_blocking(is_running_a_task).await.unwrap());
        assert!(!tokio::task::block_in_place(is_running_a_task));
        assert!(!std::thread::spawn(is_running_a_task).join().unwrap());
    }
}
