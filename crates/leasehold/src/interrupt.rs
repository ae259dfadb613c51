//! Ends a blocked wait from another thread.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::env;
use crate::error::{AcquireError, Subject};
use crate::operation::Operation;
use crate::race::{First, race};

/// Ends waits that block, from any other thread: what an interrupted thread is in Java.
///
/// Clones are the same interrupt. It stays triggered: a wait that begins later ends at once.
///
/// In async code no such thing is needed: dropping the future of an acquire ends its wait, and leaves nothing behind. So a
/// cancellation token of your own works with `select!`:
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// # let held = client.lock("report").acquire().await?;
/// # let cancelled = std::future::ready(());
/// let lock = client.lock("report");
/// let guard = tokio::select! {
///     guard = lock.acquire() => Some(guard?),
///     () = cancelled => None,
/// };
/// # assert!(guard.is_none());
/// # Ok(())
/// # }
/// ```
///
/// On plain threads:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").block()?;
/// # let held = client.lock("report").acquire().block()?;
/// use leasehold::{AcquireError, Interrupt};
///
/// let (lock, interrupt) = (client.lock("report"), Interrupt::new());
/// let stop = interrupt.clone();
/// let waiter = std::thread::spawn(move || lock.acquire().block_until(&interrupt));
/// stop.trigger();
/// assert!(matches!(waiter.join().unwrap(), Err(AcquireError::Interrupted { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    is_triggered: AtomicBool,
    changed: Notify,
}

impl Interrupt {
    /// One that is not triggered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every wait that has this interrupt, now and later.
    pub fn trigger(&self) {
        self.0.is_triggered.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Whether it was triggered.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.0.is_triggered.load(Ordering::SeqCst)
    }

    /// The output of `work`; `None` if this is triggered before that is there.
    pub(crate) async fn unless_triggered<F: Future>(&self, work: F) -> Option<F::Output> {
        let changed = self.0.changed.notified();
        if self.is_triggered() {
            return None;
        }
        match race(pin!(work), pin!(changed)).await {
            First::Left(output) => Some(output),
            First::Right(()) => None,
        }
    }
}

/// The outcome of an acquire on this thread that `interrupt` may end.
#[track_caller]
pub(crate) fn acquire_until<G>(
    interrupt: &Interrupt,
    acquire: Operation<Result<G, AcquireError>>,
    subject: Option<Subject>,
) -> Result<G, AcquireError> {
    let begun = env::now();
    acquire.block_until(interrupt).unwrap_or_else(|| {
        let waited = env::now().saturating_duration_since(begun);
        Err(AcquireError::Interrupted { waited, subject: subject.unwrap_or_default() })
    })
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").field("is_triggered", &self.is_triggered()).finish()
    }
}
