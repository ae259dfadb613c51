//! The semaphore whose permits have a lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Shared;
use crate::counter::{Counter, checked};
use crate::deref::derefs_to;
use crate::engine::{Adjust, Resource};
use crate::error::{ChangeError, InvalidRequestError, QueryError, ReleaseError};
use crate::guard::Guard;
use crate::initial_permits::InitialPermits;
use crate::lease::{self, Lease, PERMANENT};
use crate::operation::Operation;
use crate::permit_id::PermitId;
use crate::permits::{AcquirePermits, Granted, TryAcquirePermits};

/// A semaphore by name whose permits have a lease. Redisson's `RPermitExpirableSemaphore`.
///
/// Prefer this semaphore: the permits of a holder that died become free when their lease is over, exactly once. Waiters
/// of one process are served in FIFO order, so a request for many permits is not starved by later requests for few.
///
/// Permits are held by a guard, [`LeasedPermits`], which renews them while it lives or uses the given
/// [`lease`](AcquirePermits::lease), and reports their loss. Each permit has an id, by which any client can release it or
/// change its lease. Do not use a [`Semaphore`](crate::Semaphore) of the same name: both use the same count, and only
/// this one has leases.
///
/// | Redisson | here |
/// |---|---|
/// | `acquire(n, lease)` | `acquire(n).lease(l)` |
/// | `acquire(n)` | `acquire(n).permanent()` for bare ids; `acquire(n)` renews while the guard lives |
/// | `tryAcquire(n, wait, lease)` | `acquire(n).wait(w).lease(l)` |
/// | `release(ids)`, `tryRelease(ids)` | `permits.release()`, `release(ids)`, `try_release(ids)` |
/// | `updateLeaseTime`, `getLeaseTime` | `update_lease`, `make_permanent`, `lease_of` |
/// | `trySetPermits`, `setPermits`, `addPermits` | `try_set_permits`, `set_permits`, `add_permits` |
/// | `availablePermits`, `acquiredPermits`, `getPermits` | `available`, `acquired`, `total` |
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let licences = client.leased_semaphore("licences");
/// licences.try_set_permits(5).await?;
///
/// let two = licences.acquire(2).await?;
/// let done = two.run(async { "rendered" }).await?; // stops the work if the permits are lost
/// two.release().await?; // or drop them
/// # assert_eq!((done, licences.available().await?), ("rendered", 5));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RPermitExpirableSemaphore")]
#[derive(Debug, Clone)]
pub struct LeasedSemaphore {
    counter: Counter,
    initial: Option<InitialPermits>,
}

impl LeasedSemaphore {
    pub(crate) fn new(shared: Arc<Shared>, resource: Result<Resource, InvalidRequestError>) -> Self {
        Self { counter: Counter { shared, resource }, initial: None }
    }

    /// The same semaphore, in a handle that sets this number of permits before its first acquire, if none are set.
    ///
    /// A semaphore starts without permits, as in Redisson, and an acquire waits until they are set. With this no
    /// program has to set them before. Permits that are set already stay as they are, whatever their number. The handle and its
    /// clones set them once, and again after a wait has failed with
    /// [`AcquireError::NoPermitsSet`](crate::AcquireError::NoPermitsSet): a single attempt does not find that they are gone, and an
    /// acquire without a limit waits. They are set even if the first acquire is dropped. In an outage the first attempt of such a
    /// handle takes half a second.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let downloads = client.leased_semaphore("downloads").with_permits(3);
    /// let permit = downloads.acquire(1).await?;
    /// assert_eq!(downloads.available().await?, 2);
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_permits(mut self, permits: u32) -> Self {
        self.initial = Some(InitialPermits::new(permits));
        self
    }

    /// Waits for this number of permits, all at once. See [`AcquirePermits`] for the options.
    #[doc(alias = "tryAcquire")]
    pub fn acquire(&self, permits: u32) -> AcquirePermits<LeasedPermits> {
        AcquirePermits::new(self.counter.clone(), permits, self.initial.clone())
    }

    /// Tries once to acquire this number of permits: `None` when fewer are free, or earlier waiters are queued.
    #[doc(alias = "tryAcquire")]
    pub fn try_acquire(&self, permits: u32) -> TryAcquirePermits<LeasedPermits> {
        TryAcquirePermits::new(self.acquire(permits))
    }

