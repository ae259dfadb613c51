//! Several locks as one: all of them or none.

mod together;

use std::borrow::Borrow;
use std::fmt;
use std::future::{IntoFuture, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use self::together::Together;
use crate::acquire::Acquire;
use crate::env::{self, Instant};
use crate::error::{
    AcquireError, Classified as _, ExtendError, InvalidRequestError, LostError, ReleaseError, ServerError,
    unless_busy,
};
use crate::guard::Guard;
use crate::hold_view::HoldView;
use crate::interrupt::{Interrupt, acquire_until};
use crate::lock::Lock;
use crate::loss::Loss;
use crate::operation::Operation;
use crate::outage::{Limit, Outage};
use crate::owner::Owner;
use crate::race::{First, all, first, race};
use crate::run::{Guarded, runs_work};
use crate::running_under;

/// Several locks that are held together or not at all: Redisson's `getMultiLock(locks)`.
///
/// The members may be locks of any kind and of any client. They are acquired in the order of their names, whatever the
/// order in which they were given, so that requests for some of the same locks do not deadlock. If a member times out, all
/// the others are released, and so they are if the future is dropped midway. All members are held in the name of one
/// owner.
///
/// Members of the same name on different clients are acquired in the order in which they were given: use the same order
/// everywhere.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// // Move money between two accounts while other tasks move some, too.
/// let both = client.multi_lock(["account:7", "account:3"]);
/// let guard = both.acquire().await?;
/// assert!(client.lock("account:3").is_locked().await?);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RedissonMultiLock")]
#[derive(Clone)]
pub struct MultiLock {
    locks: Arc<[Lock]>,
}

impl MultiLock {
    /// A lock over locks of any kind and of any client.
    ///
    /// Fair locks and the halves of read-write locks become members by `into()`. The member for a
    /// [fenced lock](crate::FencedLock) is the plain lock of its name: [`AcquireAll::fenced`] takes a token with each.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use leasehold::MultiLock;
    ///
    /// let both = MultiLock::new([client.fair_lock("seat:3").into(), client.rw_lock("plan").write().into()]);
    /// both.acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getMultiLock")]
    #[must_use]
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        let mut locks: Vec<_> = locks.into_iter().collect();
        let order = |lock: &Lock| {
            let resource = lock.resource.clone().ok();
            resource.map(|resource| (resource.name.clone(), resource))
        };
        locks.sort_by_cached_key(order);
        Self { locks: locks.into() }
    }

    /// Waits for all of the locks. See [`AcquireAll`] for the options.
    pub fn acquire(&self) -> AcquireAll {
        let locks = Arc::clone(&self.locks);
        AcquireAll { locks, wait: None, lease: None, max_hold: None, fenced: false, owner: None }
    }

    /// Tries once: `None` when another owner holds one of them or is next.
    pub fn try_acquire(&self) -> Operation<Result<Option<MultiGuard>, AcquireError>> {
        let acquire = self.acquire().wait(Duration::ZERO);
        Operation::new(async move { unless_busy(acquire.await) })
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLock").field(&self.locks).finish()
    }
}

/// Several locks to be waited for: options first, then `.await` or [`block`](AcquireAll::block).
///
/// # Errors
///
/// As for [`Acquire`]; [`AcquireError::Invalid`] also if there is no member, or one is given twice.
///
/// # Cancel safety
///
/// Dropping the future at any point releases the acquired members, and leaves nothing behind.
///
/// # When a server is unreachable
///
/// It waits through the outage, as [`Acquire`] does. Members that are held meanwhile are renewed, as far as their own server is
/// reachable.
#[derive(Debug, Clone)]
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct AcquireAll {
    locks: Arc<[Lock]>,
    wait: Option<Duration>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    fenced: bool,
    owner: Option<Owner>,
}

