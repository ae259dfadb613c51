//! The plain lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Acquire, TryAcquire, Way};
use crate::back_off::BackOff;
use crate::client::Shared;
use crate::engine::{Feature, Holding, Question, Spot, Target};
use crate::error::{Invalid, QueryError, ReleaseError};
use crate::guard::Released;
use crate::operation::Operation;
use crate::owner::{Owner, OwnerId};

/// A lock by name: exclusive, re-entrant by owner, with a lease. Redisson's `RLock`.
///
/// At most one owner holds it at a time. Waiters of one process are served in the order in which they came.
/// Whoever needs the lock twice re-enters by [`Guard::reenter`](crate::Guard::reenter) or
/// [`as_owner`](Acquire::as_owner): two plain acquires in one task wait for each other for ever.
///
/// | Redisson | here |
/// |---|---|
/// | `lock()` | `acquire()` |
/// | `lock(lease)` | `acquire().lease(d)` |
/// | `tryLock()` | `try_acquire()` |
/// | `tryLock(wait, lease)` | `acquire().wait(w).lease(l)` |
/// | `unlock()` | `guard.release()`, dropping the guard, or `lock.as_owner(&owner).release()` |
#[derive(Clone)]
pub struct Lock {
    pub(crate) shared: Arc<Shared>,
    pub(crate) target: Result<Target, Invalid>,
    pub(crate) way: Way,
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, target: Result<Target, Invalid>, way: Way) -> Self {
        Self { shared, target, way }
    }

    /// The same lock, in a handle by which an owner that holds it does not enter again.
    ///
    /// A second acquire by the same owner fails with [`Invalid::NotReentrant`] at once, instead of counting, or of
    /// waiting for itself; and so does [`Guard::reenter`](crate::Guard::reenter) of a guard it gave. Redisson's
    /// `getNonReentrantLock`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use leasehold::{AcquireError, Invalid, Owner};
    ///
    /// let (lock, me) = (client.lock("stock:7").non_reentrant(), Owner::unique());
    /// let guard = lock.acquire().as_owner(&me).await?;
    /// let again = lock.acquire().as_owner(&me).await;
    /// assert!(matches!(again, Err(AcquireError::Invalid(Invalid::NotReentrant))));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn non_reentrant(mut self) -> Self {
        self.way.reentrant = false;
        self
    }

    /// The same lock, in a handle that does not stand in line but tries again after these pauses.
    #[must_use]
    pub fn back_off(mut self, back_off: BackOff) -> Self {
        self.way.spin = Some(back_off);
        self
    }

    /// Whether the lock goes from one waiter to the next inside this client without the server's hearing of it. On unless
    /// said otherwise.
    ///
    /// When many tasks of one process want the same lock, asking the server for each turn is what takes the time. So the
    /// hold of a plain [`acquire`](Lock::acquire) is given to the next task that waits for one here, for at most 50 ms since
    /// the server last gave it and for a limited number of turns; at the server its owner stays the same. Then it is released, and if others listen, they come first. It is the same for
    /// [`setnx_lock`](crate::Client::setnx_lock); but libraries that do not listen, and look from time to time instead,
    /// seldom find such a lock free while many tasks here want it. Acquisitions with a lease, a token, an owner of their
    /// own, or `max_hold`, and those of other locks, always ask the server; and a hold whose owner a caller was told, by
    /// [`Guard::owner`](crate::Guard::owner), [`holder`](Lock::holder) or an error of this client, is always released
    /// there: no two guards have an owner in common that this client has told. Another client that asks sees the hold, under
    /// the owner that the server has, whichever task has it.
    ///
    /// Off, every acquisition has an owner of its own, and everybody at the server sees each of them.
    #[must_use]
    pub fn local_handover(mut self, on: bool) -> Self {
        self.way.local_handover = on;
        self
    }

    /// Waits for the lock. See [`Acquire`] for the options.
    pub fn acquire(&self) -> Acquire {
        self.acquire_as()
    }

    pub(crate) fn with_way(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    pub(crate) fn acquire_as<G>(&self) -> Acquire<G> {
        Acquire::new(Arc::clone(&self.shared), self.target.clone(), self.way.clone())
    }

    /// Tries once: `None` when somebody else has it. See [`TryAcquire`] for the options.
    pub fn try_acquire(&self) -> TryAcquire {
        TryAcquire::new(self.acquire())
    }

    /// The lock in the hands of an owner, for those who have no guard.
    #[must_use]
    pub fn as_owner(&self, owner: &Owner) -> OwnedLock {
        OwnedLock { lock: self.clone(), owner: owner.clone() }
    }

    /// Who holds the lock, how often and for how long; `None` if it is free.
    ///
    /// # Errors
    ///
    /// [`QueryError::Failure`] if there was no answer; [`QueryError::Invalid`] for a name that cannot be. The
    /// same holds for every question below.
    ///
    /// # Cancel safety
    ///
    /// A question changes nothing.
    pub fn holder(&self) -> Operation<Result<Option<Holder>, QueryError>> {
        let (shared, target) = (Arc::clone(&self.shared), self.target.clone());
        Operation::new(async move {
            let target = target?;
            let holding = shared.engine.inspect(&Question::Holder(&target, None)).await?.holding;
            if let Some(owner) = holding.and_then(|holding| holding.owner) {
                shared.tell_owner(&target, owner);
            }
            Ok(holding.map(Holder::from))
        })
    }

    /// Whether anybody holds the lock.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    pub fn is_locked(&self) -> Operation<Result<bool, QueryError>> {
        self.ask(None, |holding| holding.is_some())
    }

    /// Whether `owner` holds the lock. Redisson's `isHeldByThread`.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    pub fn is_held_by(&self, owner: &Owner) -> Operation<Result<bool, QueryError>> {
        let owner = owner.at(self.shared.id);
        self.ask(Some(owner), move |holding| holding.is_some_and(|holding| holding.owner == Some(owner)))
    }

    /// How often `owner` holds the lock: zero if it does not.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    pub fn hold_count(&self, owner: &Owner) -> Operation<Result<u32, QueryError>> {
        let owner = owner.at(self.shared.id);
        self.ask(Some(owner), move |holding| {
            holding.filter(|holding| holding.owner == Some(owner)).map_or(0, |holding| holding.count)
        })
    }

    /// How long the engine keeps the lock from now on if nobody renews or releases it; `None` if it is free.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    pub fn remain_time_to_live(&self) -> Operation<Result<Option<Duration>, QueryError>> {
        self.ask(None, |holding| holding.map(|holding| holding.remaining))
    }

    /// The last fencing token that was minted for this name, by whomever; zero if none was.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    pub fn last_token(&self) -> Operation<Result<u64, QueryError>> {
        let (shared, target) = (Arc::clone(&self.shared), self.target.clone());
        Operation::new(async move {
            let target = target?;
            shared.check(Feature::Fenced)?;
            Ok(shared.engine.inspect(&Question::Token(&target)).await?.token)
        })
    }

    /// Frees the lock, whoever holds it; false if nobody did.
    ///
    /// The work of the holder may still be running: this is for an operator who knows better. Guards of the victim
    /// in this process are lost with [`Loss::ForceUnlocked`](crate::Loss::ForceUnlocked).
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder). After a failure the lock may be free or not.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it may take effect even if the future is dropped.
    pub fn force_unlock(&self) -> Operation<Result<bool, QueryError>> {
        let (shared, target) = (Arc::clone(&self.shared), self.target.clone());
        Operation::new(async move {
            let target = target?;
            shared.check(Feature::ForceUnlock)?;
            Ok(shared.engine.force(&target).await?)
        })
    }

    fn ask<T>(
        &self,
        owner: Option<OwnerId>,
        answer: impl FnOnce(Option<Holding>) -> T + Send + 'static,
    ) -> Operation<Result<T, QueryError>> {
        let (shared, target) = (Arc::clone(&self.shared), self.target.clone());
        Operation::new(async move {
            Ok(answer(shared.engine.inspect(&Question::Holder(&target?, owner)).await?.holding))
        })
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.target.as_ref().map(|target| target.name.as_str()))
            .finish_non_exhaustive()
    }
}

