//! A lock held on most of several servers.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::QuorumLock;
use super::round::{Answer, ask, numbered};
use crate::error::{ExtendError, ReleaseError};
use crate::guard::Guard;
use crate::loss::Loss;
use crate::operation::Operation;
use crate::owner::Owner;
use crate::race::{First, all, first, race};
use crate::time;

/// A lock held on a majority of servers. It is lost when it is held on fewer.
///
/// Dropping it gives all of them back, as [`release`](QuorumGuard::release) does.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct QuorumGuard {
    members: Arc<Members>,
}

/// The holds on the servers, missing where there is none yet.
#[derive(Debug)]
struct Members {
    lock: QuorumLock,
    owner: Owner,
    guards: Mutex<Vec<Option<Guard>>>,
    /// Given back by whoever had the guard: that is no loss.
    released: AtomicBool,
    /// Rings when a missing one was taken, and when all are given back.
    changed: Notify,
}

impl Members {
    fn guards(&self) -> MutexGuard<'_, Vec<Option<Guard>>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long each is held, the longest first. A majority is held for as long as the one in the middle.
    fn remaining(&self) -> Duration {
        let guards = self.guards();
        let mut remaining: Vec<_> =
            guards.iter().map(|guard| guard.as_ref().map(Guard::remaining).unwrap_or_default()).collect();
        remaining.sort_unstable_by(|one, other| other.cmp(one));
        remaining[self.lock.quorum() - 1]
    }

    fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Takes all of them out. From then on nothing is lost, and nothing taken.
    fn give_back(&self) -> Vec<Guard> {
        self.released.store(true, Ordering::SeqCst);
        let guards = self.guards().iter_mut().filter_map(Option::take).collect();
        self.changed.notify_waiters();
        guards
    }

    /// Adds one that was missing, unless it is too late.
    fn add(&self, number: usize, guard: Guard) {
        let mut guards = self.guards();
        if self.released.load(Ordering::SeqCst) {
            return;
        }
        let before = guards[number].replace(guard);
        drop(guards);
        drop(before);
        self.changed.notify_waiters();
    }

    /// Resolves with the cause when fewer than a majority are held, and never if they were given back.
    async fn lost(self: Arc<Self>) -> Loss {
        let mut cause = Loss::Unreachable;
        loop {
            let changed = self.changed.notified();
            if self.released.load(Ordering::SeqCst) {
                return std::future::pending().await;
            }
            if !self.is_held() {
                return cause;
            }
            let losses: Vec<_> =
                self.guards().iter().flatten().filter(|guard| guard.is_held()).map(Guard::lost).collect();
            if let First::Left(loss) = race(pin!(first(losses)), pin!(changed)).await {
                cause = loss;
            }
        }
    }

    /// Takes in the answers that are still to come, and then those that are missing from time to time, as long as somebody
    /// has the guard and it holds a majority.
    async fn heal(members: Weak<Self>, mut questions: Vec<Operation<Answer>>, every: Option<Duration>) {
        loop {
            for (number, answer) in all(questions).await {
                // A guard that comes when the others are gone is given back by being dropped.
                if let (Ok(Some(guard)), Some(members)) = (answer, members.upgrade()) {
                    members.add(number, guard);
                }
            }
            let Some(every) = every else { return };
            time::sleep_until(time::now() + every).await;
            questions = {
                let Some(members) = members.upgrade().filter(|members| members.is_held()) else { return };
                let guards = members.guards();
                let missing = guards
                    .iter()
                    .enumerate()
                    .filter(|(_, guard)| !guard.as_ref().is_some_and(Guard::is_held));
                missing
                    .map(|(number, _)| numbered(number, ask(&members.lock, number, &members.owner, None)))
                    .collect()
            };
        }
    }
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        // Whoever listens for a loss has a share in the members, and must not keep them held.
        drop(self.members.give_back());
    }
}

impl QuorumGuard {
    pub(super) fn new(
        lock: QuorumLock,
        owner: Owner,
        lease: Option<Duration>,
        guards: Vec<Option<Guard>>,
        asked: Vec<Operation<Answer>>,
    ) -> Self {
        let shortest = lock.members.iter().map(|member| member.shared.watchdog).min().unwrap_or_default();
        let members = Members {
            lock,
            owner,
            guards: Mutex::new(guards),
            released: AtomicBool::new(false),
            changed: Notify::new(),
        };
        let members = Arc::new(members);
        let every = lease.is_none().then_some(shortest / 3);
        time::spawn(Members::heal(Arc::downgrade(&members), asked, every));
        Self { members }
    }

    /// Releases the lock on all servers and tells how it went.
    ///
    /// # Errors
    ///
    /// If it was lost, or not released on a majority: [`ReleaseError`] with what one of the servers said. The release
    /// goes on in the background where there was no answer.
    ///
    /// # Cancel safety
    ///
    /// The lock is released even if the future is dropped.
    pub fn release(self) -> Operation<Result<(), ReleaseError>> {
        let quorum = self.members.lock.quorum();
        let releases: Vec<_> = self.members.give_back().into_iter().map(Guard::release).collect();
        Operation::new(async move {
            let (released, failed): (Vec<_>, Vec<_>) =
                all(releases).await.into_iter().partition(Result::is_ok);
            match failed.into_iter().find_map(Result::err) {
                Some(error) if released.len() < quorum => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// Makes the lease last at least `length` from now on all servers, and returns the time that is left on a majority.
    ///
    /// # Errors
    ///
    /// As for [`Guard::extend`](crate::Guard::extend), if fewer than a majority was extended.
    pub fn extend(&self, length: Duration) -> Operation<Result<Duration, ExtendError>> {
        let members = Arc::clone(&self.members);
        let extensions: Vec<_> =
            members.guards().iter().flatten().map(|guard| guard.extend(length)).collect();
        Operation::new(async move {
            let (extended, failed): (Vec<_>, Vec<_>) =
                all(extensions).await.into_iter().partition(Result::is_ok);
            match failed.into_iter().find_map(Result::err) {
                Some(error) if extended.len() < members.lock.quorum() => Err(error),
                _ => Ok(members.remaining()),
            }
        })
    }

    /// Whether the lock is held on a majority now, by the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.members.is_held()
    }

    /// How long the lock is sure to be held on a majority if nothing renews it from now on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.members.remaining()
    }

    /// On how many servers the lock is held now.
    #[must_use]
    pub fn votes(&self) -> usize {
        self.members.guards().iter().flatten().filter(|guard| guard.is_held()).count()
    }

    /// Resolves with the cause when the lock is held on fewer than a majority.
    pub fn lost(&self) -> Operation<Loss> {
        Operation::new(Arc::clone(&self.members).lost())
    }

    /// Runs `work` as long as the lock is held, and drops it where it is when the lock is lost. See
    /// [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    ///
    /// The cause, when the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the lock stays held by the guard.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        match race(self.lost(), pin!(work)).await {
            First::Left(loss) => Err(loss),
            // The work may have kept the thread busy past a deadline.
            First::Right(output) if self.is_held() => Ok(output),
            First::Right(_) => Err(self.lost().await),
        }
    }
}
