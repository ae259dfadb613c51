//! The queue of a fair lock in memory.

use std::collections::BTreeMap;

use crate::engine::aftermath::Aftermath;
use crate::engine::line::{Line, MayTake};
use crate::engine::{Busy, Claim, Spot, Ticket};
use crate::owner::{Owner, OwnerId};
use crate::time::Now;

/// A line of which everybody can see who stands where.
#[derive(Debug)]
pub(super) struct Fair {
    pub(super) line: Line,
    waiters: BTreeMap<Ticket, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    owner: OwnerId,
    /// Wants to hear of every change of its place.
    watched: bool,
}

impl Default for Fair {
    fn default() -> Self {
        Self { line: Line::strict(), waiters: BTreeMap::new() }
    }
}

impl Fair {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn queue(&self) -> Vec<Owner> {
        let there = self.waiters.iter().filter(|(ticket, _)| self.line.position(**ticket).is_some());
        there.map(|(_, waiter)| waiter.owner.into()).collect()
    }

    pub(super) fn join(&mut self, spot: &Spot, ticket: Ticket) {
        self.line.join(ticket);
        self.waiters.insert(ticket, Waiter { owner: spot.owner, watched: false });
    }

    pub(super) fn leave(&mut self, ticket: Ticket, now: &Now) -> Aftermath {
        self.waiters.remove(&ticket);
        let after = self.line.leave(ticket, now);
        self.changed(after)
    }

    /// Whether the free lock may be taken, and what becomes of a head that did not come.
    pub(super) fn may_take(&mut self, turn: Option<Ticket>, now: &Now) -> (bool, Aftermath) {
        let after = self.line.throw_out_late(now);
        let after = self.changed(after);
        // Who has lost its place has to queue again.
        let thrown_out = turn.is_some_and(|ticket| self.line.position(ticket).is_none());
        (!thrown_out && self.line.may_take(turn, now) == MayTake::Yes, after)
    }

    /// What somebody who does not get the lock is told.
    pub(super) fn busy(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now, mut busy: Busy) -> Busy {
        if let Some(waiter) = turn.and_then(|ticket| self.waiters.get_mut(&ticket)) {
            waiter.watched = claim.queue.is_some_and(|queue| queue.watched);
        }
        busy.position = turn.and_then(|ticket| self.line.position(ticket));
        // Somebody has to look after a head that does not come.
        if let (true, MayTake::In(wait)) = (self.line.is_promised(), self.line.may_take(turn, now)) {
            busy.retry_in = Some(busy.retry_in.map_or(wait, |retry_in| retry_in.min(wait)));
        }
        busy
    }

    /// Lets those look who want to know of every change.
    fn changed(&mut self, after: Aftermath) -> Aftermath {
        let watched = self.waiters.iter().filter(|(_, waiter)| waiter.watched).map(|(ticket, _)| *ticket);
        let watched: Vec<_> = watched.collect();
        after.also_waking(watched.into_iter().filter_map(|ticket| self.line.hint(ticket)))
    }
}
