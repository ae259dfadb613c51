//! The plain lock.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Acquire, HandleOptions, TryAcquire};
use crate::back_off::BackOff;
use crate::client::Shared;
use crate::engine::{Feature, HoldKey, Holding, Query, Resource};
use crate::error::{InvalidRequestError, QueryError, ReleaseError};
use crate::guard::Released;
use crate::identity::ClientInfo;
use crate::operation::Operation;
use crate::owner::{Owner, OwnerId};

/// A lock by name: exclusive, re-entrant by owner, with a lease. Redisson's `RLock`.
///
/// At most one owner holds it at a time. Waiters of one process are served in FIFO order.
/// A task that needs the lock twice re-enters it by [`Guard::reenter`](crate::Guard::reenter) or
/// [`as_owner`](Acquire::as_owner): two plain acquires in one task deadlock.
///
/// | Redisson | here |
/// |---|---|
/// | `lock()` | `acquire()` |
/// | `lock(lease)` | `acquire().lease(d)` |
/// | `tryLock()` | `try_acquire()` |
/// | `tryLock(wait, lease)` | `acquire().wait(w).lease(l)` |
/// | `unlock()` | `guard.release()`, dropping the guard, or `lock.as_owner(&owner).release()` |
#[doc(alias = "RLock")]
#[derive(Clone)]
pub struct Lock {
    pub(crate) shared: Arc<Shared>,
    pub(crate) resource: Result<Resource, InvalidRequestError>,
    pub(crate) options: HandleOptions,
}

impl Lock {
    pub(crate) fn new(
        shared: Arc<Shared>,
        resource: Result<Resource, InvalidRequestError>,
        options: HandleOptions,
    ) -> Self {
        Self { shared, resource, options }
    }

    /// The same lock, in a handle that does not allow its owner to re-enter.
    ///
    /// A second acquire by the same owner fails with [`InvalidRequestError::NotReentrant`] at once, instead of counting, or of
    /// waiting for itself. So does [`Guard::reenter`](crate::Guard::reenter) of a guard from this handle. Redisson's
    /// `getNonReentrantLock`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use leasehold::{AcquireError, InvalidRequestError, Owner};
    ///
    /// let (lock, me) = (client.lock("stock:7").non_reentrant(), Owner::unique());
    /// let guard = lock.acquire().as_owner(&me).await?;
    /// let again = lock.acquire().as_owner(&me).await;
    /// assert!(matches!(again, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getNonReentrantLock")]
    #[must_use]
    pub fn non_reentrant(mut self) -> Self {
        self.options.reentrant = false;
        self
    }

    /// The same lock, in a handle that does not join the wait queue but retries after these pauses.
    #[must_use]
    pub fn back_off(mut self, back_off: BackOff) -> Self {
        self.options.spin = Some(back_off);
        self
    }

    /// Whether the lock may be handed over from one waiter to the next inside this client without a request to the server.
    /// On by default.
    ///
    /// When many tasks of one process contend for the same lock, the request to the server for each turn takes most of the
    /// time. So the hold of a plain [`acquire`](Lock::acquire) is handed over to the next local waiter, for at most 50 ms
    /// since the server last granted it and for a limited number of turns; at the server its owner stays the same. Then it
    /// is released, and waiters of other clients that are subscribed come first. The same applies to
    /// [`setnx_lock`](crate::Client::setnx_lock); but libraries that poll instead of subscribing seldom find such a lock free
    /// while many local tasks contend for it. Acquisitions with a lease, a token, their own owner or `max_hold`, and those of
    /// other locks, always send a request to the server. A hold whose owner a caller has received, by
    /// [`Guard::owner`](crate::Guard::owner), [`holder`](Lock::holder) or an error of this client, is always released
    /// there: no two guards share an owner that this client has returned. A query by another client returns the hold under
    /// the owner that the server has, whichever task holds it.
    ///
    /// Off, every acquisition has its own owner, and is visible at the server.
    #[must_use]
    pub fn local_handover(mut self, on: bool) -> Self {
        self.options.local_handover = on;
        self
    }

