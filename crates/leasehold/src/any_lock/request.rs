//! Requests for any lock.

use std::future::IntoFuture;
use std::time::Duration;

use super::guard::{AnyGuard, Held};
use crate::acquire::{Acquire, TryAcquire};
use crate::error::{AcquireError, unless_busy};
use crate::fenced::FencedGuard;
use crate::leased_semaphore::LeasedPermits;
use crate::multi_lock::AcquireAll;
use crate::operation::Operation;
use crate::permits::{AcquirePermits, TryAcquirePermits};
use crate::quorum_lock::AcquireQuorum;
use crate::run::{runs_work, runs_work_if_free};
use crate::rw_lock::{ReadGuard, WriteGuard};

/// The request of each lock.
#[derive(Debug, Clone)]
pub(super) enum Request {
    Lock(Acquire),
    Fenced(Acquire<FencedGuard>),
    Read(Acquire<ReadGuard>),
    Write(Acquire<WriteGuard>),
    All(AcquireAll),
    Quorum(AcquireQuorum),
    Permits(AcquirePermits),
    Leased(AcquirePermits<LeasedPermits>),
}

impl Request {
    fn wait(self, limit: Duration) -> Self {
        match self {
            Self::Lock(request) => Self::Lock(request.wait(limit)),
            Self::Fenced(request) => Self::Fenced(request.wait(limit)),
            Self::Read(request) => Self::Read(request.wait(limit)),
            Self::Write(request) => Self::Write(request.wait(limit)),
            Self::All(request) => Self::All(request.wait(limit)),
            Self::Quorum(request) => Self::Quorum(request.wait(limit)),
            Self::Permits(request) => Self::Permits(request.wait(limit)),
            Self::Leased(request) => Self::Leased(request.wait(limit)),
        }
    }

    /// An error if a call that blocks would wait for its own thread.
    fn check_waits_for_others(&self) -> Result<(), AcquireError> {
        match self {
            Self::Lock(request) => request.check_waits_for_others(),
            Self::Fenced(request) => request.check_waits_for_others(),
            Self::Read(request) => request.check_waits_for_others(),
            Self::Write(request) => request.check_waits_for_others(),
            Self::All(request) => request.check_waits_for_others(),
            Self::Quorum(_) | Self::Permits(_) | Self::Leased(_) => Ok(()),
        }
    }

    async fn acquire(self) -> Result<Held, AcquireError> {
        Ok(match self {
            Self::Lock(request) => Held::Lock(request.await?),
            Self::Fenced(request) => Held::Fenced(request.await?),
            Self::Read(request) => Held::Read(request.await?),
            Self::Write(request) => Held::Write(request.await?),
            Self::All(request) => Held::All(request.await?),
            Self::Quorum(request) => Held::Quorum(request.await?),
            Self::Permits(request) => Held::Permits(request.await?),
            Self::Leased(request) => Held::Leased(request.await?),
        })
    }

    /// One attempt. Those of locks and permits have a request of their own, which names no holder.
    async fn try_acquire(self) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Lock(request) => TryAcquire::new(request).await?.map(Held::Lock),
            Self::Fenced(request) => TryAcquire::new(request).await?.map(Held::Fenced),
            Self::Read(request) => TryAcquire::new(request).await?.map(Held::Read),
            Self::Write(request) => TryAcquire::new(request).await?.map(Held::Write),
            Self::All(request) => unless_busy(request.wait(Duration::ZERO).await)?.map(Held::All),
            Self::Quorum(request) => unless_busy(request.wait(Duration::ZERO).await)?.map(Held::Quorum),
            Self::Permits(request) => TryAcquirePermits::new(request).await?.map(Held::Permits),
            Self::Leased(request) => TryAcquirePermits::new(request).await?.map(Held::Leased),
        })
    }
}

/// Any lock to be waited for: options first, then `.await` or [`block`](AnyAcquire::block). From [`AnyLock`](crate::AnyLock).
///
/// # Errors
///
/// As for the request of the lock itself, such as [`Acquire`].
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind.
#[derive(Debug, Clone)]
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct AnyAcquire(pub(super) Request);

impl AnyAcquire {
    /// Waits at most this long, then gives up with [`AcquireError::Timeout`]. Zero: one attempt.
    pub fn wait(self, limit: Duration) -> Self {
        Self(self.0.wait(limit))
    }

    /// Acquires from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`AnyAcquire`].
    #[track_caller]
    pub fn block(self) -> Result<AnyGuard, AcquireError> {
        self.0.check_waits_for_others()?;
        self.into_future().block()
    }
}

impl IntoFuture for AnyAcquire {
    type Output = Result<AnyGuard, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move { self.0.acquire().await.map(AnyGuard) })
    }
}

runs_work!([] AnyAcquire);

/// One attempt at any lock, then `.await` or [`block`](AnyTryAcquire::block). From [`AnyLock`](crate::AnyLock).
///
/// Gives `None` if the lock is busy.
///
/// # Errors
///
/// As for the attempt at the lock itself, such as [`TryAcquire`].
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind.
#[derive(Debug, Clone)]
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct AnyTryAcquire(Request);

impl AnyTryAcquire {
    pub(super) fn new(acquire: AnyAcquire) -> Self {
        Self(acquire.0)
    }

    /// Tries from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`AnyTryAcquire`].
    #[track_caller]
    pub fn block(self) -> Result<Option<AnyGuard>, AcquireError> {
        self.into_future().block()
    }
}

impl IntoFuture for AnyTryAcquire {
    type Output = Result<Option<AnyGuard>, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move { self.0.try_acquire().await.map(|held| held.map(AnyGuard)) })
    }
}

runs_work_if_free!([] AnyTryAcquire);
