//! Requests for a lock, and their options.

use std::borrow::Borrow;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::back_off::BackOff;
use crate::client::Shared;
use crate::engine::{Feature, HoldKey, Kind, Queueing, Resource, RwOptions};
use crate::error::{AcquireError, Classified as _, InvalidRequestError, unless_busy};
use crate::fair::{self, QueuePosition, Watcher};
use crate::fenced::FencedGuard;
use crate::guard::Guard;
use crate::hold::{Access, Entry, Hold};
use crate::identity::name_holder;
use crate::interrupt::{Interrupt, acquire_until};
use crate::lease::{self, Lease};
use crate::operation::Operation;
use crate::owner::{Owner, OwnerId};
use crate::run::{Guarded, runs_work, runs_work_if_free};
use crate::running_under;
use crate::rw_lock::WriteGuard;
use crate::waiting::{self, Entering, Patience};

/// The common part of both kinds of request.
#[derive(Debug, Clone)]
struct Request {
    shared: Arc<Shared>,
    resource: Result<Resource, InvalidRequestError>,
    options: Options,
}

/// The options of a request.
#[derive(Debug, Clone)]
struct Options {
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    progress: Option<Duration>,
    owner: Option<Owner>,
    steal: bool,
    fenced: bool,
    handle: HandleOptions,
}

/// The settings of a handle for acquiring its lock.
#[derive(Clone)]
pub(crate) struct HandleOptions {
    pub(crate) reentrant: bool,
    /// Retry after a pause instead of joining the wait queue.
    pub(crate) spin: Option<BackOff>,
    /// The callback for the position in the queue.
    pub(crate) watcher: Option<Watcher>,
    /// Waiting writers block new readers.
    pub(crate) prefer_writers: bool,
    /// Whether the lock may be handed over between waiters inside this client.
    pub(crate) local_handover: bool,
}

impl HandleOptions {
    pub(crate) const DEFAULT: Self =
        Self { reentrant: true, spin: None, watcher: None, prefer_writers: false, local_handover: true };
}

impl fmt::Debug for HandleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleOptions")
            .field("reentrant", &self.reentrant)
            .field("spin", &self.spin)
            .field("prefer_writers", &self.prefer_writers)
            .field("local_handover", &self.local_handover)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Checks everything that can be checked here, before anything is sent.
    fn prepare(
        &self,
        shared: Arc<Shared>,
        resource: Result<Resource, InvalidRequestError>,
        wait: Option<Duration>,
    ) -> Result<Entering, AcquireError> {
        let resource = resource?;
        let about =
            |invalid: InvalidRequestError| AcquireError::from(invalid).about(&shared.subject(&resource));
        let entry = self.entry(&shared, resource.kind, wait).map_err(about)?;
        let owner = match &self.owner {
            Some(owner) => Some(shared.own(owner).map_err(about)?),
            // The holds of groups are all in the registry.
            None => (resource.kind == Kind::Group).then(|| OwnerId::fresh(shared.id, 1)),
        };
        let hold = match owner {
            Some(owner) => {
                shared.hold_of(HoldKey { resource: resource.clone(), owner, amount: 1 }).map_err(about)?
            }
            None => Arc::new(Hold::fresh(shared, resource)),
        };
        Ok(Entering::new(hold, entry))
    }

    fn entry(
        &self,
        shared: &Shared,
        kind: Kind,
        wait: Option<Duration>,
    ) -> Result<Entry, InvalidRequestError> {
        if self.steal {
            shared.check(Feature::Steal)?;
        }
        if self.fenced {
            shared.check(Feature::Fenced)?;
            lease::outlived(shared.token_retention, &[("lease", self.lease), ("max_hold", self.max_hold)])?;
        }
        let lease = match self.lease {
            Some(length) => Lease::Fixed(lease::checked("lease", length)?),
            None => Lease::Kept(shared.watchdog),
        };
        let max_hold = self.max_hold.map(|length| lease::checked("max_hold", length)).transpose()?;
        let min_hold = self.min_hold.map(|length| self.checked_min_hold(shared, kind, length)).transpose()?;
        let progress =
            self.progress.map(|length| lease::checked("renew_while_progress", length)).transpose()?;
        if progress.is_some() && self.lease.is_some() {
            return Err(InvalidRequestError::ProgressOfFixedLease);
        }
        Ok(Entry {
            max_hold,
            min_hold,
            progress,
            steal: self.steal,
            fenced: self.fenced,
            access: self.access(shared, kind),
            queue: self.queueing(kind, wait),
            rw: RwOptions { upgrade: false, prefer_writers: self.handle.prefer_writers },
            fresh: self.owner.is_none(),
            ..Entry::new(lease)
        })
    }

    fn checked_min_hold(
        &self,
        shared: &Shared,
        kind: Kind,
        length: Duration,
    ) -> Result<Duration, InvalidRequestError> {
        if kind == Kind::Group {
            return Err(InvalidRequestError::NoMinHold { of: "a group lock" });
        }
        if self.owner.is_some() {
            return Err(InvalidRequestError::NoMinHold { of: "a hold of a given owner" });
        }
        let limits =
            [("lease", self.lease), ("max_hold", self.max_hold), ("renew_while_progress", self.progress)];
        lease::min_hold(shared, length, &limits)
    }

    fn access(&self, shared: &Shared, kind: Kind) -> Access {
        // A hold with an owner chosen by the caller, a time limit or a token is not handed over.
        let is_plain = self.owner.is_none()
            && self.lease.is_none()
            && self.max_hold.is_none()
            && self.min_hold.is_none()
            && self.progress.is_none();
        let accepts_handover = is_plain
            && (kind == Kind::SetNx || (kind == Kind::Lock && self.handle.reentrant))
            && self.handle.local_handover
            && shared.engine.handover().is_some()
            && !(self.steal || self.fenced || self.handle.spin.is_some());
        match (self.handle.reentrant, accepts_handover) {
            (_, true) => Access::HandOver,
            (true, false) => Access::Reentrant,
            (false, false) => Access::Once,
        }
    }

    fn queueing(&self, kind: Kind, wait: Option<Duration>) -> Option<Queueing> {
        if kind != Kind::Fair {
            return None;
        }
        Some(Queueing { wait: fair::queueing(wait)?, watched: self.handle.watcher.is_some() })
    }
}