    /// Creates the semaphore with this number of permits; false if it exists already.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Unknown`] if there was no reply for the client's
    /// [`outage_limit`](crate::ConnectOptions::outage_limit); [`ChangeError::Server`] or [`ChangeError::Invalid`] if nothing
    /// was changed.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is executed even if the future is dropped, and never twice. The same holds for every change
    /// below.
    #[doc(alias = "trySetPermits")]
    pub fn try_set_permits(&self, permits: u32) -> Operation<Result<bool, ChangeError>> {
        let adjust = checked(permits).map(|count| Adjust::TrySet { count, ttl: None });
        self.counter.change(adjust, |set| set != 0)
    }

    /// Sets the total number of permits, free and acquired ones.
    ///
    /// If more are acquired, the number of free ones is negative until enough are released.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    #[doc(alias = "setPermits")]
    pub fn set_permits(&self, permits: u32) -> Operation<Result<(), ChangeError>> {
        self.counter.change(checked(permits).map(Adjust::Set), drop)
    }

    /// Adds `permits` to the number of free permits, and returns the new number. It may become negative.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    #[doc(alias = "addPermits")]
    pub fn add_permits(&self, permits: i32) -> Operation<Result<i64, ChangeError>> {
        self.counter.change(Ok(Adjust::Add(permits)), |free| free)
    }

    /// How many permits are free, including those whose lease is over.
    ///
    /// # Errors
    ///
    /// [`QueryError::Server`] if there was no usable reply; [`QueryError::Invalid`] if the name is invalid. The same holds
    /// for every query below.
    ///
    /// # Cancel safety
    ///
    /// A query changes nothing.
    #[doc(alias = "availablePermits")]
    pub fn available(&self) -> Operation<Result<i64, QueryError>> {
        self.counter.query(Adjust::Count, |free| free)
    }

    /// How many permits are acquired.
    ///
    /// # Errors
    ///
    /// As for [`available`](LeasedSemaphore::available).
    #[doc(alias = "acquiredPermits")]
    pub fn acquired(&self) -> Operation<Result<i64, QueryError>> {
        self.counter.query(Adjust::Taken, |taken| taken)
    }

    /// How many permits there are, free and acquired ones; zero if there is no such semaphore.
    ///
    /// # Errors
    ///
    /// As for [`available`](LeasedSemaphore::available).
    #[doc(alias = "getPermits")]
    pub fn total(&self) -> Operation<Result<i64, QueryError>> {
        self.counter.query(Adjust::Total, |total| total)
    }

    /// Releases permits by their ids, whichever client acquired them: all of them, or none.
    ///
    /// A guard that still holds them is lost.
    ///
    /// # Errors
    ///
    /// [`ChangeError::NotAcquired`] if one of them is not acquired, or its lease is over: nothing was released. Otherwise as
    /// for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    pub fn release(&self, ids: impl IntoIterator<Item = PermitId>) -> Operation<Result<(), ChangeError>> {
        let (released, Counter { shared, resource }) = (self.try_release(ids), self.counter.clone());
        Operation::new(async move {
            if released.await? {
                return Ok(());
            }
            Err(ChangeError::NotAcquired { subject: shared.subject_of(&resource) })
        })
    }

    /// The same; false if one of them is not acquired, or its lease is over.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    #[doc(alias = "tryRelease")]
    pub fn try_release(
        &self,
        ids: impl IntoIterator<Item = PermitId>,
    ) -> Operation<Result<bool, ChangeError>> {
        let ids: BTreeSet<_> = ids.into_iter().collect();
        if ids.is_empty() {
            return Operation::new(async { Ok(true) });
        }
        self.counter.change(Ok(Adjust::GiveIds(ids.into_iter().collect())), |given| given != 0)
    }

    /// Sets the lease of a permit to end this long from now; false if it is not acquired, or its lease is over.
    ///
    /// For permits held by id: a guard has [`extend`](Guard::extend), and detects at its next check if the lease became
    /// shorter than it expects.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    #[doc(alias = "updateLeaseTime")]
    pub fn update_lease(&self, id: PermitId, length: Duration) -> Operation<Result<bool, ChangeError>> {
        let length = lease::checked("lease", length);
        self.counter.change(length.map(|length| Adjust::SetLease(id, Some(length))), |done| done != 0)
    }

    /// Removes the lease of a permit, so that it stays acquired until it is released.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    #[doc(alias = "updateLeaseTime")]
    pub fn make_permanent(&self, id: PermitId) -> Operation<Result<bool, ChangeError>> {
        self.counter.change(Ok(Adjust::SetLease(id, None)), |done| done != 0)
    }

    /// How long a permit stays acquired if it is not renewed or released: [`Duration::MAX`] without a lease, `None` if it is
    /// not acquired.
    ///
    /// # Errors
    ///
    /// As for [`available`](LeasedSemaphore::available).
    #[doc(alias = "getLeaseTime")]
    pub fn lease_of(&self, id: PermitId) -> Operation<Result<Option<Duration>, QueryError>> {
        self.counter.query(Adjust::LeaseOf(id), |left| match left {
            -1 => Some(Duration::MAX),
            left => u64::try_from(left).ok().map(Duration::from_millis),
        })
    }

    /// Removes the semaphore; false if there was none. Permits that are still held are lost.
    ///
    /// # Errors
    ///
    /// As for [`try_set_permits`](LeasedSemaphore::try_set_permits).
    pub fn delete(&self) -> Operation<Result<bool, ChangeError>> {
        self.counter.change(Ok(Adjust::Delete), |existed| existed != 0)
    }
}

