//! The queue of a fair lock in memory.

use std::collections::BTreeMap;

use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Busy, Claim, HoldKey, Ticket};
use crate::owner::{Owner, OwnerId};

/// A wait queue whose order can be queried.
#[derive(Debug)]
pub(super) struct Fair {
    pub(super) wait_queue: WaitQueue,
    waiters: BTreeMap<Ticket, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    owner: OwnerId,
    /// Is notified of every change of its position.
    watched: bool,
}

impl Default for Fair {
    fn default() -> Self {
        Self { wait_queue: WaitQueue::strict(), waiters: BTreeMap::new() }
    }
}

impl Fair {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn queue(&self) -> Vec<Owner> {
        let there = self.waiters.iter().filter(|(ticket, _)| self.wait_queue.position(**ticket).is_some());
        there.map(|(_, waiter)| waiter.owner.into()).collect()
    }

    pub(super) fn join(&mut self, key: &HoldKey, ticket: Ticket) {
        self.wait_queue.join(ticket);
        self.waiters.insert(ticket, Waiter { owner: key.owner, watched: false });
    }

    pub(super) fn leave(&mut self, ticket: Ticket, wake_next: bool) -> Aftermath {
        self.waiters.remove(&ticket);
        let after = self.wait_queue.leave(ticket, wake_next);
        self.changed(after)
    }

    /// One pass of the sweep, which may remove a waiter that has kept a free lock from all others.
    pub(super) fn sweep(&mut self) -> Option<Aftermath> {
        let before = self.wait_queue.len();
        let after = self.wait_queue.sweep()?;
        Some(if self.wait_queue.len() < before { self.changed(after) } else { after })
    }

    /// Whether the free lock may be taken.
    pub(super) fn may_take(&self, turn: Option<Ticket>) -> bool {
        // A waiter that has lost its position has to queue again.
        let is_removed = turn.is_some_and(|ticket| self.wait_queue.position(ticket).is_none());
        !is_removed && self.wait_queue.may_take(turn)
    }

    /// The result for a caller that does not get the lock.
    pub(super) fn busy(&mut self, claim: &Claim, turn: Option<Ticket>, mut busy: Busy) -> Busy {
        if let Some(waiter) = turn.and_then(|ticket| self.waiters.get_mut(&ticket)) {
            waiter.watched = claim.queue.is_some_and(|queue| queue.watched);
        }
        busy.position = turn.and_then(|ticket| self.wait_queue.position(ticket));
        busy
    }

    /// Wakes the waiters that watch their position.
    fn changed(&mut self, after: Aftermath) -> Aftermath {
        let watched = self.waiters.iter().filter(|(_, waiter)| waiter.watched).map(|(ticket, _)| *ticket);
        let watched: Vec<_> = watched.collect();
        after.also_waking(watched.into_iter().filter_map(|ticket| self.wait_queue.notify(ticket)))
    }
}