    /// Waits for the lock. See [`Acquire`] for the options.
    #[doc(alias = "lock")]
    #[doc(alias = "tryLock")]
    #[doc(alias = "lockInterruptibly")]
    pub fn acquire(&self) -> Acquire {
        self.acquire_as()
    }

    pub(crate) fn with_options(mut self, options: HandleOptions) -> Self {
        self.options = options;
        self
    }

    pub(crate) fn acquire_as<G>(&self) -> Acquire<G> {
        Acquire::new(Arc::clone(&self.shared), self.resource.clone(), self.options.clone())
    }

    /// Tries once: `None` when another owner holds it or is next. See [`TryAcquire`] for the options.
    #[doc(alias = "tryLock")]
    pub fn try_acquire(&self) -> TryAcquire {
        TryAcquire::new(self.acquire())
    }

    /// The lock as seen by `owner`, for code that has no guard.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use leasehold::Owner;
    ///
    /// let (lock, me) = (client.lock("stock:7"), Owner::unique());
    /// let guard = lock.acquire().as_owner(&me).await?;
    /// assert!(lock.is_held_by(guard.owner()).await?);
    /// lock.as_owner(&me).release().await?;
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn as_owner(&self, owner: impl Borrow<Owner>) -> OwnerLock {
        OwnerLock { lock: self.clone(), owner: owner.borrow().clone() }
    }

    /// The holder of the lock, with its hold count, its remaining time and what is known of its client; `None` if the lock is
    /// free.
    ///
    /// On a server the client is found by a second request. If that fails, the client is not known.
    ///
    /// # Errors
    ///
    /// [`QueryError::Server`] if there was no usable reply; [`QueryError::Invalid`] if the name is invalid. The
    /// same holds for every query below.
    ///
    /// # Cancel safety
    ///
    /// A query changes nothing.
    pub fn holder(&self) -> Operation<Result<Option<Holder>, QueryError>> {
        self.shared.operation(self.resource.clone(), |shared, resource| async move {
            let Some(holding) = shared.engine.inspect(&Query::Holder(&resource, None)).await?.holding else {
                return Ok(None);
            };
            let mut client = None;
            if let Some(owner) = holding.owner {
                shared.expose_owner(&resource, owner);
                client = client_of(&shared, &resource, owner).await;
            }
            Ok(Some(Holder::new(holding, client)))
        })
    }

    /// Whether the lock is held.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    #[doc(alias = "isLocked")]
    pub fn is_locked(&self) -> Operation<Result<bool, QueryError>> {
        self.query_holder(None, |holding| holding.is_some())
    }

    /// Whether `owner` holds the lock. Redisson's `isHeldByThread`.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    #[doc(alias = "isHeldByThread")]
    #[doc(alias = "isHeldByCurrentThread")]
    pub fn is_held_by(&self, owner: impl Borrow<Owner>) -> Operation<Result<bool, QueryError>> {
        let owner = owner.borrow().at(self.shared.id);
        self.query_holder(Some(owner), move |holding| {
            holding.is_some_and(|holding| holding.owner == Some(owner))
        })
    }

    /// The hold count of `owner`: zero if it does not hold the lock.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    #[doc(alias = "getHoldCount")]
    pub fn hold_count(&self, owner: impl Borrow<Owner>) -> Operation<Result<u32, QueryError>> {
        let owner = owner.borrow().at(self.shared.id);
        self.query_holder(Some(owner), move |holding| {
            holding.filter(|holding| holding.owner == Some(owner)).map_or(0, |holding| holding.count)
        })
    }

    /// How long until the lock expires if it is not renewed or released; `None` if it is free.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    #[doc(alias = "remainTimeToLive")]
    pub fn ttl(&self) -> Operation<Result<Option<Duration>, QueryError>> {
        self.query_holder(None, |holding| holding.map(|holding| holding.remaining))
    }

