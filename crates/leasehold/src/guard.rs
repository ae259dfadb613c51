//! The guard of a held lock.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Feature, HoldKey, Kind, Resource, RwOptions};
use crate::error::{AcquireError, Classified as _, ExtendError, LostError, ReleaseError, Subject};
use crate::hold::{Entry, Hold, Tried, too_late};
use crate::hold_view::{HoldView, Viewed};
use crate::lease;
use crate::loss::Loss;
use crate::observer::{Acquiring, Outcome};
use crate::operation::Operation;
use crate::owner::{Owner, OwnerId};
use crate::permit_id::PermitId;
use crate::race::{First, race};
use crate::run::Guarded;
use crate::term::Term;

/// A held lock.
///
/// [`is_held`](Guard::is_held), [`remaining`](Guard::remaining) and [`run`](Guard::run) check the clock, not a flag, so
/// a loss is detected no later than the engine could grant the lock to another owner, whatever the network does.
/// [`lost`](Guard::lost) reports a loss as an event, with the cause.
///
/// Dropping a guard releases the lock in the background, inside a runtime and outside.
/// [`release`](Guard::release) does the same and returns the result.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
    term: Arc<Term>,
    token: Option<u64>,
    armed: bool,
    /// Its owner had the lock already.
    is_reentry: bool,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, term: Arc<Term>, token: Option<u64>, is_reentry: bool) -> Self {
        hold.shared.guard_made();
        Self { hold, term, token, armed: true, is_reentry }
    }

    /// Counts the acquire that ends with this guard, after a wait unless it was granted at once.
    #[inline]
    pub(crate) fn count(&self, waited: Option<Duration>) {
        self.hold.shared.observer.granted(&self.hold.key, waited, self.is_reentry);
    }

    /// Releases the lock and returns the result.
    ///
    /// A lock that was entered several times is free when the last of its guards is released.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] with the cause if the lock was lost before: the critical section may have run
    /// unprotected. [`ReleaseError::Unknown`] if the server gave no reply: the release continues in the background.
    ///
    /// # Cancel safety
    ///
    /// The lock is released even if the future is dropped, before or after its first poll.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let outer = client.lock("stock:7").acquire().await?;
    /// let inner = outer.reenter().await?;
    /// assert_eq!(inner.release().await?.holds_left, 1);
    /// assert_eq!(outer.release().await?.holds_left, 0);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "unlock")]
    pub fn release(mut self) -> Operation<Result<Released, ReleaseError>> {
        Operation::new(async move {
            // The guard itself lives until the lock is released: a shutdown waits for it.
            let Self { hold, term, armed, .. } = &mut self;
            let released = hold.release(term, armed).await.map(|holds_left| Released { holds_left });
            released.map_err(|error| error.about(&hold.subject()))
        })
    }

    /// Resolves with the cause when the lock is lost.
    ///
    /// The future is independent of the guard. It resolves at once if the loss happened before the first poll,
    /// and never after a normal release.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock("report").acquire().lease(Duration::from_secs(5)).await?;
    /// let watcher = tokio::spawn(guard.lost());
    /// // … work that takes too long …
    /// assert_eq!(watcher.await?, leasehold::Loss::Expired);
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> Operation<Loss> {
        Operation::new(Arc::clone(&self.term).lost())
    }

    /// Whether the lock is held now, by the clock.
    #[doc(alias = "isHeldByCurrentThread")]
    #[must_use]
    pub fn is_held(&self) -> bool {
        let is_held = self.term.is_held();
        if !is_held {
            self.term.log_loss();
        }
        is_held
    }

    /// How long the lock is certainly held if nothing renews it from now on; zero once it is lost.
    ///
    /// For a lock without a lease, which is renewed as long as the guard lives, it stays just below the watchdog time-out.
    #[doc(alias = "remainTimeToLive")]
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// Reports that the work under the lock makes progress, for
    /// [`renew_while_progress`](crate::Acquire::renew_while_progress); otherwise it does nothing. It sends nothing, so it can be
    /// called for every small step.
    pub fn progress(&self) {
        self.term.progress();
    }

    /// Makes the lease last at least `length` from now, and returns the time that is left then.
    ///
    /// It never shortens the lease, and never passes [`max_hold`](crate::Acquire::max_hold). A lock without a lease
    /// is renewed anyway.
    ///
    /// # Errors
    ///
    /// [`ExtendError::NotHeld`] if the lock is lost: a loss is final. After any other error the lock is held
    /// at least as long as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was, or extended; the guard relies only on replies it received.
    pub fn extend(&self, length: Duration) -> Operation<Result<Duration, ExtendError>> {
        let hold = Arc::clone(&self.hold);
        let term = Arc::clone(&self.term);
        Operation::new(async move {
            let extend = async { hold.extend(&term, lease::checked("lease", length)?).await };
            extend.await.map_err(|error| error.about(&hold.subject()))
        })
    }

    /// Runs `work` as long as the lock is held, and drops it where it is when the lock is lost.
    ///
    /// `Ok` means that the lock was held from the beginning to the end of the work.
    ///
    /// # Errors
    ///
    /// [`LostError`] with the cause, when the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the lock stays held by the guard.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn charge(_card: &str) -> u32 { 42 }
    /// let guard = client.lock("card:1").acquire().await?;
    /// let receipt = guard.run(charge("card:1")).await?;
    /// # assert_eq!(receipt, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostError> {
        match race(pin!(Arc::clone(&self.term).lost()), pin!(work)).await {
            First::Left(loss) => Err(self.lost_error(loss)),
            // The work may have kept the thread busy past the deadline.
            First::Right(output) => self.term.loss().map_or(Ok(output), |loss| Err(self.lost_error(loss))),
        }
    }

    /// Re-enters the lock, for a part of the work that needs its own guard.
    ///
    /// It never waits for another owner. All guards of a lock share one lease and one loss.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Lost`] if the lock is lost; a failure of the server; [`AcquireError::Invalid`] if the client is
    /// shut down, or the lock was acquired by a handle that is not re-entrant.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lock entered as often as before.
    pub fn reenter(&self) -> Operation<Result<Self, AcquireError>> {
        let hold = Arc::clone(&self.hold);
        let term = Arc::clone(&self.term);
        Operation::new(async move {
            let reenter = async {
                hold.shared.check_open()?;
                let acquiring = Acquiring::new(&hold.shared, &hold.key);
                let reentered = hold.reenter(&term).await;
                match &reentered {
                    Ok(guard) => acquiring.granted(from_ref(guard), None),
                    Err(_) => acquiring.not_granted(&hold.key, Outcome::Failed, None),
                }
                reentered
            };
            reenter.await.map_err(|error| error.about(&hold.subject()))
        })
    }

    /// The owner that holds the lock. Use it in logs, and to re-enter from elsewhere by
    /// [`as_owner`](crate::Acquire::as_owner).
    ///
    /// No later guard has this owner, which `Debug` prints, too. So once this was called, the hold is not
    /// [handed over](crate::Lock::local_handover) to another task of this client: the lock is released at the server.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.hold.expose_owner();
        self.hold.key.owner.into()
    }

    /// The fencing token of this hold, if [`fenced`](crate::Acquire::fenced) requested one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// A copy of the open file to which the lock is bound, on the file engine; `None` on every other engine, and for kinds
    /// that are not one open file: groups and permits.
    ///
    /// The lock is not free as long as any copy of it is open, here or in a child process that has inherited it, whatever
    /// becomes of the guard and of this process. The copy is not inherited unless you clear its close-on-exec flag.
    ///
    /// # Errors
    ///
    /// If the process has too many open files.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("leasehold-doc-{}", std::process::id()));
    /// let client = leasehold::Client::connect(format!("file://{}", dir.display())).await?;
    /// let lock = client.lock("backup");
    /// let guard = lock.acquire().await?;
    /// let copy = guard.lock_file()?;
    /// guard.release().await?;
    /// assert!(lock.try_acquire().await?.is_none(), "the copy is open");
    /// drop(copy);
    /// assert!(lock.try_acquire().await?.is_some());
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "file")]
    #[cfg_attr(docsrs, doc(cfg(feature = "file")))]
    pub fn lock_file(&self) -> std::io::Result<Option<std::fs::File>> {
        self.hold.expose_owner();
        self.hold.shared.engine.lock_file(&self.hold.key)
    }

    /// The name of the lock, namespace included.
    #[doc(alias = "getName")]
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.key.resource.name.as_str()
    }

    /// Enters the other half of a read-write lock as the same owner, until this hold ends at the latest. The inner error is
    /// the owner that prevents it.
    pub(crate) fn enter_beside(
        &self,
        kind: Kind,
        upgrade: bool,
    ) -> impl Future<Output = Result<Result<Self, Option<OwnerId>>, AcquireError>> + Send + use<> {
        let hold = Arc::clone(&self.hold);
        let term = Arc::clone(&self.term);
        async move {
            hold.shared.check(Feature::Upgrade)?;
            if upgrade {
                hold.shared.check_open()?;
            }
            let HoldKey { resource, owner, .. } = &hold.key;
            let key =
                HoldKey { resource: Resource::new(kind, resource.name.clone()), owner: *owner, amount: 1 };
            let rw = RwOptions { upgrade, prefer_writers: false };
            let entry = Entry { rw, ..hold.entry_beside(&term).await? };
            let beside = hold.shared.hold_of(key)?;
            let acquiring = Acquiring::new(&hold.shared, &beside.key);
            let tried = beside.enter(&entry, None).await;
            match &tried {
                Ok(Tried::Granted(guard)) => acquiring.granted(from_ref(guard), None),
                Ok(Tried::Busy(_)) => acquiring.not_granted(&beside.key, Outcome::Busy, None),
                Ok(Tried::TooLate) | Err(_) => acquiring.not_granted(&beside.key, Outcome::Failed, None),
            }
            match tried? {
                Tried::Granted(guard) => {
                    // It has gone over to the other half.
                    hold.drop_min_hold().await;
                    Ok(Ok(guard))
                }
                Tried::Busy(busy) => Ok(Err(busy.holder)),
                Tried::TooLate => Err(too_late()),
            }
        }
    }

    /// The error of work under the guard, which is lost.
    pub(crate) fn lost_error(&self, loss: Loss) -> LostError {
        LostError::from(loss).about(&self.subject())
    }

    /// What a view of this hold needs.
    pub(crate) fn viewed(&self) -> Viewed {
        Viewed { term: Arc::clone(&self.term), token: self.token, subject: self.subject() }
    }

    /// What an error about this guard is about.
    pub(crate) fn subject(&self) -> Subject {
        self.hold.subject()
    }

    /// Why the lock is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.term.loss()
    }

    #[cfg(feature = "remote")]
    pub(crate) fn is_of(&self, hold: &Arc<Hold>) -> bool {
        Arc::ptr_eq(&self.hold, hold)
    }

    /// Records that the waiter has it that the hold was handed over to.
    #[cfg(feature = "remote")]
    pub(crate) fn taken(&self) {
        self.term.taken();
    }

    /// The number of permits that it guards.
    pub(crate) fn amount(&self) -> u32 {
        self.hold.key.amount
    }

    /// The ids of the permits that it guards, if they have ids.
    pub(crate) fn permit_ids(&self) -> Vec<PermitId> {
        PermitId::of(self.hold.key.owner, self.hold.key.amount).collect()
    }

    /// Stops tracking this hold; it must be released by other means.
    pub(crate) fn let_go(self) {
        Arc::clone(&self.hold).let_go(self);
    }

    /// Detaches the guard from its hold, which the caller releases by other means.
    pub(crate) fn disarm(&mut self) -> Arc<Term> {
        self.armed = false;
        Arc::clone(&self.term)
    }
}

impl Guarded for Guard {
    fn view(&self) -> HoldView {
        HoldView::one(self.viewed())
    }

    fn end(self) -> Operation<Result<(), ReleaseError>> {
        let release = self.release();
        Operation::new(async move { release.await.map(drop) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.hold.shared.warn.hold.is_some() {
            self.term.log_long_hold();
        }
        if self.armed {
            self.term.log_loss();
            self.hold.give_back(&self.term);
        }
        self.hold.shared.guard_gone();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// A successful release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// The hold count that the owner has left: zero when the lock is free.
    pub holds_left: u32,
}