/// A lock in the hands of one owner, as [`Lock::as_owner`] gives it.
#[derive(Debug, Clone)]
pub struct OwnedLock {
    lock: Lock,
    owner: Owner,
}

impl OwnedLock {
    /// Gives back one of the owner's holds. Redisson's `unlock`.
    ///
    /// A guard of that hold that is still out is lost with [`Loss::Gone`](crate::Loss::Gone) when it was the last.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotOwner`] if the owner does not hold the lock; otherwise as for
    /// [`Guard::release`](crate::Guard::release).
    ///
    /// # Cancel safety
    ///
    /// Once begun, the hold is given back even if the future is dropped.
    pub fn release(&self) -> Operation<Result<Released, ReleaseError>> {
        let (shared, target) = (Arc::clone(&self.lock.shared), self.lock.target.clone());
        let owner = shared.own(&self.owner);
        Operation::new(async move {
            let hold = shared.hold_of(Spot { target: target?, owner: owner?, amount: 1 })?;
            hold.release_as_owner().await.map(|holds_left| Released { holds_left })
        })
    }
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Under which owner; `None` if it is no client of ours or of Redisson's, as can be with a
    /// [`setnx_lock`](crate::Client::setnx_lock).
    pub owner: Option<Owner>,
    /// How often it was entered.
    pub holds: u32,
    /// How long it stays held if nobody renews or releases it.
    pub remaining: Duration,
}

impl From<Holding> for Holder {
    fn from(holding: Holding) -> Self {
        Self { owner: holding.owner.map(Into::into), holds: holding.count, remaining: holding.remaining }
    }
}
