//! The read-write lock and its guards.

use crate::acquire::{Acquire, Granted, HandleOptions, TryAcquire};
use crate::delegate::delegates_to_lock;
use crate::deref::derefs_to;
use crate::engine::Kind;
use crate::error::{AcquireError, Classified as _, ReleaseError};
use crate::guard::{Guard, Released};
use crate::lock::Lock;
use crate::loss::Loss;
use crate::operation::Operation;

/// A lock with many readers or one writer: Redisson's `RReadWriteLock`.
///
/// [`read`](RwLock::read) and [`write`](RwLock::write) are its halves, and each is acquired like a plain lock. Every
/// reader has its own lease; the expiry of one reader does not affect the others. When a writer releases the lock, all
/// waiting readers acquire it together.
///
/// - Two acquires in one task are two owners: a read and a write, or two writes, deadlock. A task that needs both
///   acquires the write lock, and reads under it with [`as_owner`](Acquire::as_owner) or after
///   [`downgrade`](WriteGuard::downgrade).
/// - An owner that holds the write lock may also acquire the read lock. An owner with only the read lock cannot wait for
///   the write lock, because it would wait for itself: the acquire fails at once with
///   [`InvalidRequestError::OnlyReads`](crate::InvalidRequestError::OnlyReads). See [`ReadGuard::try_upgrade`].
/// - As with Redisson, new readers are admitted while other readers hold the lock, so a writer may wait for long. See
///   [`prefer_writers`](RwLock::prefer_writers).
/// - A hold that is re-entered keeps the longer one of both leases.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let prices = client.rw_lock("prices");
///
/// let one = prices.read().acquire().await?;
/// let two = prices.read().acquire().await?; // together
/// assert!(prices.write().try_acquire().await?.is_none());
/// drop((one, two));
///
/// let write = prices.write().acquire().await?;
/// // … change the prices …
/// let read = write.downgrade().await?; // no other owner has written in between
/// # drop(read);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RReadWriteLock")]
#[derive(Debug, Clone)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    pub(crate) fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// The same lock, in a handle whose waiting writers block its new readers.
    ///
    /// The option applies only among handles that set it: a waiting writer without it does not block readers, and readers
    /// without it, and those of Redisson, are not blocked. Current readers keep the lock and may re-enter, and so may the
    /// writer. A writer that dies while it waits blocks readers for at most two seconds.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # use std::time::Duration;
    /// let lock = client.rw_lock("prices").prefer_writers();
    /// let reader = lock.read().acquire().await?;
    /// let writer = tokio::spawn(lock.write().acquire().into_future());
    /// # tokio::time::sleep(Duration::from_millis(20)).await;
    /// assert!(lock.read().try_acquire().await?.is_none()); // the writer is next
    /// reader.release().await?;
    /// # drop(writer.await??);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn prefer_writers(self) -> Self {
        let options = HandleOptions { prefer_writers: true, ..HandleOptions::DEFAULT };
        Self { read: self.read.with_options(options.clone()), write: self.write.with_options(options) }
    }

    /// The shared half: many readers at once.
    #[doc(alias = "readLock")]
    #[must_use]
    pub fn read(&self) -> ReadLock {
        ReadLock { lock: self.read.clone() }
    }

    /// The exclusive half: one writer.
    #[doc(alias = "writeLock")]
    #[must_use]
    pub fn write(&self) -> WriteLock {
        WriteLock { lock: self.write.clone() }
    }
}

/// The read half of a [`RwLock`].
///
/// [`holder`](ReadLock::holder) returns one of the readers; [`is_held_by`](ReadLock::is_held_by) and
/// [`hold_count`](ReadLock::hold_count) cover all of them. [`ttl`](ReadLock::ttl) is that of the reader with the most time
/// left. [`force_unlock`](ReadLock::force_unlock) frees the lock if it has only readers, and does nothing to a writer.
#[derive(Debug, Clone)]
pub struct ReadLock {
    lock: Lock,
}

impl ReadLock {
    /// Waits until there is no other writer. See [`Acquire`] for the options.
    #[doc(alias = "lock")]
    #[doc(alias = "tryLock")]
    pub fn acquire(&self) -> Acquire<ReadGuard> {
        self.lock.acquire_as()
    }

    /// Tries once: `None` when there is another writer. See [`TryAcquire`] for the options.
    #[doc(alias = "tryLock")]
    pub fn try_acquire(&self) -> TryAcquire<ReadGuard> {
        TryAcquire::new(self.acquire())
    }
}

delegates_to_lock!(ReadLock);

impl From<ReadLock> for Lock {
    /// The same half, for [`MultiLock::new`](crate::MultiLock::new). Its guards are not upgraded.
    fn from(read: ReadLock) -> Self {
        read.lock
    }
}

