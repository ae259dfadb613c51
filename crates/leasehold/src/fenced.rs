//! Locks with a fencing token for every acquisition, and their guards.

use crate::acquire::{Acquire, Granted, TryAcquire};
use crate::back_off::BackOff;
use crate::delegate::delegates_to_lock;
use crate::deref::derefs_to;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::{Guard, Released};
use crate::lock::Lock;
use crate::operation::Operation;

/// A lock with a fencing token for every acquisition: Redisson's `RFencedLock`.
///
/// Every guard has a token, so no holder can write without one. A [plain lock](crate::Client::lock) of the same name is
/// the same lock, and issues none unless [`fenced`](Acquire::fenced) requests it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let lock = client.fenced_lock("account:7").non_reentrant();
/// let guard = lock.acquire().await?;
/// assert_eq!(lock.last_token().await?, guard.token());
/// assert!(lock.is_held_by(guard.owner()).await?);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RFencedLock")]
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: Lock,
}

impl FencedLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// The same lock, in a handle that does not allow its owner to re-enter. See [`Lock::non_reentrant`].
    #[must_use]
    pub fn non_reentrant(self) -> Self {
        Self { lock: self.lock.non_reentrant() }
    }

    /// The same lock, in a handle that does not join the wait queue but retries after these pauses.
    #[must_use]
    pub fn back_off(self, back_off: BackOff) -> Self {
        Self { lock: self.lock.back_off(back_off) }
    }

    /// Waits for the lock. See [`Acquire`] for the options.
    #[doc(alias = "lockAndGetToken")]
    #[doc(alias = "tryLockAndGetToken")]
    pub fn acquire(&self) -> Acquire<FencedGuard> {
        self.lock.acquire().fenced()
    }

    /// Tries once: `None` when another owner holds it or is next. See [`TryAcquire`] for the options.
    #[doc(alias = "tryLockAndGetToken")]
    pub fn try_acquire(&self) -> TryAcquire<FencedGuard> {
        self.lock.try_acquire().fenced()
    }
}

delegates_to_lock!(FencedLock);

/// A guard with a fencing token. It dereferences to [`Guard`], which has all other methods.
///
/// The token is issued in the same step that acquires the lock, and is greater than every earlier token of this name. A
/// holder that was paused past its lease cannot detect that, but its token is stale: let the resource store the greatest
/// token it has seen and refuse smaller ones, and a late write does no harm. That holds only if every writer has a token,
/// and commits before it releases. [`Fence`](crate::Fence) stores the token inside a process,
/// [`fenced_write`](crate::Client::fenced_write) beside a value on Redis, and a column beside a row of a database.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let lock = client.fenced_lock("account:7");
/// let first = lock.acquire().await?;
/// let token = first.token();
/// first.release().await?;
/// assert!(lock.acquire().await?.token() > token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct FencedGuard {
    guard: Guard,
    token: u64,
}

impl FencedGuard {
    /// The fencing token of this acquisition.
    #[doc(alias = "lockAndGetToken")]
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Re-enters the lock, with a new token. See [`Guard::reenter`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::reenter`].
    pub fn reenter(&self) -> Operation<Result<Self, AcquireError>> {
        let reenter = self.guard.reenter();
        Operation::new(async move { reenter.await.map(Self::from_guard) })
    }

    /// Releases the lock and returns the result. See [`Guard::release`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`].
    pub fn release(self) -> Operation<Result<Released, ReleaseError>> {
        self.guard.release()
    }
}

impl FencedGuard {
    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Granted for FencedGuard {
    fn from_guard(guard: Guard) -> Self {
        let token = guard.token().expect("an engine mints a requested token");
        Self { guard, token }
    }
}

derefs_to!(FencedGuard, guard: Guard);