/// A guard type for a granted lock.
pub(crate) trait Granted: Guarded + Sized + 'static {
    fn from_guard(guard: Guard) -> Self;
}

impl Granted for Guard {
    fn from_guard(guard: Guard) -> Self {
        guard
    }
}

/// A lock to be waited for: options first, then `.await` or [`block`](Acquire::block).
///
/// Without options it waits as long as it takes, and the lock is held as long as the guard lives.
///
/// # Errors
///
/// [`AcquireError::Timeout`] if the lock stayed busy for the whole [`wait`](Acquire::wait);
/// [`AcquireError::Server`] if the server gave no usable reply; [`AcquireError::Invalid`] if an option or the name
/// is invalid, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind: no hold, no position in the wait queue, and no consumed
/// wake-up that another waiter needs. A new call waits at the end of the queue.
///
/// # When the server is unreachable
///
/// It waits through the outage, whether that began before or during the wait: until its [`wait`](Acquire::wait) is over, or
/// without one for the client's [`outage_limit`](crate::ConnectOptions::outage_limit). Then it ends with
/// [`ServerError::Unavailable`](crate::ServerError::Unavailable). It fails at once if the server refuses the request for good:
/// a wrong password, a missing right, a key that is not a lock.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use std::time::Duration;
///
/// // Redisson's tryLock(2, 5, SECONDS)
/// let guard = client.lock("seat:12A").acquire().wait(Duration::from_secs(2)).lease(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct Acquire<G = Guard> {
    request: Request,
    wait: Option<Duration>,
    gives: PhantomData<fn() -> G>,
}

impl Acquire {
    /// Takes a fencing token with the lock: a number that rises with every such acquisition of this name. See
    /// [`FencedGuard`].
    pub fn fenced(mut self) -> Acquire<FencedGuard> {
        self.request.options.fenced = true;
        self.giving()
    }
}

impl Acquire<WriteGuard> {
    /// Takes a fencing token with the lock, which [`Guard::token`] returns: a number that rises with every such
    /// acquisition of this name. See [`FencedGuard`].
    pub fn fenced(mut self) -> Self {
        self.request.options.fenced = true;
        self
    }
}

