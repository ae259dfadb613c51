//! The proof that a lock is held, while it is.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Feature, Kind, RwOptions, Spot, Target};
use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::hold::{Entry, Hold, Tried};
use crate::lease;
use crate::loss::Loss;
use crate::operation::Operation;
use crate::owner::{Owner, OwnerId};
use crate::permit_id::PermitId;
use crate::race::{First, race};
use crate::term::Term;

/// A held lock.
///
/// It never lies: [`is_held`](Guard::is_held), [`remaining`](Guard::remaining) and [`run`](Guard::run) ask the
/// clock, not a flag, so loss is noticed no later than the engine could give the lock to somebody else, whatever
/// the network does. [`lost`](Guard::lost) tells it as an event, with the cause.
///
/// Dropping a guard releases the lock in the background, inside a runtime and outside.
/// [`release`](Guard::release) does the same and tells how it went.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
    term: Arc<Term>,
    token: Option<u64>,
    armed: bool,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, term: Arc<Term>, token: Option<u64>) -> Self {
        hold.shared.guard_made();
        Self { hold, term, token, armed: true }
    }

    /// Releases the lock and tells how it went.
    ///
    /// A lock that was entered several times is free when the last of its guards is released.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] with the cause if the lock was lost before: what ran under it may have run
    /// unprotected. [`ReleaseError::Unknown`] if the server gave no answer: the release goes on in the background.
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
    pub fn release(mut self) -> Operation<Result<Released, ReleaseError>> {
        Operation::new(async move {
            // The guard itself stays until the lock is released: a shutdown waits for it.
            let Self { hold, term, armed, .. } = &mut self;
            hold.release(term, armed).await.map(|holds_left| Released { holds_left })
        })
    }

    /// Resolves with the cause when the lock is lost.
    ///
    /// The future is independent of the guard. It resolves at once if the loss happened before anybody listened,
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
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.term.is_held()
    }

    /// How long the lock is sure to be held if nothing renews it from now on; zero once it is lost.
    ///
    /// For a lock without a lease, which is kept as long as the guard lives, it hovers below the watchdog time-out.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// Makes the lease last at least `length` from now, and returns the time that is left then.
    ///
    /// It never shortens anything, and never passes [`max_hold`](crate::Acquire::max_hold). A lock without a lease
    /// is kept anyway.
    ///
    /// # Errors
    ///
    /// [`ExtendError::NotHeld`] if the lock is lost: it does not come back. After any other error the lock is held
    /// at least as long as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was, or extended; the guard trusts only what it was told.
    pub fn extend(&self, length: Duration) -> Operation<Result<Duration, ExtendError>> {
        let hold = Arc::clone(&self.hold);
        let term = Arc::clone(&self.term);
        Operation::new(async move { hold.extend(&term, lease::checked("lease", length)?).await })
    }

    /// Runs `work` as long as the lock is held, and drops it where it is when the lock is lost.
    ///
    /// `Ok` means that the lock was held from the beginning to the end of the work.
    ///
    /// # Errors
    ///
    /// The cause, when the lock was lost before the work was done.
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
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        match race(pin!(Arc::clone(&self.term).lost()), pin!(work)).await {
            First::Left(loss) => Err(loss),
            // The work may have kept the thread busy past the deadline.
            First::Right(output) => self.term.loss().map_or(Ok(output), Err),
        }
    }

    /// Enters the lock once more, for a part of the work that wants a guard of its own.
    ///
    /// It never waits for anybody. All guards of a lock share one lease and one loss.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Lost`] if the lock is lost; a failure of the server; [`AcquireError::Invalid`] if the client is
    /// shut down, or the lock was taken by a handle that is not re-entrant.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lock entered as often as before.
    pub fn reenter(&self) -> Operation<Result<Self, AcquireError>> {
        let hold = Arc::clone(&self.hold);
        let term = Arc::clone(&self.term);
        Operation::new(async move {
            hold.shared.check_open()?;
            hold.reenter(&term).await
        })
    }

    /// Under which owner the lock is held. Good for logs, and to re-enter from elsewhere by
    /// [`as_owner`](crate::Acquire::as_owner).
    ///
    /// No later guard has this owner, which `Debug` tells, too. So a hold whose owner was asked for is not
    /// [handed over](crate::Lock::local_handover) to another task of this client: the lock is released at the server.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.hold.tell_owner();
        self.hold.spot.owner.into()
    }

    /// The fencing token of this hold, if one was asked for by [`fenced`](crate::Acquire::fenced).
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// The name of the lock, namespace included.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.spot.target.name.as_str()
    }

    /// Enters the other half of a read-write lock as the same owner, until this ends at the latest. The inner error is
    /// somebody else who is in the way.
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
            let Spot { target, owner, .. } = &hold.spot;
            let spot = Spot { target: Target::new(kind, target.name.clone()), owner: *owner, amount: 1 };
            let rw = RwOptions { upgrade, prefer_writers: false };
            let entry = Entry { rw, ..hold.entry_beside(&term).await? };
            match hold.shared.hold_of(spot)?.enter(&entry, None).await? {
                Tried::Granted(guard) => Ok(Ok(guard)),
                Tried::Busy(busy) => Ok(Err(busy.holder)),
            }
        }
    }

    /// Why the lock is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.term.loss()
    }

    #[cfg(feature = "remote")]
    pub(crate) fn is_of(&self, hold: &Arc<Hold>) -> bool {
        Arc::ptr_eq(&self.hold, hold)
    }

    /// How much of what it guards.
    pub(crate) fn amount(&self) -> u32 {
        self.hold.spot.amount
    }

    /// The ids of what it guards, if that has ids.
    pub(crate) fn permit_ids(&self) -> Vec<PermitId> {
        PermitId::of(self.hold.spot.owner, self.hold.spot.amount).collect()
    }

    /// Leaves what it guards as it is, for whoever gives it back otherwise.
    pub(crate) fn let_go(self) {
        Arc::clone(&self.hold).let_go(self);
    }

    /// Makes the guard forget its hold, for somebody who gives it back otherwise.
    pub(crate) fn disarm(&mut self) -> Arc<Term> {
        self.armed = false;
        Arc::clone(&self.term)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            self.hold.give_back(&self.term);
        }
        self.hold.shared.guard_gone();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("owner", &self.owner().to_string())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// A release that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// How often its owner still holds the lock: zero when it is free.
    pub holds_left: u32,
}
