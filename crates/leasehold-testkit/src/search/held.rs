//! Guards of all primitives.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{
    AcquireError, Client, ExtendError, FencedGuard, Guard, LeasedPermits, Loss, MultiGuard, Operation, Owner,
    QuorumGuard, ReadGuard, ReleaseError, SemaphorePermits, WriteGuard,
};

use super::resource::Resource;

/// A future in a box.
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A guard.
#[derive(Debug)]
pub(super) enum Held {
    /// Of a lock.
    Lock(Guard),
    /// Of a lock with a token.
    Fenced(FencedGuard),
    /// Of a read half.
    Read(ReadGuard),
    /// Of a write half.
    Write(WriteGuard),
    /// Of several locks.
    Multi(MultiGuard),
    /// Of most of several servers.
    Quorum(QuorumGuard),
    /// Of counted permits.
    Permits(SemaphorePermits),
    /// Of permits with a lease.
    Leased(LeasedPermits),
}

impl Held {
    fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Lock(guard) => Some(guard),
            Self::Fenced(guard) => Some(guard),
            Self::Read(guard) => Some(guard),
            Self::Write(guard) => Some(guard),
            Self::Leased(guard) => Some(guard),
            Self::Multi(_) | Self::Quorum(_) | Self::Permits(_) => None,
        }
    }

    /// Whether the guard reports that it is held. Counted permits cannot be lost.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::Multi(guard) => guard.is_held(),
            Self::Quorum(guard) => guard.is_held(),
            other => other.guard().is_none_or(Guard::is_held),
        }
    }

    /// Resolves when it is lost, for guards that can be.
    pub(super) fn lost(&self) -> Option<Operation<Loss>> {
        match self {
            Self::Multi(guard) => Some(guard.lost()),
            Self::Quorum(guard) => Some(guard.lost()),
            other => Some(other.guard()?.lost()),
        }
    }

    /// Why it is lost, as the guard reports it now. Has to be called inside of a runtime.
    pub(super) fn loss(&self) -> Option<Loss> {
        match Pin::new(&mut self.lost()?).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(loss) => Some(loss),
            Poll::Pending => None,
        }
    }

    /// The token, where there is one.
    pub(super) fn token(&self) -> Option<u64> {
        if let Self::Fenced(guard) = self { Some(guard.token()) } else { None }
    }

    /// The owner, where there is one.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.guard().map(Guard::owner)
    }

    pub(super) fn extend(&self, length: Duration) -> Option<Operation<Result<Duration, ExtendError>>> {
        match self {
            Self::Multi(guard) => Some(guard.extend(length)),
            Self::Quorum(guard) => Some(guard.extend(length)),
            other => Some(other.guard()?.extend(length)),
        }
    }

    pub(super) fn reenter(&self) -> Option<Boxed<Result<Self, AcquireError>>> {
        match self {
            Self::Lock(guard) => Some(mapped(guard.reenter(), Self::Lock)),
            Self::Fenced(guard) => Some(mapped(guard.reenter(), Self::Fenced)),
            Self::Read(guard) => Some(mapped(guard.reenter(), Self::Read)),
            Self::Write(guard) => Some(mapped(guard.reenter(), Self::Write)),
            Self::Multi(_) | Self::Quorum(_) | Self::Permits(_) | Self::Leased(_) => None,
        }
    }

    pub(super) fn release(self) -> Boxed<Result<(), ReleaseError>> {
        match self {
            Self::Lock(guard) => Box::pin(async { guard.release().await.map(drop) }),
            Self::Fenced(guard) => Box::pin(async { guard.release().await.map(drop) }),
            Self::Read(guard) => Box::pin(async { guard.release().await.map(drop) }),
            Self::Write(guard) => Box::pin(async { guard.release().await.map(drop) }),
            Self::Multi(guard) => Box::pin(guard.release()),
            Self::Quorum(guard) => Box::pin(guard.release()),
            Self::Permits(guard) => Box::pin(guard.release()),
            Self::Leased(guard) => Box::pin(guard.release()),
        }
    }

    /// Whether all of it is held, as another client sees it; none if there is no query for it.
    pub(super) fn queried_elsewhere(
        &self,
        resource: Resource,
        observer: &Client,
    ) -> Option<Boxed<Option<bool>>> {
        if let Self::Multi(guard) = self {
            let members: Vec<_> = guard
                .members()
                .iter()
                .map(|member| observer.lock(member.name()).is_held_by(member.owner()))
                .collect();
            return Some(Box::pin(async {
                let mut all = true;
                for member in members {
                    all &= member.await.ok()?;
                }
                Some(all)
            }));
        }
        if let Self::Leased(guard) = self {
            let semaphore = observer.leased_semaphore(resource.name());
            let leases: Vec<_> = guard.ids().into_iter().map(|id| semaphore.lease_of(id)).collect();
            return Some(Box::pin(async {
                let mut all = true;
                for lease in leases {
                    all &= lease.await.ok()?.is_some();
                }
                Some(all)
            }));
        }
        let query = resource.lock(observer)?.is_held_by(self.owner()?);
        Some(Box::pin(async { query.await.ok() }))
    }
}

fn mapped<G: Send + 'static>(
    operation: Operation<Result<G, AcquireError>>,
    held: fn(G) -> Held,
) -> Boxed<Result<Held, AcquireError>> {
    Box::pin(async move { operation.await.map(held) })
}
