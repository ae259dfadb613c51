//! Locks whose every acquisition has a number, and guards that know it.

use crate::acquire::{Acquire, Granted, TryAcquire};
use crate::deref::derefs_to;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::{Guard, Released};
use crate::lock::Lock;
use crate::operation::Operation;

/// A lock with a fencing token for every acquisition: Redisson's `RFencedLock`.
///
/// Everything else is that of [`Lock`], to which this dereferences.
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: Lock,
}

impl FencedLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Waits for the lock. See [`Acquire`] for the options.
    pub fn acquire(&self) -> Acquire<FencedGuard> {
        self.lock.acquire().fenced()
    }

    /// Tries once: `None` when somebody else has it. See [`TryAcquire`] for the options.
    pub fn try_acquire(&self) -> TryAcquire<FencedGuard> {
        self.lock.try_acquire().fenced()
    }
}

derefs_to!(FencedLock, lock: Lock);

/// A guard with a fencing token. Everything else is that of [`Guard`], to which this dereferences.
///
/// The token is minted in the same step that takes the lock, and is greater than every token of this name before. A
/// holder that was paused past its lease does not know it, but its token does: let the place that is written to remember
/// the greatest token it has seen and refuse smaller ones, and a late write does no harm. That holds only if every
/// writer has a token, and commits before it releases. [`Fence`](crate::Fence) remembers it inside a process,
/// [`fenced_write`](crate::Client::fenced_write) with a value on Redis, and a column with a row of a database.
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
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Enters the lock once more, with a token of its own. See [`Guard::reenter`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::reenter`].
    pub fn reenter(&self) -> Operation<Result<Self, AcquireError>> {
        let reenter = self.guard.reenter();
        Operation::new(async move { reenter.await.map(Self::from_guard) })
    }

    /// Releases the lock and tells how it went. See [`Guard::release`].
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
        let token = guard.token().expect("an engine mints what it was asked for");
        Self { guard, token }
    }
}

derefs_to!(FencedGuard, guard: Guard);