    /// The last fencing token that was issued for this name, to any client; zero if none was, or if its counter has expired by
    /// [`token_retention`](crate::ConnectOptions::token_retention).
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    #[doc(alias = "getToken")]
    pub fn last_token(&self) -> Operation<Result<u64, QueryError>> {
        self.shared.operation(self.resource.clone(), |shared, resource| async move {
            shared.check(Feature::Fenced)?;
            shared.check(Feature::LastToken)?;
            Ok(shared.engine.inspect(&Query::Token(&resource)).await?.token)
        })
    }

    /// Frees the lock in place of its holder; false if it had none.
    ///
    /// The work of the holder may still be running: this is a tool for operators. Guards of that holder in this process
    /// are lost with [`Loss::ForceUnlocked`](crate::Loss::ForceUnlocked).
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder). After a failure the lock may be free or not.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it may take effect even if the future is dropped.
    #[doc(alias = "forceUnlock")]
    pub fn force_unlock(&self) -> Operation<Result<bool, QueryError>> {
        self.shared.operation(self.resource.clone(), |shared, resource| async move {
            shared.check(Feature::ForceUnlock)?;
            Ok(shared.engine.force(&resource).await?)
        })
    }

    fn query_holder<T>(
        &self,
        owner: Option<OwnerId>,
        map: impl FnOnce(Option<Holding>) -> T + Send + 'static,
    ) -> Operation<Result<T, QueryError>> {
        self.shared.operation(self.resource.clone(), move |shared, resource| async move {
            Ok(map(shared.engine.inspect(&Query::Holder(&resource, owner)).await?.holding))
        })
    }
}

/// What is known of the client of an owner.
pub(crate) async fn client_of(shared: &Shared, resource: &Resource, owner: OwnerId) -> Option<ClientInfo> {
    let result = shared.engine.inspect(&Query::Client(resource, owner.client)).await.ok()?;
    result.client.map(|info| *info)
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.resource.as_ref().map(|resource| resource.name.as_str()))
            .finish_non_exhaustive()
    }
}

/// A lock as seen by one owner, from [`Lock::as_owner`].
#[derive(Debug, Clone)]
pub struct OwnerLock {
    lock: Lock,
    owner: Owner,
}

impl OwnerLock {
    /// Releases one count of the owner's hold. Redisson's `unlock`.
    ///
    /// Guards of that hold that still exist are lost with [`Loss::Gone`](crate::Loss::Gone) when it was the last count.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotOwner`] if the owner does not hold the lock; otherwise as for
    /// [`Guard::release`](crate::Guard::release).
    ///
    /// # Cancel safety
    ///
    /// Once begun, the count is released even if the future is dropped.
    #[doc(alias = "unlock")]
    pub fn release(&self) -> Operation<Result<Released, ReleaseError>> {
        let Lock { shared, resource, .. } = &self.lock;
        let owner = shared.own(&self.owner);
        shared.operation(resource.clone(), |shared, resource| async move {
            let hold = shared.hold_of(HoldKey { resource, owner: owner?, amount: 1 })?;
            hold.release_as_owner().await.map(|holds_left| Released { holds_left })
        })
    }
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner; `None` if the holder is not a client of this library or of Redisson: of any other library for a
    /// [`setnx_lock`](crate::Client::setnx_lock), of a port of Redisson for others.
    pub owner: Option<Owner>,
    /// The hold count.
    pub holds: u32,
    /// How long until it expires if it is not renewed or released.
    pub remaining: Duration,
    /// The client of the owner, as far as it is known: `None` for a client of Redisson and for an
    /// [anonymous](crate::ConnectOptions::anonymous) one.
    pub client: Option<ClientInfo>,
}

impl Holder {
    pub(crate) fn new(holding: Holding, client: Option<ClientInfo>) -> Self {
        let Holding { owner, count, remaining } = holding;
        Self { owner: owner.map(Into::into), holds: count, remaining, client }
    }
}
