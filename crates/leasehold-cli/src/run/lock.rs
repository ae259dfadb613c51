//! The lock of the kind that the options ask for.

use std::time::Duration;

use leasehold::{
    Acquire, AcquireError, Client, FairLock, Holder, LeasedSemaphore, Lock, Owner, QueryError, ReadLock,
    TryAcquire, WriteLock,
};

use super::held::Held;
use crate::options::RunOptions;

/// A handle of the kind that the options ask for.
#[derive(Debug)]
pub(super) enum RunLock {
    Plain(Lock),
    Fair(FairLock),
    /// The half to be held, and the one that excludes it.
    Shared(ReadLock, WriteLock),
    /// The half to be held, and the other one, which excludes it, too.
    Exclusive(WriteLock, ReadLock),
    Permits(LeasedSemaphore),
}

/// The options of a request for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) wait: Option<Duration>,
    pub(super) max_hold: Option<Duration>,
    /// `None` on an engine that has none.
    pub(super) min_hold: Option<Duration>,
    pub(super) fenced: bool,
}

impl RunLock {
    pub(super) fn new(client: &Client, options: &RunOptions) -> Self {
        let name = &options.name;
        let rw = client.rw_lock(name);
        match options.permits {
            Some(permits) => Self::Permits(client.leased_semaphore(name).with_permits(permits)),
            None if options.fair => Self::Fair(client.fair_lock(name)),
            None if options.shared => Self::Shared(rw.read(), rw.write()),
            None if options.exclusive => Self::Exclusive(rw.write(), rw.read()),
            None => Self::Plain(client.lock(name)),
        }
    }

    /// Waits for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no hold behind.
    pub(super) async fn acquire(&self, terms: Terms) -> Result<Held, AcquireError> {
        Ok(match self {
            Self::Plain(lock) if terms.fenced => waits(lock.acquire().fenced(), terms).await?.into(),
            Self::Plain(lock) => waits(lock.acquire(), terms).await?.into(),
            Self::Fair(lock) if terms.fenced => waits(lock.acquire().fenced(), terms).await?.into(),
            Self::Fair(lock) => waits(lock.acquire(), terms).await?.into(),
            Self::Shared(lock, _) => waits(lock.acquire(), terms).await?.into(),
            Self::Exclusive(lock, _) if terms.fenced => waits(lock.acquire().fenced(), terms).await?.into(),
            Self::Exclusive(lock, _) => waits(lock.acquire(), terms).await?.into(),
            Self::Permits(semaphore) => {
                let mut request = semaphore.acquire(1);
                if let Some(limit) = terms.wait {
                    request = request.wait(limit);
                }
                if let Some(min_hold) = terms.min_hold {
                    request = request.min_hold(min_hold);
                }
                Held::permit(request.await?, terms.max_hold)
            }
        })
    }

    /// Tries once: `None` if it is busy.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no hold behind.
    pub(super) async fn try_acquire(&self, terms: Terms) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Plain(lock) if terms.fenced => {
                tries(lock.try_acquire().fenced(), terms).await?.map(Held::from)
            }
            Self::Plain(lock) => tries(lock.try_acquire(), terms).await?.map(Held::from),
            Self::Fair(lock) if terms.fenced => {
                tries(lock.try_acquire().fenced(), terms).await?.map(Held::from)
            }
            Self::Fair(lock) => tries(lock.try_acquire(), terms).await?.map(Held::from),
            Self::Shared(lock, _) => tries(lock.try_acquire(), terms).await?.map(Held::from),
            Self::Exclusive(lock, _) if terms.fenced => {
                tries(lock.try_acquire().fenced(), terms).await?.map(Held::from)
            }
            Self::Exclusive(lock, _) => tries(lock.try_acquire(), terms).await?.map(Held::from),
            Self::Permits(semaphore) => {
                let mut request = semaphore.try_acquire(1);
                if let Some(min_hold) = terms.min_hold {
                    request = request.min_hold(min_hold);
                }
                request.await?.map(|permit| Held::permit(permit, terms.max_hold))
            }
        })
    }

    /// A holder that excludes a run with these options. A semaphore names none.
    pub(super) async fn holder(&self) -> Result<Option<Holder>, QueryError> {
        match self {
            Self::Plain(lock) => lock.holder().await,
            Self::Fair(lock) => lock.holder().await,
            Self::Shared(_, writer) => writer.holder().await,
            Self::Exclusive(writer, reader) => match writer.holder().await? {
                Some(holder) => Ok(Some(holder)),
                None => reader.holder().await,
            },
            Self::Permits(_) => Ok(None),
        }
    }

    /// Whether the hold with this [id](Held::id) excludes a run with these options.
    pub(super) async fn is_excluded_by(&self, id: &str) -> Result<bool, QueryError> {
        if let Self::Permits(semaphore) = self {
            let Ok(permit) = id.parse() else { return Ok(false) };
            return Ok(semaphore.lease_of(permit).await?.is_some());
        }
        let Ok(owner) = id.parse::<Owner>() else { return Ok(false) };
        match self {
            Self::Plain(lock) => lock.is_held_by(owner).await,
            Self::Fair(lock) => lock.is_held_by(owner).await,
            Self::Shared(_, writer) => writer.is_held_by(owner).await,
            Self::Exclusive(writer, reader) => {
                Ok(writer.is_held_by(&owner).await? || reader.is_held_by(&owner).await?)
            }
            Self::Permits(_) => Ok(false),
        }
    }

    /// A query that fails if the server is not reachable.
    pub(super) async fn check(&self) -> Result<(), QueryError> {
        match self {
            Self::Plain(lock) => lock.is_locked().await.map(drop),
            Self::Fair(lock) => lock.is_locked().await.map(drop),
            Self::Shared(lock, _) => lock.is_locked().await.map(drop),
            Self::Exclusive(lock, _) => lock.is_locked().await.map(drop),
            Self::Permits(semaphore) => semaphore.available().await.map(drop),
        }
    }
}

fn waits<G>(mut request: Acquire<G>, terms: Terms) -> Acquire<G> {
    if let Some(limit) = terms.wait {
        request = request.wait(limit);
    }
    if let Some(max_hold) = terms.max_hold {
        request = request.max_hold(max_hold);
    }
    if let Some(min_hold) = terms.min_hold {
        request = request.min_hold(min_hold);
    }
    request
}

fn tries<G>(mut request: TryAcquire<G>, terms: Terms) -> TryAcquire<G> {
    if let Some(max_hold) = terms.max_hold {
        request = request.max_hold(max_hold);
    }
    if let Some(min_hold) = terms.min_hold {
        request = request.min_hold(min_hold);
    }
    request
}