/// The write half of a [`RwLock`].
///
/// [`force_unlock`](WriteLock::force_unlock) frees the lock if it has a writer, and does nothing to other readers.
#[derive(Debug, Clone)]
pub struct WriteLock {
    lock: Lock,
}

impl WriteLock {
    /// Waits until there is no other reader or writer. See [`Acquire`] for the options.
    #[doc(alias = "lock")]
    #[doc(alias = "tryLock")]
    pub fn acquire(&self) -> Acquire<WriteGuard> {
        self.lock.acquire_as()
    }

    /// Tries once: `None` when there is another reader or writer. See [`TryAcquire`] for the options.
    #[doc(alias = "tryLock")]
    pub fn try_acquire(&self) -> TryAcquire<WriteGuard> {
        TryAcquire::new(self.acquire())
    }
}

delegates_to_lock!(WriteLock);

impl From<WriteLock> for Lock {
    /// The same half, for [`MultiLock::new`](crate::MultiLock::new). Its guards are not downgraded.
    fn from(write: WriteLock) -> Self {
        write.lock
    }
}

/// A held read lock. It dereferences to [`Guard`], which has all other methods.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard {
    guard: Guard,
}

impl ReadGuard {
    /// Acquires the write lock, too, if there is no other reader. It never waits.
    ///
    /// When the write guard ends, this guard still holds the read lock, and no other owner has written in between. A lease or
    /// `max_hold` of this guard ends the write lock, too. The write lock has no fencing token.
    ///
    /// # Errors
    ///
    /// [`AcquireError::OtherReaders`] if there are other readers: two readers that wait to upgrade would deadlock.
    /// [`AcquireError::Lost`] if this guard is lost; a failure of the server; [`AcquireError::Invalid`] if the client is
    /// shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the read lock as it was.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let lock = client.rw_lock("prices");
    /// let read = lock.read().acquire().await?;
    /// let write = read.try_upgrade().await?; // there is no other reader
    /// write.release().await?;
    /// assert!(read.is_held());
    ///
    /// let other = lock.read().acquire().await?;
    /// assert!(read.try_upgrade().await.is_err());
    /// # drop(other);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_upgrade(&self) -> Operation<Result<WriteGuard, AcquireError>> {
        let (upgrade, subject) = (self.guard.enter_beside(Kind::Write, true), self.guard.subject());
        Operation::new(async move {
            match upgrade.await.map_err(|error| error.about(&subject))? {
                Ok(guard) => Ok(WriteGuard { guard }),
                Err(reader) => Err(AcquireError::OtherReaders { reader: reader.map(Into::into), subject }),
            }
        })
    }

    /// Re-enters the read lock. See [`Guard::reenter`].
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

impl Granted for ReadGuard {
    fn from_guard(guard: Guard) -> Self {
        Self { guard }
    }
}

derefs_to!(ReadGuard, guard: Guard);

/// A held write lock. It dereferences to [`Guard`], which has all other methods.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard {
    guard: Guard,
}

impl WriteGuard {
    /// Turns the write lock into a read lock of the same owner: other readers are admitted, and no writer in between.
    ///
    /// It never waits. The read lock ends when the write lock would have. If the write lock was entered several times,
    /// other readers are admitted when the last of its guards is gone.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Lost`] if the write lock is lost, or a failure of the server. The write lock is released then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock.
    pub fn downgrade(self) -> Operation<Result<ReadGuard, AcquireError>> {
        Operation::new(async move {
            // The writer may also read. It holds both for a moment, so that there is no gap.
            let subject = self.guard.subject();
            let about = |error: AcquireError| error.about(&subject);
            let reads = self.guard.enter_beside(Kind::Read, false).await.map_err(about)?;
            let guard = reads.map_err(|_| about(Loss::Gone.into()))?;
            match self.guard.release().await {
                // A release without a reply continues in the background.
                Ok(_) | Err(ReleaseError::Unknown { .. }) => Ok(ReadGuard { guard }),
                Err(ReleaseError::NotHeld { loss, .. }) => Err(about(loss.into())),
                Err(ReleaseError::NotOwner { .. }) => Err(about(Loss::Gone.into())),
                Err(ReleaseError::Invalid { cause, .. }) => Err(about(cause.into())),
            }
        })
    }

    /// Re-enters the write lock. See [`Guard::reenter`].
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
    /// If the same owner also holds the read lock, it keeps it, and other readers are admitted.
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`].
    pub fn release(self) -> Operation<Result<Released, ReleaseError>> {
        self.guard.release()
    }
}

impl Granted for WriteGuard {
    fn from_guard(guard: Guard) -> Self {
        Self { guard }
    }
}

derefs_to!(WriteGuard, guard: Guard);
