//! The guard of a lock that is held on a majority of servers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::QuorumLock;
use super::members::{End, MemberReply, Members};
use crate::env;
use crate::error::{ExtendError, LostError, ReleaseError};
use crate::guard::Guard;
use crate::hold_view::HoldView;
use crate::loss::Loss;
use crate::operation::Operation;
use crate::owner::Owner;
use crate::race::{First, race};
use crate::run::Guarded;

/// A lock held on a majority of servers. It is lost when it is held on fewer.
///
/// Loss is final, and has one cause: that of the member whose loss broke the majority. Then the votes of the other servers
/// are released, and a later vote does not restore the lock. A majority must be held without a gap: if a server replies
/// that a vote is gone, and that may have happened before another vote replaced it, the lock is lost, too.
///
/// Dropping it releases all votes, as [`release`](QuorumGuard::release) does.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct QuorumGuard {
    members: Arc<Members>,
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        // A listener for the loss shares the members, and must not keep them held.
        self.members.give_back();
    }
}

impl QuorumGuard {
    pub(super) fn new(
        lock: QuorumLock,
        owner: Owner,
        lease: Option<Duration>,
        guards: Vec<Option<Guard>>,
        pending: Vec<Operation<MemberReply>>,
    ) -> Self {
        let shortest = lock.members.iter().map(|member| member.shared.watchdog).min().unwrap_or_default();
        let every = lease.is_none().then_some(shortest / 3);
        let members = Members::new(lock, owner, guards, pending);
        env::spawn(Arc::clone(&members).heal(every));
        Self { members }
    }

    /// Releases the lock on all servers and returns the result.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] with the cause if it was lost; [`ReleaseError::Unknown`] with the failure of one of the
    /// servers if it was not released on a majority. The release continues in the background where there was no reply.
    ///
    /// # Cancel safety
    ///
    /// The lock is released even if the future is dropped.
    pub fn release(self) -> Operation<Result<(), ReleaseError>> {
        self.members.release()
    }

    /// Makes the lease last at least `length` from now on all servers, and returns the time that is left on a majority.
    ///
    /// # Errors
    ///
    /// As for [`Guard::extend`](crate::Guard::extend), if fewer than a majority was extended.
    pub fn extend(&self, length: Duration) -> Operation<Result<Duration, ExtendError>> {
        let members = Arc::clone(&self.members);
        Operation::new(async move { members.extend(length).await })
    }

    /// Whether the lock is held on a majority now, by the clock, and was all the time. Once false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.members.end().is_none()
    }

    /// How long the lock is certainly held on a majority if nothing renews it from now on; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.members.remaining()
    }

    /// The number of servers on which the lock is held now; zero once it is lost.
    #[must_use]
    pub fn votes(&self) -> usize {
        self.members.votes()
    }

    /// Resolves with the cause when the lock is held on fewer than a majority: at once if it was lost before, and never
    /// after a release.
    pub fn lost(&self) -> Operation<Loss> {
        Members::lost(Arc::clone(&self.members))
    }

    /// Runs `work` as long as the lock is held, and drops it where it is when the lock is lost. See
    /// [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    ///
    /// [`LostError`] with the cause, when the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the lock stays held by the guard.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostError> {
        match race(self.lost(), pin!(work)).await {
            First::Left(loss) => Err(self.members.lost_error(loss)),
            // The work may have kept the thread busy past a deadline.
            First::Right(output) => match self.members.end() {
                Some(End::Lost(loss)) => Err(self.members.lost_error(loss)),
                Some(End::Released) | None => Ok(output),
            },
        }
    }
}

impl Guarded for QuorumGuard {
    fn view(&self) -> HoldView {
        HoldView::majority(Arc::clone(&self.members))
    }

    fn end(self) -> Operation<Result<(), ReleaseError>> {
        self.release()
    }
}
