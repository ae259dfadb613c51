//! The counting semaphore.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Shared;
use crate::counter::{Counter, checked};
use crate::engine::{Adjust, Target};
use crate::error::{ChangeError, Invalid, QueryError};
use crate::lease;
use crate::operation::Operation;
use crate::permits::{AcquirePermits, TryAcquirePermits};

/// A number of permits by name, of which anybody can take and give back some. Redisson's `RSemaphore`.
///
/// Never more permits are out than there are. Waiters of one process are served in the order in which they came, so one
/// who wants many is not starved by those behind it who want few.
///
/// **Permits of a holder that dies are not given back**, as in Redisson: nothing but a number stands on the server.
/// Prefer [`LeasedSemaphore`](crate::LeasedSemaphore), whose permits have a lease, unless others on the server use this
/// kind.
///
/// Permits can be held as a guard, [`Permits`](crate::Permits), which gives them back when dropped; or, after
/// [`forget`](crate::Permits::forget), as a bare number that anybody gives back by [`release`](Semaphore::release).
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
#[derive(Debug, Clone)]
pub struct Semaphore {
    counter: Counter,
}

impl Semaphore {
    pub(crate) fn new(shared: Arc<Shared>, target: Result<Target, Invalid>) -> Self {
        Self { counter: Counter { shared, target } }
    }

    /// Waits for so many permits, all at once. See [`AcquirePermits`] for the options.
    pub fn acquire(&self, permits: u32) -> AcquirePermits {
        AcquirePermits::new(self.counter.clone(), permits)
    }

    /// Tries once to take so many permits: `None` when there are fewer, or others are before us.
    pub fn try_acquire(&self, permits: u32) -> TryAcquirePermits {
        TryAcquirePermits::new(self.acquire(permits))
    }

    /// Begins with so many permits; false if there is such a semaphore already. See [`TrySetPermits`].
    pub fn try_set_permits(&self, permits: u32) -> TrySetPermits {
        TrySetPermits { counter: self.counter.clone(), permits, ttl: None }
    }

    /// Changes the number of free permits, and returns what it is then.
    ///
    /// It can take away more than are free: the number is less than zero then, until enough were given back. A
    /// [`ttl`](TrySetPermits::ttl) that the semaphore had is over.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Unknown`] if there was no answer for the client's
    /// [`outage_limit`](crate::Connect::outage_limit); [`ChangeError::Failure`] or [`ChangeError::Invalid`] if nothing
    /// was changed.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried out even if the future is dropped, and never twice. The same holds for every change
    /// below.
    pub fn add_permits(&self, permits: i32) -> Operation<Result<i64, ChangeError>> {
        self.counter.change(Ok(Adjust::Add(permits)), |free| free)
    }

    /// Takes all free permits away, and returns how many there were.
    ///
    /// A [`ttl`](TrySetPermits::ttl) that the semaphore had is over.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    pub fn drain(&self) -> Operation<Result<i64, ChangeError>> {
        self.counter.change(Ok(Adjust::Drain), |free| free)
    }

    /// Gives back so many permits that nobody has a guard for, or adds them: nobody checks who took them.
    ///
    /// Where there is no semaphore, there is one then.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    pub fn release(&self, permits: u32) -> Operation<Result<(), ChangeError>> {
        let given = self.give(permits, true);
        Operation::new(async move { given.await.map(drop) })
    }

    /// The same where there is such a semaphore; false where there is none.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
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

    /// How many permits are free: zero where there is no semaphore, and less if more were taken away than were free.
    ///
    /// # Errors
    ///
    /// [`QueryError::Failure`] if there was no answer; [`QueryError::Invalid`] for a name that cannot be.
    ///
    /// # Cancel safety
    ///
    /// A question changes nothing.
    pub fn available(&self) -> Operation<Result<i64, QueryError>> {
        self.counter.ask(Adjust::Count, |free| free)
    }

    /// Removes the semaphore; false if there was none. Permits that are out are not given back any more.
    ///
    /// # Errors
    ///
    /// As for [`add_permits`](Semaphore::add_permits).
    pub fn delete(&self) -> Operation<Result<bool, ChangeError>> {
        self.counter.change(Ok(Adjust::Delete), |existed| existed != 0)
    }
}

/// The beginning of a semaphore: options first, then `.await` or [`block`](TrySetPermits::block).
///
/// # Errors
///
/// As for [`Semaphore::add_permits`].
///
/// # Cancel safety
///
/// Once begun, it is carried out even if the future is dropped.
#[derive(Debug, Clone)]
#[must_use = "nothing is set until this is awaited or `.block()` is called"]
pub struct TrySetPermits {
    counter: Counter,
    permits: u32,
    ttl: Option<Duration>,
}

impl TrySetPermits {
    /// Lets the semaphore be forgotten after this long, whoever has permits of it: they are given back to no other one.
    pub fn ttl(mut self, length: Duration) -> Self {
        self.ttl = Some(length);
        self
    }

    /// Sets them from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`TrySetPermits`].
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
