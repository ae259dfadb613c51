//! Permits of a semaphore, and the requests for them.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::HandleOptions;
use crate::counter::{Counter, checked};
use crate::engine::Adjust;
use crate::env;
use crate::error::{AcquireError, Classified as _, InvalidRequestError, ReleaseError, unless_busy};
use crate::guard::Guard;
use crate::hold::{Access, Entry, Hold};
use crate::hold_view::HoldView;
use crate::initial_permits::InitialPermits;
use crate::interrupt::{Interrupt, acquire_until};
use crate::lease::{self, COUNTED, Lease};
use crate::operation::Operation;
use crate::run::{Guarded, runs_work, runs_work_if_free};
use crate::waiting::{self, Entering, Patience};

/// How long the query after a wait in vain may take.
const EXTRA: Duration = Duration::from_millis(100);

/// Permits of a [`Semaphore`](crate::Semaphore), released when dropped.
///
/// They have no lease: if the process dies, they are never released.
#[derive(Debug)]
#[must_use = "the permits are given back when this is dropped"]
pub struct SemaphorePermits {
    /// None for zero permits.
    guard: Option<Guard>,
    count: u32,
}

impl SemaphorePermits {
    /// The number of permits.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Releases the permits and returns the result.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] if the semaphore was deleted or has expired since: there is nothing to release, and a new
    /// semaphore of that name does not receive the permits.
    /// [`ReleaseError::Unknown`] if the server gave no reply: the release continues in the background.
    ///
    /// # Cancel safety
    ///
    /// The permits are released even if the future is dropped, before or after its first poll, and never twice.
    pub fn release(self) -> Operation<Result<(), ReleaseError>> {
        Operation::new(async move {
            match self.guard {
                Some(guard) => guard.release().await.map(drop),
                None => Ok(()),
            }
        })
    }

    /// Keeps the permits acquired without a guard, and returns their number. They must be released, from any client, by
    /// [`Semaphore::release`](crate::Semaphore::release).
    #[expect(clippy::must_use_candidate, reason = "the effect is the point")]
    pub fn forget(self) -> u32 {
        if let Some(guard) = self.guard {
            guard.let_go();
        }
        self.count
    }
}

impl Guarded for SemaphorePermits {
    fn view(&self) -> HoldView {
        self.guard.as_ref().map_or_else(HoldView::nothing, Guarded::view)
    }

    fn end(self) -> Operation<Result<(), ReleaseError>> {
        self.release()
    }
}

/// A result type for granted permits.
pub(crate) trait Granted: Sized + Send + 'static {
    /// How long they are held.
    fn lease(given: Option<Duration>, watchdog: Duration) -> Result<Lease, InvalidRequestError>;

    /// The result for zero permits.
    fn none() -> Result<Self, InvalidRequestError>;

    fn some(guard: Guard) -> Self;
}

impl Granted for SemaphorePermits {
    fn lease(_given: Option<Duration>, _watchdog: Duration) -> Result<Lease, InvalidRequestError> {
        Ok(Lease::Kept(COUNTED))
    }

    fn none() -> Result<Self, InvalidRequestError> {
        Ok(Self { guard: None, count: 0 })
    }

    fn some(guard: Guard) -> Self {
        Self { count: guard.amount(), guard: Some(guard) }
    }
}

/// Permits to be waited for: options first, then `.await` or [`block`](AcquirePermits::block).
///
/// Without options it waits as long as it takes, and the permits are held as long as their guard lives. The permits are
/// acquired all at once, when enough are free. Zero permits are granted at once without a request; where permits have
/// ids, zero is refused.
///
/// # Errors
///
/// [`AcquireError::Timeout`] if too few were free for the whole [`wait`](AcquirePermits::wait);
/// [`AcquireError::NoPermitsSet`] if none had been set; [`AcquireError::Server`] if the server gave no usable reply;
/// [`AcquireError::Invalid`] if an option or the name is invalid, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind: no permit, no position in the wait queue, and no consumed
/// wake-up that another waiter needs. A new call waits at the end of the queue.
///
/// # When the server is unreachable
///
/// It waits through the outage, as [`Acquire`](crate::Acquire) does.
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct AcquirePermits<G = SemaphorePermits> {
    counter: Counter,
    permits: u32,
    initial: Option<InitialPermits>,
    pub(crate) lease: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    wait: Option<Duration>,
    gives: PhantomData<fn() -> G>,
}

impl<G> AcquirePermits<G> {
    pub(crate) fn new(counter: Counter, permits: u32, initial: Option<InitialPermits>) -> Self {
        let (lease, min_hold, wait) = (None, None, None);
        Self { counter, permits, initial, lease, min_hold, wait, gives: PhantomData }
    }

    /// The same with another result type.
    pub(crate) fn giving<H>(self) -> AcquirePermits<H> {
        let Self { counter, permits, initial, lease, min_hold, wait, .. } = self;
        AcquirePermits { counter, permits, initial, lease, min_hold, wait, gives: PhantomData }
    }

    /// Waits at most this long, then gives up with [`AcquireError::Timeout`]. Zero: one attempt.
    ///
    /// A wait that was in vain sends one more query, for 100 ms at most, to tell a semaphore without permits from a busy one.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }
}

