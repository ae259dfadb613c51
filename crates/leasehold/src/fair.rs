//! The fair lock: FIFO over all processes.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Acquire, TryAcquire};
use crate::delegate::delegates_to_lock;
use crate::engine::Query;
use crate::error::QueryError;
use crate::lock::Lock;
use crate::operation::Operation;
use crate::owner::Owner;

/// A lock that is granted in the order in which its waiters arrived at the server: Redisson's fair lock.
///
/// [`Acquire::on_position`] reports the position of a waiter.
///
/// The order is kept among waiters that stay alive and connected. A waiter that times out or is dropped leaves the queue.
/// A waiter whose process dies delays the queue by at most five seconds; a waiter of Redisson that dies delays it until its
/// own time in the queue is over, which is minutes by default. A live waiter that was silent for that long is queued again
/// at the end. [`try_acquire`](FairLock::try_acquire) never overtakes a waiter, and never joins the queue. A
/// [plain lock](crate::Client::lock) of the same name is the same lock, and ignores the queue.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let desk = client.fair_lock("desk:3");
/// let served = desk.acquire().await?;
/// let next = tokio::spawn(desk.acquire().on_position(|queued| println!("number {}", queued.position)).into_future());
/// # while desk.queue().await?.is_empty() { tokio::task::yield_now().await; }
/// assert_eq!(desk.queue().await?.len(), 1);
/// drop(served);
/// next.await??;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RedissonFairLock")]
#[derive(Debug, Clone)]
pub struct FairLock {
    lock: Lock,
}

impl FairLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// The same lock, in a handle that does not allow its owner to re-enter. See [`Lock::non_reentrant`].
    #[doc(alias = "getNonReentrantFairLock")]
    #[must_use]
    pub fn non_reentrant(self) -> Self {
        Self { lock: self.lock.non_reentrant() }
    }

    /// Waits for the lock. See [`Acquire`] for the options.
    #[doc(alias = "lock")]
    #[doc(alias = "tryLock")]
    pub fn acquire(&self) -> Acquire {
        self.lock.acquire()
    }

    /// Tries once: `None` when another owner holds it or is queued. See [`TryAcquire`] for the options.
    #[doc(alias = "tryLock")]
    pub fn try_acquire(&self) -> TryAcquire {
        self.lock.try_acquire()
    }

    /// The owners in the queue, the front waiter first: those of all processes, including Redisson's.
    ///
    /// # Errors
    ///
    /// As for [`Lock::holder`].
    pub fn queue(&self) -> Operation<Result<Vec<Owner>, QueryError>> {
        self.lock.shared.operation(self.lock.resource.clone(), |shared, resource| async move {
            Ok(shared.engine.inspect(&Query::Queue(&resource)).await?.queue)
        })
    }
}

delegates_to_lock!(FairLock);

impl From<FairLock> for Lock {
    /// The same lock, for [`MultiLock::new`](crate::MultiLock::new). Its waiters are queued as before.
    fn from(fair: FairLock) -> Self {
        fair.lock
    }
}

/// A position in the queue of a [`FairLock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePosition {
    /// The position; the front waiter has one.
    pub position: usize,
    /// Whether it is further back than before, because the waiter was silent for too long.
    pub requeued: bool,
}

pub(crate) type Watcher = Arc<dyn Fn(QueuePosition) + Send + Sync>;

/// For how long clients without other information assume that a waiter with this limit is alive.
///
/// Redisson's rule, and its `fairLockWaitTimeout`. A single attempt does not join the queue.
pub(crate) fn queueing(wait: Option<Duration>) -> Option<Duration> {
    match wait {
        None => Some(Duration::from_secs(300)),
        Some(Duration::ZERO) => None,
        Some(wait) => Some(wait.clamp(Duration::from_millis(1), Duration::from_secs(100 * 365 * 24 * 3600))),
    }
}
