//! The counting semaphore.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Shared;
use crate::counter::{Counter, checked};
use crate::engine::{Adjust, Resource};
use crate::error::{ChangeError, InvalidRequestError, QueryError};
use crate::initial_permits::InitialPermits;
use crate::lease;
use crate::operation::Operation;
use crate::permits::{AcquirePermits, TryAcquirePermits};

/// A counting semaphore by name: any client can acquire and release its permits. Redisson's `RSemaphore`.
///
/// Never more permits are acquired than exist. Waiters of one process are served in FIFO order, so a request for many
/// permits is not starved by later requests for few.
///
/// **Permits of a holder that dies are not released**, as in Redisson: the server stores only a number.
/// Prefer [`LeasedSemaphore`](crate::LeasedSemaphore), whose permits have a lease, unless other programs on the server use
/// this kind.
///
/// Permits can be held by a guard, [`SemaphorePermits`](crate::SemaphorePermits), which releases them when dropped; or,
/// after [`forget`](crate::SemaphorePermits::forget), as a bare number that any client can
/// [`release`](Semaphore::release).
///
/// | Redisson | here |
/// |---|---|
/// | `acquire(n)` | `acquire(n)`, and `.forget()` to hold a bare number |
/// | `tryAcquire(n)`, `tryAcquire(n, wait)` | `try_acquire(n)`, `acquire(n).wait(w)` |
/// | `release(n)`, `releaseIfExists(n)` | `permits.release()`, `release(n)`, `release_if_exists(n)` |
/// | `trySetPermits(n)`, `trySetPermits(n, ttl)` | `try_set_permits(n)`, `try_set_permits(n).ttl(t)` |
/// | `addPermits`, `drainPermits`, `availablePermits` | `add_permits`, `drain`, `available` |
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let downloads = client.semaphore("downloads");
/// downloads.try_set_permits(3).await?;
///
/// let permit = downloads.acquire(1).await?;
/// assert_eq!(downloads.available().await?, 2);
/// permit.release().await?; // or drop it
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RSemaphore")]
#[derive(Debug, Clone)]
pub struct Semaphore {
    counter: Counter,
    initial: Option<InitialPermits>,
}

impl Semaphore {
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
    /// let downloads = client.semaphore("downloads").with_permits(3);
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
    pub fn acquire(&self, permits: u32) -> AcquirePermits {
        AcquirePermits::new(self.counter.clone(), permits, self.initial.clone())
    }

    /// Tries once to acquire this number of permits: `None` when fewer are free, or earlier waiters are queued.
    #[doc(alias = "tryAcquire")]
    pub fn try_acquire(&self, permits: u32) -> TryAcquirePermits {
        TryAcquirePermits::new(self.acquire(permits))
    }

    /// Creates the semaphore with this number of permits; false if it exists already. See [`TrySetPermits`].
    #[doc(alias = "trySetPermits")]
    pub fn try_set_permits(&self, permits: u32) -> TrySetPermits {
        TrySetPermits { counter: self.counter.clone(), permits, ttl: None }
    }

    /// Adds `permits` to the number of free permits, and returns the new number.
    ///
    /// It can remove more permits than are free: the number is then negative, until enough are released. It removes a
    /// [`ttl`](TrySetPermits::ttl) of the semaphore.
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
    #[doc(alias = "addPermits")]
    pub fn add_permits(&self, permits: i32) -> Operation<Result<i64, ChangeError>> {
        self.counter.change(Ok(Adjust::Add(permits)), |free| free)
    }

    /// Removes all free permits, and returns their number.
    ///
    /// It removes a [`ttl`](TrySetPermits::ttl) of the semaphore, too.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    #[doc(alias = "drainPermits")]
    pub fn drain(&self) -> Operation<Result<i64, ChangeError>> {
        self.counter.change(Ok(Adjust::Drain), |free| free)
    }

    /// Releases this number of permits without a guard, or adds new ones: it is not checked whether they were acquired.
    ///
    /// It creates the semaphore if there is none.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    pub fn release(&self, permits: u32) -> Operation<Result<(), ChangeError>> {
        let given = self.give(permits, true);
        Operation::new(async move { given.await.map(drop) })
    }

    /// The same if the semaphore exists; false if there is none.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    #[doc(alias = "releaseIfExists")]
    pub fn release_if_exists(&self, permits: u32) -> Operation<Result<bool, ChangeError>> {
        self.give(permits, false)
    }

    fn give(&self, permits: u32, create: bool) -> Operation<Result<bool, ChangeError>> {
        if permits == 0 {
            return Operation::new(async { Ok(true) });
        }
        let adjust = checked(permits).map(|count| Adjust::Give { count, create });
        self.counter.change(adjust, |done| done != 0)
    }

    /// How many permits are free: zero if there is no semaphore, and negative if more were removed than were free.
    ///
    /// # Errors
    ///
    /// [`QueryError::Server`] if there was no usable reply; [`QueryError::Invalid`] if the name is invalid.
    ///
    /// # Cancel safety
    ///
    /// A query changes nothing.
    #[doc(alias = "availablePermits")]
    pub fn available(&self) -> Operation<Result<i64, QueryError>> {
        self.counter.query(Adjust::Count, |free| free)
    }

    /// Removes the semaphore; false if there was none. Permits that are still held are not released any more.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    pub fn delete(&self) -> Operation<Result<bool, ChangeError>> {
        self.counter.change(Ok(Adjust::Delete), |existed| existed != 0)
    }
}

/// The creation of a semaphore: options first, then `.await` or [`block`](TrySetPermits::block).
///
/// # Errors
///
/// As for [`Semaphore::add_permits`].
///
/// # Cancel safety
///
/// Once begun, it is executed even if the future is dropped.
#[derive(Debug, Clone)]
#[must_use = "nothing is set until this is awaited or `.block()` is called"]
pub struct TrySetPermits {
    counter: Counter,
    permits: u32,
    ttl: Option<Duration>,
}

impl TrySetPermits {
    /// Lets the semaphore expire after this long, even if permits are held: they are not released to a later semaphore.
    pub fn ttl(mut self, length: Duration) -> Self {
        self.ttl = Some(length);
        self
    }

    /// Sets the permits from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`TrySetPermits`].
    #[track_caller]
    pub fn block(self) -> Result<bool, ChangeError> {
        self.into_future().block()
    }
}

impl IntoFuture for TrySetPermits {
    type Output = Result<bool, ChangeError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let ttl = self.ttl.map(|length| lease::checked("ttl", length)).transpose();
        let adjust = checked(self.permits).and_then(|count| ttl.map(|ttl| Adjust::TrySet { count, ttl }));
        self.counter.change(adjust, |set| set != 0)
    }
}
