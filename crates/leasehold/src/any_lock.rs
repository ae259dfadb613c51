//! A trait over all locks, for code that works with any of them.

mod guard;
mod request;

use std::fmt;
use std::sync::Arc;

pub use self::guard::AnyGuard;
use self::request::Request;
pub use self::request::{AnyAcquire, AnyTryAcquire};
use crate::acquire::Acquire;
use crate::fair::FairLock;
use crate::fenced::{FencedGuard, FencedLock};
use crate::leased_semaphore::{LeasedPermits, LeasedSemaphore};
use crate::lock::Lock;
use crate::multi_lock::{AcquireAll, MultiLock};
use crate::permits::AcquirePermits;
use crate::quorum_lock::{AcquireQuorum, QuorumLock};
use crate::rw_lock::{ReadGuard, ReadLock, WriteGuard, WriteLock};
use crate::semaphore::Semaphore;

/// Any lock of this library, for code that does not care which: a function with a parameter `&impl AnyLock`, or a field of type
/// `Box<dyn AnyLock>` that the configuration of a program decides about.
///
/// Every lock is one. Of a semaphore one permit is acquired. A request with its options is one, too, and is made anew
/// for each acquire: so the caller sets what only some locks have, such as a lease or a number of permits.
///
/// Guards are of one type, [`AnyGuard`], which has what all guards have. A request takes one more allocation than that of the
/// lock itself. The trait is sealed: new locks are no breaking change for its users.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use std::time::Duration;
/// use leasehold::{AnyLock, Error, QuorumLock};
///
/// /// Runs `work` unless the lock stays busy.
/// async fn once<T>(lock: &impl AnyLock, work: impl Future<Output = T>) -> Result<T, Error> {
///     lock.acquire().wait(Duration::from_secs(2)).run(async { Ok(work.await) }).await
/// }
///
/// once(&client.lock("report"), async { /* … */ }).await?;
/// once(&client.fair_lock("report"), async { /* … */ }).await?;
/// once(&QuorumLock::new([&client], "report"), async { /* … */ }).await?;
/// // with options
/// once(&client.lock("report").acquire().lease(Duration::from_secs(5)), async { /* … */ }).await?;
/// once(&client.leased_semaphore("licences").with_permits(5).acquire(2), async { /* … */ }).await?;
///
/// let locks: Vec<Box<dyn AnyLock>> = vec![Box::new(client.lock("a")), Box::new(client.multi_lock(["b", "c"]))];
/// for lock in &locks {
///     let guard = lock.try_acquire().await?.expect("it is free");
///     assert!(guard.is_held());
/// }
/// # Ok(())
/// # }
/// ```
#[expect(private_bounds, reason = "which locks there are is not for others to add to")]
pub trait AnyLock: Sealed + fmt::Debug + Send + Sync {
    /// Waits for the lock. See [`AnyAcquire`] for the options.
    fn acquire(&self) -> AnyAcquire;

    /// Tries once: `None` when the lock is busy. See [`AnyTryAcquire`].
    fn try_acquire(&self) -> AnyTryAcquire {
        AnyTryAcquire::new(self.acquire())
    }
}

trait Sealed {}

/// Makes each type a lock whose request is given.
macro_rules! any_lock {
    ($($lock:ty: |$this:ident| $request:expr;)+) => {$(
        impl Sealed for $lock {}

        impl AnyLock for $lock {
            fn acquire(&self) -> AnyAcquire {
                let $this = self;
                $request
            }
        }
    )+};
}

any_lock! {
    Lock: |lock| AnyAcquire(Request::Lock(lock.acquire()));
    FairLock: |lock| AnyAcquire(Request::Lock(lock.acquire()));
    FencedLock: |lock| AnyAcquire(Request::Fenced(lock.acquire()));
    ReadLock: |lock| AnyAcquire(Request::Read(lock.acquire()));
    WriteLock: |lock| AnyAcquire(Request::Write(lock.acquire()));
    MultiLock: |lock| AnyAcquire(Request::All(lock.acquire()));
    QuorumLock: |lock| AnyAcquire(Request::Quorum(lock.acquire()));
    Semaphore: |semaphore| AnyAcquire(Request::Permits(semaphore.acquire(1)));
    LeasedSemaphore: |semaphore| AnyAcquire(Request::Leased(semaphore.acquire(1)));
    // Requests, with their options.
    Acquire: |request| AnyAcquire(Request::Lock(request.clone()));
    Acquire<FencedGuard>: |request| AnyAcquire(Request::Fenced(request.clone()));
    Acquire<ReadGuard>: |request| AnyAcquire(Request::Read(request.clone()));
    Acquire<WriteGuard>: |request| AnyAcquire(Request::Write(request.clone()));
    AcquireAll: |request| AnyAcquire(Request::All(request.clone()));
    AcquireQuorum: |request| AnyAcquire(Request::Quorum(request.clone()));
    AcquirePermits: |request| AnyAcquire(Request::Permits(request.clone()));
    AcquirePermits<LeasedPermits>: |request| AnyAcquire(Request::Leased(request.clone()));
    AnyAcquire: |request| request.clone();
    // Locks whose type is not known. A pointer to a known one is none, or it would hide the lock's own methods.
    &(dyn AnyLock + '_): |lock| (**lock).acquire();
    Box<dyn AnyLock + '_>: |lock| (**lock).acquire();
    Arc<dyn AnyLock + '_>: |lock| (**lock).acquire();
}