impl AcquireAll {
    /// Waits at most this long for all of them together. Zero: one attempt at each.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Holds all of them at least this long from the moment when the last is acquired, and does not renew them.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = Some(length);
        self
    }

    /// Ends each hold after this long even if the guard still lives.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.max_hold = Some(length);
        self
    }

    /// Takes a fencing token with each of them. See [`MultiGuard::tokens`].
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Acquires all of them in the name of `owner`, which must not be another client's.
    pub fn as_owner(mut self, owner: impl Borrow<Owner>) -> Self {
        self.owner = Some(owner.borrow().clone());
        self
    }

    /// Acquires from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`AcquireAll`].
    #[track_caller]
    pub fn block(self) -> Result<MultiGuard, AcquireError> {
        self.check_waits_for_others()?;
        self.into_future().block()
    }

    /// The same, until `interrupt` is triggered.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Interrupted`] if it was triggered before; nothing is left behind then. For the rest see [`AcquireAll`].
    #[track_caller]
    pub fn block_until(self, interrupt: &Interrupt) -> Result<MultiGuard, AcquireError> {
        let first = self.locks.first();
        let subject = first.map(|Lock { shared, resource, .. }| shared.subject_of(resource));
        acquire_until(interrupt, self.into_future(), subject)
    }

    /// An error if a call that blocks would wait for its own thread.
    pub(crate) fn check_waits_for_others(&self) -> Result<(), AcquireError> {
        let is_patient = self.wait.is_none() && self.owner.is_none();
        self.locks.iter().filter(|_| is_patient).try_for_each(
            |Lock { shared, resource, .. }| match resource {
                Ok(resource) => running_under::check_waits_for_others(shared, resource),
                Err(_) => Ok(()),
            },
        )
    }

    async fn acquire(self) -> Result<MultiGuard, AcquireError> {
        self.check()?;
        let together = Together::new(&self).map_err(|invalid| {
            let Lock { shared, resource, .. } = &self.locks[0];
            AcquireError::from(invalid).about(&shared.subject_of(resource))
        })?;
        if let Some(together) = together
            && let Some(guards) = together.run(self.wait).await?
        {
            return Ok(MultiGuard { guards });
        }
        let begun = env::now();
        let deadline = self.wait.and_then(|wait| begun.checked_add(wait));
        let owner = self.owner.clone().unwrap_or_else(Owner::unique);
        let mut guards: Vec<Guard> = Vec::with_capacity(self.locks.len());
        for lock in self.locks.iter() {
            match self.take(lock, &owner, deadline, &guards).await {
                Ok(guard) => guards.push(guard),
                // The whole wait, not only that for this member.
                Err(error) => return Err(error.of_wait_since(begun)),
            }
        }
        let limit = match self.wait {
            Some(_) => Limit::Wait { begun, deadline },
            None => Limit::OutageLimit(self.outage_limit()),
        };
        self.even_out_through_outage(&guards, limit).await?;
        Ok(MultiGuard { guards })
    }

    /// Waits for one more member while the earlier members are held.
    async fn take(
        &self,
        lock: &Lock,
        owner: &Owner,
        deadline: Option<Instant>,
        held: &[Guard],
    ) -> Result<Guard, AcquireError> {
        let left = |wait| deadline.map_or(wait, |deadline| deadline.saturating_duration_since(env::now()));
        let acquiring = self.member(lock, owner, self.wait.map(left));
        match race(acquiring, pin!(self.keep_extended(held))).await {
            First::Left(done) => done,
            First::Right(error) => Err(error),
        }
    }

    /// Keeps leases that are not renewed from expiring during a wait. Resolves with an error that ends the wait.
    async fn keep_extended(&self, held: &[Guard]) -> AcquireError {
        let Some(lease) = self.lease.filter(|_| !held.is_empty()) else { return pending().await };
        loop {
            env::sleep_for(lease / 3).await;
            match self.even_out(held).await {
                // An outage leaves them as they are. Only if it outlasts one of them, that is lost.
                Err(error) if !error.is_unavailable() => return error,
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn member(
        &self,
        lock: &Lock,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Operation<Result<Guard, AcquireError>> {
        let mut acquire: Acquire = lock.acquire().as_owner(owner);
        if let Some(wait) = wait {
            acquire = acquire.wait(wait);
        }
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        if let Some(max_hold) = self.max_hold {
            acquire = acquire.max_hold(max_hold);
        }
        if !self.fenced {
            return acquire.into_future();
        }
        let fenced = acquire.fenced();
        Operation::new(async move { fenced.await.map(crate::fenced::FencedGuard::into_guard) })
    }

    /// Extends all leases that are not renewed to the end of the last acquired one.
    async fn even_out(&self, guards: &[Guard]) -> Result<(), AcquireError> {
        let Some(lease) = self.lease else { return Ok(()) };
        for extended in all(guards.iter().map(|guard| guard.extend(lease))).await {
            match extended {
                Ok(_) => {}
                Err(ExtendError::NotHeld { loss, subject, .. }) => {
                    return Err(AcquireError::Lost { loss, subject });
                }
                Err(ExtendError::Server { cause, subject }) => {
                    return Err(AcquireError::Server { cause, subject });
                }
                Err(ExtendError::Invalid { cause, subject }) => {
                    return Err(AcquireError::Invalid { cause, subject });
                }
            }
        }
        Ok(())
    }

    /// The same as often as it takes, if an outage prevents it.
    async fn even_out_through_outage(&self, guards: &[Guard], limit: Limit) -> Result<(), AcquireError> {
        let mut outage: Option<Outage> = None;
        loop {
            let begun = env::now();
            match self.even_out(guards).await {
                Err(AcquireError::Server { cause: ServerError::Unavailable(reason), subject })
                    if self.wait != Some(Duration::ZERO) =>
                {
                    let outage = outage.get_or_insert_with(|| Outage::since(begun, limit));
                    let paused = outage.pause_after(reason).await;
                    paused.map_err(|cause| AcquireError::Server { cause, subject })?;
                }
                done => return done,
            }
        }
    }

    /// How long a wait without a limit goes on in an outage: the longest of the limits of its clients.
    fn outage_limit(&self) -> Duration {
        self.locks.iter().map(|lock| lock.shared.outage_limit).max().unwrap_or_default()
    }

    fn check(&self) -> Result<(), InvalidRequestError> {
        if self.locks.is_empty() {
            return Err(InvalidRequestError::NoMembers);
        }
        for (number, lock) in self.locks.iter().enumerate() {
            let resource = lock.resource.clone()?;
            let is_same = |other: &&Lock| {
                let overlaps = other.resource.as_ref().is_ok_and(|other| other.overlaps(&resource));
                overlaps && Arc::ptr_eq(&other.shared.engine, &lock.shared.engine)
            };
            if self.locks[..number].iter().any(|other| is_same(&other)) {
                return Err(InvalidRequestError::MemberTwice(resource.name.as_str().into()));
            }
        }
        Ok(())
    }
}

impl IntoFuture for AcquireAll {
    type Output = Result<MultiGuard, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(self.acquire())
    }
}

/// Several locks held together. It is lost as soon as one of them is.
///
/// Dropping it releases all of them, as [`release`](MultiGuard::release) does.
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

runs_work!([] AcquireAll);

impl Guarded for MultiGuard {
    fn view(&self) -> HoldView {
        HoldView::all(self.guards.iter().map(Guard::viewed))
    }

    fn end(self) -> Operation<Result<(), ReleaseError>> {
        self.release()
    }
}

impl MultiGuard {
    /// Releases all of the locks and returns the result.
    ///
    /// # Errors
    ///
    /// The error of [`Guard::release`] for the first member that was lost, or else for the first whose release failed. All
    /// others are released nevertheless.
    ///
    /// # Cancel safety
    ///
    /// All locks are released even if the future is dropped.
    pub fn release(self) -> Operation<Result<(), ReleaseError>> {
        let releases: Vec<_> = self.guards.into_iter().rev().map(Guard::release).collect();
        Operation::new(async move {
            let errors: Vec<_> = all(releases).await.into_iter().filter_map(Result::err).collect();
            let is_loss = |error: &&ReleaseError| matches!(error, ReleaseError::NotHeld { .. });
            errors.iter().find(is_loss).or(errors.first()).cloned().map_or(Ok(()), Err)
        })
    }

    /// Whether all locks are held now, by the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long all locks are certainly held if nothing renews them from now on; zero once one is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Resolves with the cause when the first of the locks is lost. See [`Guard::lost`].
    pub fn lost(&self) -> Operation<Loss> {
        Operation::new(first(self.guards.iter().map(Guard::lost).collect()))
    }

    /// Makes all leases last at least `length` from now, and returns the time that is left then. See [`Guard::extend`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::extend`], for the first member that was not extended.
    pub fn extend(&self, length: Duration) -> Operation<Result<Duration, ExtendError>> {
        let extensions: Vec<_> = self.guards.iter().map(|guard| guard.extend(length)).collect();
        Operation::new(async move {
            let left: Result<Vec<_>, _> = all(extensions).await.into_iter().collect();
            left.map(|left| left.into_iter().min().unwrap_or_default())
        })
    }

    /// Runs `work` as long as all locks are held, and drops it where it is when one is lost. See [`Guard::run`].
    ///
    /// # Errors
    ///
    /// [`LostError`] with the cause, when a lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the locks stay held by the guard.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostError> {
        let ended = race(self.lost(), pin!(work)).await;
        // The work may have kept the thread busy past a deadline: check each.
        let lost = self.guards.iter().find_map(|guard| Some(guard.lost_error(guard.loss()?)));
        match (ended, lost) {
            (First::Right(output), None) => Ok(output),
            (_, Some(lost)) => Err(lost),
            (First::Left(loss), None) => Err(loss.into()),
        }
    }

    /// The fencing token of each member with its name, if [`fenced`](AcquireAll::fenced) requested them.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        self.guards.iter().filter_map(|guard| guard.token().map(|token| (guard.name(), token)))
    }

    /// The guards of the members, in the order of their names.
    pub fn members(&self) -> &[Guard] {
        &self.guards
    }
}