impl<G> Acquire<G> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        resource: Result<Resource, InvalidRequestError>,
        handle: HandleOptions,
    ) -> Self {
        let (lease, max_hold, min_hold, progress, owner) = (None, None, None, None, None);
        let options =
            Options { lease, max_hold, min_hold, progress, owner, steal: false, fenced: false, handle };
        Self { request: Request { shared, resource, options }, wait: None, gives: PhantomData }
    }

    /// The same with another guard type.
    fn giving<H>(self) -> Acquire<H> {
        Acquire { request: self.request, wait: self.wait, gives: PhantomData }
    }

    /// Waits at most this long, then gives up with [`AcquireError::Timeout`]. Zero: one attempt.
    ///
    /// The error names the holder, which the server is asked for when the wait is over: for at most a tenth of the wait, and 100 ms.
    #[doc(alias = "waitTime")]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Holds the lock for this long and no longer, however long the work takes: no renewal.
    #[doc(alias = "leaseTime")]
    pub fn lease(mut self, length: Duration) -> Self {
        self.request.options.lease = Some(length);
        self
    }

    /// Ends the hold after this long even if the guard still lives, for work that may hang.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.request.options.max_hold = Some(length);
        self
    }

    /// Renews the lock only while the work under it reports [`progress`](Guard::progress) at least this often, for work that may
    /// hang: without it a guard is renewed as long as the process lives, however little happens under it.
    ///
    /// The lock is lost with [`Loss::NoProgress`](crate::Loss::NoProgress) this long after the grant or the last report, and
    /// freed for others. Not together with [`lease`](Self::lease), which is not renewed. An owner that re-enters a lock leaves it
    /// as its first acquire has set it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn import(_row: u32) {}
    /// let guard = client.lock("import").acquire().renew_while_progress(Duration::from_secs(60)).await?;
    /// for row in 0..1_000 {
    ///     import(row).await;
    ///     guard.progress();
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn renew_while_progress(mut self, within: Duration) -> Self {
        self.request.options.progress = Some(within);
        self
    }

    /// Leaves the lock taken for at least this long, counted from the grant, even if the guard is released or dropped before: for
    /// a job that must run once per interval, although it takes less time than the clocks of its machines differ by.
    ///
    /// Such a release ends the guard at once, and the lock is free when this time is over. A crash is no release: then the lease
    /// decides. Not longer than [`lease`](Self::lease), [`max_hold`](Self::max_hold) or
    /// [`renew_while_progress`](Self::renew_while_progress), and not with [`as_owner`](Self::as_owner). Not on engines whose locks
    /// end with the process that holds them.
    #[doc(alias = "lockAtLeastFor")]
    pub fn min_hold(mut self, length: Duration) -> Self {
        self.request.options.min_hold = Some(length);
        self
    }

    /// Acquires in the name of `owner`. If that owner holds the lock already, it re-enters the lock.
    pub fn as_owner(mut self, owner: impl Borrow<Owner>) -> Self {
        self.request.options.owner = Some(owner.borrow().clone());
        self
    }

    /// Calls `watcher` whenever the position in the queue of a [fair lock](crate::Client::fair_lock) changes. Other locks
    /// have no such queue, and never call it.
    ///
    /// It is called where the acquire is awaited, so it should be quick.
    pub fn on_position(mut self, watcher: impl Fn(QueuePosition) + Send + Sync + 'static) -> Self {
        self.request.options.handle.watcher = Some(Arc::new(watcher));
        self
    }

    /// Takes the lock over from the current holder, at once.
    ///
    /// The guards of that holder are lost with [`Loss::TakenOver`](crate::Loss::TakenOver). Its work may still be
    /// running: this is a tool for operators, not for ordinary code.
    pub fn steal(mut self) -> Self {
        self.request.options.steal = true;
        self
    }
}

#[expect(private_bounds, reason = "which guards there are is not for others to add to")]
impl<G: Granted> Acquire<G> {
    /// Acquires from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`Acquire`].
    #[track_caller]
    pub fn block(self) -> Result<G, AcquireError> {
        self.check_waits_for_others()?;
        self.into_future().block()
    }

    /// The same, until `interrupt` is triggered.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Interrupted`] if it was triggered before the lock was acquired; nothing is left behind then. For the rest
    /// see [`Acquire`].
    #[track_caller]
    pub fn block_until(self, interrupt: &Interrupt) -> Result<G, AcquireError> {
        let Request { shared, resource, .. } = &self.request;
        let subject = resource.as_ref().ok().map(|resource| shared.subject(resource));
        acquire_until(interrupt, self.into_future(), subject)
    }

    /// An error if a call that blocks would wait for its own thread.
    pub(crate) fn check_waits_for_others(&self) -> Result<(), AcquireError> {
        let Request { shared, resource, options } = &self.request;
        let is_patient = self.wait.is_none() && options.owner.is_none() && !options.steal;
        match resource {
            Ok(resource) if is_patient => running_under::check_waits_for_others(shared, resource),
            _ => Ok(()),
        }
    }

