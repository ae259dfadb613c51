//! The read-write lock and its guards.

use crate::acquire::{Acquire, Granted, TryAcquire, Way};
use crate::deref::derefs_to;
use crate::engine::Kind;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::{Guard, Released};
use crate::lock::Lock;
use crate::loss::Loss;
use crate::operation::Operation;

/// A lock that many may read or one may write: Redisson's `RReadWriteLock`.
///
/// [`read`](RwLock::read) and [`write`](RwLock::write) are its halves, and each is taken like a plain lock. Every reader
/// has a lease of its own; one that dies frees nothing but itself. When a writer leaves, all readers that wait come in
/// together.
///
/// - Two acquires in one task are two owners: a read and a write, or two writes, wait for each other for ever. Whoever
///   needs both takes the write lock, and reads under it with [`as_owner`](Acquire::as_owner) or after
///   [`downgrade`](WriteGuard::downgrade).
/// - An owner that writes may read, too. One that only reads cannot wait for the write lock, because it would wait for
///   itself: that is [`Invalid::OnlyReads`](crate::Invalid::OnlyReads), at once. See [`ReadGuard::try_upgrade`].
/// - As with Redisson, readers come in as long as others read, so that a writer may wait for long. See
///   [`prefer_writers`](RwLock::prefer_writers).
/// - A hold that is entered again keeps the longer one of both leases.
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
/// let read = write.downgrade().await?; // nobody else has written in between
/// # drop(read);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    pub(crate) fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// The same lock, in a handle whose waiting writers keep its new readers out.
    ///
    /// Only handles with this option take part: a writer without it bars nobody, and readers without it, and those of
    /// Redisson, come in past it. Whoever reads already reads on and may enter again, and so may the writer. A writer
    /// that dies while it waits bars readers for at most two seconds.
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
        let way = Way { prefer_writers: true, ..Way::USUAL };
        Self { read: self.read.with_way(way.clone()), write: self.write.with_way(way) }
    }

    /// The half that many can have at once.
    #[must_use]
    pub fn read(&self) -> ReadLock {
        ReadLock { lock: self.read.clone() }
    }

    /// The half that one has alone.
    #[must_use]
    pub fn write(&self) -> WriteLock {
        WriteLock { lock: self.write.clone() }
    }
}

/// The read half of a [`RwLock`]. Everything else is that of [`Lock`], to which this dereferences.
///
/// Of the many who may hold it, [`holder`](Lock::holder) tells one; [`is_held_by`](Lock::is_held_by) and
/// [`hold_count`](Lock::hold_count) know all. [`remain_time_to_live`](Lock::remain_time_to_live) is that of the one who
/// has the most left. [`force_unlock`](Lock::force_unlock) frees what is read, and leaves a writer alone.
#[derive(Debug, Clone)]
pub struct ReadLock {
    lock: Lock,
}

impl ReadLock {
    /// Waits until nobody else writes. See [`Acquire`] for the options.
    pub fn acquire(&self) -> Acquire<ReadGuard> {
        self.lock.acquire_as()
    }

    /// Tries once: `None` when somebody else writes. See [`TryAcquire`] for the options.
    pub fn try_acquire(&self) -> TryAcquire<ReadGuard> {
        TryAcquire::new(self.acquire())
    }
}

derefs_to!(ReadLock, lock: Lock);

/// The write half of a [`RwLock`]. Everything else is that of [`Lock`], to which this dereferences.
///
/// [`force_unlock`](Lock::force_unlock) frees what is written, and leaves readers alone.
#[derive(Debug, Clone)]
pub struct WriteLock {
    lock: Lock,
}

impl WriteLock {
    /// Waits until nobody else reads or writes. See [`Acquire`] for the options.
    pub fn acquire(&self) -> Acquire<WriteGuard> {
        self.lock.acquire_as()
    }

    /// Tries once: `None` when somebody else reads or writes. See [`TryAcquire`] for the options.
    pub fn try_acquire(&self) -> TryAcquire<WriteGuard> {
        TryAcquire::new(self.acquire())
    }
}

derefs_to!(WriteLock, lock: Lock);

/// A held read lock. Everything else is that of [`Guard`], to which this dereferences.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard {
    guard: Guard,
}

impl ReadGuard {
    /// Takes the write lock, too, if nobody else reads. It never waits.
    ///
    /// When the write guard goes, this one still reads, and nobody has written in between. A lease or `max_hold` of this
    /// one ends the write lock, too. It has no fencing token.
    ///
    /// # Errors
    ///
    /// [`AcquireError::OtherReaders`] if there are others: two who waited to upgrade would wait for each other for ever.
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
    /// let write = read.try_upgrade().await?; // nobody else reads
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
        let upgrade = self.guard.enter_beside(Kind::Write, true);
        Operation::new(async move {
            match upgrade.await? {
                Ok(guard) => Ok(WriteGuard { guard }),
                Err(reader) => Err(AcquireError::OtherReaders { reader: reader.map(Into::into) }),
            }
        })
    }

    /// Enters the read lock once more. See [`Guard::reenter`].
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

impl Granted for ReadGuard {
    fn from_guard(guard: Guard) -> Self {
        Self { guard }
    }
}

derefs_to!(ReadGuard, guard: Guard);

/// A held write lock. Everything else is that of [`Guard`], to which this dereferences.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard {
    guard: Guard,
}

impl WriteGuard {
    /// Turns the write lock into a read lock of the same owner: other readers come in, and no writer gets in between.
    ///
    /// It never waits. The read lock ends when the write lock would have. If the write lock was entered several times,
    /// others come in when the last of its guards is gone.
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
            // An owner that writes may read. It does both for a moment, so that there is no gap.
            let reads = self.guard.enter_beside(Kind::Read, false).await?;
            let guard = reads.map_err(|_| Loss::Gone)?;
            match self.guard.release().await {
                // What is not known goes on in the background.
                Ok(_) | Err(ReleaseError::Unknown(_)) => Ok(ReadGuard { guard }),
                Err(ReleaseError::NotHeld(loss)) => Err(loss.into()),
                Err(ReleaseError::NotOwner(_)) => Err(Loss::Gone.into()),
                Err(ReleaseError::Invalid(invalid)) => Err(invalid.into()),
            }
        })
    }

    /// Enters the write lock once more. See [`Guard::reenter`].
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
    /// If the same owner also reads, it still does, and other readers come in.
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