#[expect(private_bounds, reason = "which guards there are is not for others to add to")]
impl<G: Granted> AcquirePermits<G> {
    /// Acquires from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`AcquirePermits`].
    #[track_caller]
    pub fn block(self) -> Result<G, AcquireError> {
        self.into_future().block()
    }

    /// The same, until `interrupt` is triggered.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Interrupted`] if it was triggered before; nothing is left behind then. For the rest see [`AcquirePermits`].
    #[track_caller]
    pub fn block_until(self, interrupt: &Interrupt) -> Result<G, AcquireError> {
        let Counter { shared, resource } = &self.counter;
        let subject = resource.as_ref().ok().map(|resource| shared.subject(resource));
        acquire_until(interrupt, self.into_future(), subject)
    }

    /// Whether no permits are set, so that a wait is in vain. A single attempt sends no query.
    async fn is_not_set(&self) -> bool {
        if self.wait == Some(Duration::ZERO) {
            return false;
        }
        let query = self.counter.query(Adjust::Exists, |exists| exists == 0);
        matches!(env::within(EXTRA, query).await, Some(Ok(true)))
    }

    /// Checks everything that can be checked here, before anything is sent.
    fn prepare(&self) -> Result<(Arc<Hold>, Entry), InvalidRequestError> {
        let (shared, resource) = (Arc::clone(&self.counter.shared), self.counter.resource.clone()?);
        let lease = G::lease(self.lease, shared.watchdog)?;
        let ends = [("lease", self.lease)];
        let min_hold = self.min_hold.map(|length| lease::min_hold(&shared, length, &ends)).transpose()?;
        let hold = Hold::of_parts(shared, resource, checked(self.permits)?);
        let entry = Entry { access: Access::Once, fresh: true, min_hold, ..Entry::new(lease) };
        Ok((Arc::new(hold), entry))
    }
}

runs_work!([G: Granted + Guarded] AcquirePermits<G>);

impl<G: Granted> IntoFuture for AcquirePermits<G> {
    type Output = Result<G, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move {
            let Counter { shared, resource } = &self.counter;
            let subject = shared.subject(resource.as_ref().map_err(Clone::clone)?);
            let about = |invalid: InvalidRequestError| AcquireError::from(invalid).about(&subject);
            if self.permits == 0 {
                return G::none().map_err(about);
            }
            let (hold, entry) = self.prepare().map_err(about)?;
            let entering = Entering::new(hold, entry);
            let (begun, mut limit) = (env::now(), self.wait);
            if let Some(initial) = &self.initial {
                initial.set(&self.counter, self.wait).await.map_err(|error| error.about(&subject))?;
                let took = env::now().saturating_duration_since(begun);
                limit = limit.map(|limit| limit.saturating_sub(took));
            }
            let granted =
                waiting::acquire(&entering, Patience::from_wait(limit), &HandleOptions::DEFAULT).await;
            match granted {
                Err(AcquireError::Timeout { waited, .. }) if self.is_not_set().await => {
                    self.initial.iter().for_each(InitialPermits::gone);
                    Err(AcquireError::NoPermitsSet { waited, subject })
                }
                granted => granted.map(G::some).map_err(|error| error.of_wait_since(begun).about(&subject)),
            }
        })
    }
}

impl<G> Clone for AcquirePermits<G> {
    fn clone(&self) -> Self {
        Self { counter: self.counter.clone(), initial: self.initial.clone(), gives: PhantomData, ..*self }
    }
}

impl<G> fmt::Debug for AcquirePermits<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquirePermits")
            .field("semaphore", &self.counter)
            .field("permits", &self.permits)
            .field("initial", &self.initial)
            .field("lease", &self.lease)
            .field("min_hold", &self.min_hold)
            .field("wait", &self.wait)
            .finish()
    }
}

/// One attempt at permits: options first, then `.await` or [`block`](TryAcquirePermits::block).
///
/// Gives `None` if too few are free, or earlier waiters are queued.
///
/// # Errors
///
/// [`AcquireError::Server`] if the server gave no usable reply; [`AcquireError::Invalid`] if an option or the name is
/// invalid, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind.
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct TryAcquirePermits<G = SemaphorePermits>(pub(crate) AcquirePermits<G>);

impl<G> TryAcquirePermits<G> {
    pub(crate) fn new(acquire: AcquirePermits<G>) -> Self {
        Self(acquire)
    }
}

#[expect(private_bounds, reason = "which guards there are is not for others to add to")]
impl<G: Granted> TryAcquirePermits<G> {
    /// Tries from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`TryAcquirePermits`].
    #[track_caller]
    pub fn block(self) -> Result<Option<G>, AcquireError> {
        self.into_future().block()
    }
}

runs_work_if_free!([G: Granted + Guarded] TryAcquirePermits<G>);

impl<G: Granted> IntoFuture for TryAcquirePermits<G> {
    type Output = Result<Option<G>, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move { unless_busy(self.0.wait(Duration::ZERO).await) })
    }
}

impl<G> Clone for TryAcquirePermits<G> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<G> fmt::Debug for TryAcquirePermits<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TryAcquirePermits").field(&self.0).finish()
    }
}