/// Permits of a [`LeasedSemaphore`], released when dropped. It dereferences to [`Guard`], which has the methods for the
/// lease.
#[derive(Debug)]
#[must_use = "the permits are given back when this is dropped"]
pub struct LeasedPermits {
    guard: Guard,
}

impl LeasedPermits {
    /// The number of permits.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.guard.amount()
    }

    /// The ids of the permits.
    #[must_use]
    pub fn ids(&self) -> Vec<PermitId> {
        self.guard.permit_ids()
    }

    /// Releases the permits and returns the result.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] with the cause if one of them was lost before. [`ReleaseError::Unknown`] if the server
    /// gave no reply: the release continues in the background.
    ///
    /// # Cancel safety
    ///
    /// The permits are released even if the future is dropped, before or after its first poll, and never twice.
    pub fn release(self) -> Operation<Result<(), ReleaseError>> {
        Operation::new(async move { self.guard.release().await.map(drop) })
    }

    /// Keeps the permits acquired without a guard, until their lease is over or they are released by their ids.
    ///
    /// They are not renewed from now on. To keep them longer, see [`LeasedSemaphore::make_permanent`].
    #[expect(clippy::must_use_candidate, reason = "the effect is the point")]
    pub fn forget(self) -> Vec<PermitId> {
        let ids = self.ids();
        self.guard.let_go();
        ids
    }
}

derefs_to!(LeasedPermits, guard: Guard);

impl AcquirePermits<LeasedPermits> {
    /// Holds the permits for this long and no longer, however long the work takes: no renewal.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = Some(length);
        self
    }

    /// Leaves the permits acquired for at least this long, counted from the grant, even if they are released or dropped before.
    /// See [`Acquire::min_hold`](crate::Acquire::min_hold).
    pub fn min_hold(mut self, length: Duration) -> Self {
        self.min_hold = Some(length);
        self
    }

    /// Acquires the permits without a lease and without a guard, as ids: they must be released by id.
    pub fn permanent(self) -> AcquirePermits<Vec<PermitId>> {
        self.giving()
    }
}

impl TryAcquirePermits<LeasedPermits> {
    /// Holds the permits for this long and no longer, however long the work takes: no renewal.
    pub fn lease(self, length: Duration) -> Self {
        Self(self.0.lease(length))
    }

    /// Leaves the permits acquired for at least this long. See [`Acquire::min_hold`](crate::Acquire::min_hold).
    pub fn min_hold(self, length: Duration) -> Self {
        Self(self.0.min_hold(length))
    }

    /// Acquires the permits without a lease and without a guard, as ids: they must be released by id.
    pub fn permanent(self) -> TryAcquirePermits<Vec<PermitId>> {
        TryAcquirePermits(self.0.permanent())
    }
}

impl Granted for LeasedPermits {
    fn lease(given: Option<Duration>, watchdog: Duration) -> Result<Lease, InvalidRequestError> {
        match given {
            Some(length) => lease::checked("lease", length).map(Lease::Fixed),
            None => Ok(Lease::Kept(watchdog)),
        }
    }

    fn none() -> Result<Self, InvalidRequestError> {
        Err(InvalidRequestError::NoPermits)
    }

    fn some(guard: Guard) -> Self {
        Self { guard }
    }
}

impl Granted for Vec<PermitId> {
    fn lease(_given: Option<Duration>, _watchdog: Duration) -> Result<Lease, InvalidRequestError> {
        Ok(Lease::Fixed(PERMANENT))
    }

    fn none() -> Result<Self, InvalidRequestError> {
        Ok(Self::new())
    }

    fn some(guard: Guard) -> Self {
        LeasedPermits { guard }.forget()
    }
}
