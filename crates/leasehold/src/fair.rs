//! The fair lock: first come, first served, over all processes.

use std::sync::Arc;
use std::time::Duration;

use crate::deref::derefs_to;
use crate::engine::Question;
use crate::error::QueryError;
use crate::lock::Lock;
use crate::operation::Operation;
use crate::owner::Owner;

/// A lock that is granted in the order in which the server saw its waiters come: Redisson's fair lock.
///
/// Everything else is that of [`Lock`], to which this dereferences. [`Acquire::on_queue`](crate::Acquire::on_queue) tells
/// a waiter its place.
///
/// The order is kept among waiters that stay alive and connected. A waiter that times out or is dropped leaves the queue.
/// One whose process dies delays the queue by at most five seconds; a waiter of Redisson that dies delays it until its
/// own time in the queue is over, which is minutes unless configured otherwise. One that was silent for that long, and
/// still lives, stands at the end of the queue again. [`try_acquire`](Lock::try_acquire) never overtakes anybody, and
/// never queues. A [plain lock](crate::Client::lock) of the same name is the same lock, and does not care about the queue.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let desk = client.fair_lock("desk:3");
/// let served = desk.acquire().await?;
/// let next = tokio::spawn(desk.acquire().on_queue(|queued| println!("number {}", queued.position)).into_future());
/// # while desk.queue().await?.is_empty() { tokio::task::yield_now().await; }
/// assert_eq!(desk.queue().await?.len(), 1);
/// drop(served);
/// next.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FairLock {
    lock: Lock,
}

impl FairLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// The same lock, in a handle by which an owner that holds it does not enter again. See [`Lock::non_reentrant`].
    #[must_use]
    pub fn non_reentrant(self) -> Self {
        Self { lock: self.lock.non_reentrant() }
    }

    /// Who stands in the queue, the next one first: waiters of all processes, of Redisson too.
    ///
    /// # Errors
    ///
    /// As for [`Lock::holder`].
    pub fn queue(&self) -> Operation<Result<Vec<Owner>, QueryError>> {
        let (shared, target) = (Arc::clone(&self.lock.shared), self.lock.target.clone());
        Operation::new(async move { Ok(shared.engine.inspect(&Question::Queue(&target?)).await?.queue) })
    }
}

derefs_to!(FairLock, lock: Lock);

/// A place in the queue of a [`FairLock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// From one, for whoever is next.
    pub position: usize,
    /// Whether it is further back than before, because we were silent for too long.
    pub requeued: bool,
}

pub(crate) type Watcher = Arc<dyn Fn(Queued) + Send + Sync>;

/// For how long a waiter that may wait so long is thought to be alive by those who know nothing else of it.
///
/// Redisson's rule, and its `fairLockWaitTimeout`. One who does not wait does not queue.
pub(crate) fn queueing(wait: Option<Duration>) -> Option<Duration> {
    match wait {
        None => Some(Duration::from_secs(300)),
        Some(Duration::ZERO) => None,
        Some(wait) => Some(wait.clamp(Duration::from_millis(1), Duration::from_secs(100 * 365 * 24 * 3600))),
    }
}
