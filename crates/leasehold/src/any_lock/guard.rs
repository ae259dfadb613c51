//! The guard of any lock.

use std::future::Future;
use std::time::Duration;

use crate::error::{LostError, ReleaseError};
use crate::fenced::FencedGuard;
use crate::guard::Guard;
use crate::hold_view::HoldView;
use crate::leased_semaphore::LeasedPermits;
use crate::loss::Loss;
use crate::multi_lock::MultiGuard;
use crate::operation::Operation;
use crate::permits::SemaphorePermits;
use crate::quorum_lock::QuorumGuard;
use crate::run::Guarded;
use crate::rw_lock::{ReadGuard, WriteGuard};

/// The guard of each lock.
#[derive(Debug)]
pub(super) enum Held {
    Lock(Guard),
    Fenced(FencedGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    All(MultiGuard),
    Quorum(QuorumGuard),
    Permits(SemaphorePermits),
    Leased(LeasedPermits),
}

/// A held lock of any kind, from [`AnyLock`](crate::AnyLock). Dropping it releases the lock in the background.
///
/// Permits of a [`Semaphore`](crate::Semaphore) count as held until the semaphore is deleted or has expired.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct AnyGuard(pub(super) Held);

impl AnyGuard {
    /// A view of the hold, which can be cloned and given to tasks that do a part of the work.
    #[must_use]
    pub fn view(&self) -> HoldView {
        Guarded::view(self)
    }

    /// Whether the lock is held now, by the clock. See [`Guard::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.view().is_held()
    }

    /// How long the lock is certainly held if nothing renews it from now on; zero once it is lost. See [`Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view().remaining()
    }

    /// The fencing token, if one was requested. A lock that consists of several has none.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.view().token()
    }

    /// Resolves with the cause when the lock is lost. See [`Guard::lost`].
    pub fn lost(&self) -> Operation<Loss> {
        self.view().lost()
    }

    /// Runs `work` as long as the lock is held, and drops it where it is when the lock is lost.
    ///
    /// # Errors
    ///
    /// [`LostError`] with the cause, when the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the lock stays held by the guard.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostError> {
        let view = self.view();
        let done = view.during(work).await?;
        // The work may have kept the thread busy past the deadline.
        view.check()?;
        Ok(done)
    }

    /// Releases the lock and returns the result. See [`Guard::release`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// The lock is released even if the future is dropped, before or after its first poll.
    pub fn release(self) -> Operation<Result<(), ReleaseError>> {
        self.end()
    }
}

impl Guarded for AnyGuard {
    fn view(&self) -> HoldView {
        match &self.0 {
            Held::Lock(guard) => guard.view(),
            Held::Fenced(guard) => guard.view(),
            Held::Read(guard) => guard.view(),
            Held::Write(guard) => guard.view(),
            Held::All(guard) => guard.view(),
            Held::Quorum(guard) => guard.view(),
            Held::Permits(guard) => guard.view(),
            Held::Leased(guard) => guard.view(),
        }
    }

    fn end(self) -> Operation<Result<(), ReleaseError>> {
        match self.0 {
            Held::Lock(guard) => guard.end(),
            Held::Fenced(guard) => guard.end(),
            Held::Read(guard) => guard.end(),
            Held::Write(guard) => guard.end(),
            Held::All(guard) => guard.end(),
            Held::Quorum(guard) => guard.end(),
            Held::Permits(guard) => guard.end(),
            Held::Leased(guard) => guard.end(),
        }
    }
}