    /// Waits, and converts the result with `map`. `names_holder`: an error of the result may name the holder.
    fn begin<T: 'static>(
        self,
        names_holder: bool,
        map: impl FnOnce(Result<G, AcquireError>) -> T + Send + 'static,
    ) -> Operation<T> {
        let Request { resource, options, .. } = &self.request;
        let is_group = resource.as_ref().is_ok_and(|resource| resource.kind == Kind::Group);
        if options.owner.is_some() || is_group {
            // The hold is found and checked when the operation is awaited.
            return Operation::new(async move { self.ready(names_holder, map).await });
        }
        self.ready(names_holder, map)
    }

    /// The same for a hold that can be prepared now, before the future that enters it: so the future stores no options.
    fn ready<T>(
        self,
        names_holder: bool,
        map: impl FnOnce(Result<G, AcquireError>) -> T + Send + 'static,
    ) -> Operation<T> {
        let Request { shared, resource, options } = self.request;
        let entering = options.prepare(shared, resource, self.wait);
        let (patience, handle) = (Patience::from_wait(self.wait), options.handle);
        Operation::new(async move {
            // Borrowed: a value moved out of the captured state takes room in the future twice.
            let granted = match &entering {
                Ok(entering) => {
                    let granted = waiting::acquire(entering, patience, &handle).await;
                    let granted = granted.map_err(|error| match error {
                        // A caller of a single try gets `None` in its place.
                        AcquireError::Timeout { .. } if !names_holder => error,
                        _ => error.about(&entering.hold.subject()),
                    });
                    let granted = match granted {
                        Err(error @ AcquireError::Timeout { .. })
                            if names_holder && matches!(patience, Patience::Limited(_)) =>
                        {
                            // Boxed because it is rare: otherwise every waiter's future would have room for it.
                            let Hold { shared, key, .. } = &*entering.hold;
                            Err(Box::pin(name_holder(shared, &key.resource, error)).await)
                        }
                        granted => granted,
                    };
                    if names_holder {
                        entering.hold.shared.expose_holder(&entering.hold.key.resource, &granted);
                    }
                    granted
                }
                Err(error) => Err(error.clone()),
            };
            map(granted.map(G::from_guard))
        })
    }
}

runs_work!([G: Granted] Acquire<G>);

impl<G: Granted> IntoFuture for Acquire<G> {
    type Output = Result<G, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.begin(true, |granted| granted)
    }
}

impl<G> Clone for Acquire<G> {
    fn clone(&self) -> Self {
        Self { request: self.request.clone(), wait: self.wait, gives: PhantomData }
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("request", &self.request).field("wait", &self.wait).finish()
    }
}

/// One attempt at a lock: options first, then `.await` or [`block`](TryAcquire::block).
///
/// Gives `None` if another owner holds the lock or is next in its wait queue.
///
/// # Errors
///
/// [`AcquireError::Server`] if the server gave no usable reply, which is reported at once without a connection;
/// [`AcquireError::Invalid`] if an option or the name is invalid, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// if let Some(guard) = client.lock("nightly-report").try_acquire().await? {
///     // … this one writes the report …
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct TryAcquire<G = Guard>(Acquire<G>);

impl TryAcquire {
    /// Takes a fencing token with the lock: a number that rises with every such acquisition of this name. See
    /// [`FencedGuard`].
    pub fn fenced(self) -> TryAcquire<FencedGuard> {
        TryAcquire(self.0.fenced())
    }
}

impl TryAcquire<WriteGuard> {
    /// Takes a fencing token with the lock, which [`Guard::token`] returns: a number that rises with every such
    /// acquisition of this name. See [`FencedGuard`].
    pub fn fenced(self) -> Self {
        Self(self.0.fenced())
    }
}

impl<G> TryAcquire<G> {
    pub(crate) fn new(acquire: Acquire<G>) -> Self {
        Self(acquire)
    }

    /// Holds the lock for this long and no longer, however long the work takes: no renewal.
    #[doc(alias = "leaseTime")]
    pub fn lease(mut self, length: Duration) -> Self {
        self.0.request.options.lease = Some(length);
        self
    }

    /// Ends the hold after this long even if the guard still lives, for work that may hang.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.0.request.options.max_hold = Some(length);
        self
    }

    /// Renews the lock only while the work under it reports progress. See [`Acquire::renew_while_progress`].
    pub fn renew_while_progress(mut self, within: Duration) -> Self {
        self.0.request.options.progress = Some(within);
        self
    }

    /// Leaves the lock taken for at least this long, counted from the grant. See [`Acquire::min_hold`].
    #[doc(alias = "lockAtLeastFor")]
    pub fn min_hold(mut self, length: Duration) -> Self {
        self.0.request.options.min_hold = Some(length);
        self
    }

    /// Acquires in the name of `owner`. If that owner holds the lock already, it re-enters the lock.
    pub fn as_owner(mut self, owner: impl Borrow<Owner>) -> Self {
        self.0.request.options.owner = Some(owner.borrow().clone());
        self
    }
}

#[expect(private_bounds, reason = "which guards there are is not for others to add to")]
impl<G: Granted> TryAcquire<G> {
    /// Tries from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`TryAcquire`].
    #[track_caller]
    pub fn block(self) -> Result<Option<G>, AcquireError> {
        self.into_future().block()
    }
}

runs_work_if_free!([G: Granted] TryAcquire<G>);

impl<G: Granted> IntoFuture for TryAcquire<G> {
    type Output = Result<Option<G>, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.wait(Duration::ZERO).begin(false, unless_busy)
    }
}

impl<G> Clone for TryAcquire<G> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<G> fmt::Debug for TryAcquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TryAcquire").field(&self.0.request).finish()
    }
}
