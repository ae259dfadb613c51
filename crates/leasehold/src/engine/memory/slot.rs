//! What the memory engine knows about one name: a state machine per family, without a clock or a lock of its own.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::group::Group;
use super::latch::Latch;
use super::lock::Lock;
use super::permits::Permits;
use super::rw::Rw;
use super::semaphore::Semaphore;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::Line;
use crate::engine::{Adjust, Attempt, Busy, Claim, Family, Holding, Released, Renewed, Spot, Target, Ticket};
use crate::lease::Lease;
use crate::owner::{Owner, OwnerId};
use crate::term::Term;
use crate::time::Now;

/// The state of one family under one name.
#[derive(Debug)]
pub(super) enum Slot {
    Lock(Lock),
    /// Boxed like all others: the plain lock, of which there are most, need not be as large as the largest.
    Rw(Box<Rw>),
    Group(Box<Group>),
    Semaphore(Box<Semaphore>),
    Permits(Box<Permits>),
    Latch(Box<Latch>),
}

impl Slot {
    pub(super) fn new(family: Family) -> Self {
        match family {
            Family::Lock | Family::SetNx => Self::Lock(Lock::default()),
            Family::Rw => Self::Rw(Box::default()),
            Family::Group => Self::Group(Box::default()),
            Family::Semaphore => Self::Semaphore(Box::default()),
            Family::Permits => Self::Permits(Box::default()),
            Family::Latch => Self::Latch(Box::default()),
        }
    }

    pub(super) fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Self::Lock(lock) => lock,
            Self::Rw(rw) => rw.as_mut(),
            Self::Group(group) => group.as_mut(),
            Self::Semaphore(semaphore) => semaphore.as_mut(),
            Self::Permits(permits) => permits.as_mut(),
            Self::Latch(latch) => latch.as_mut(),
        }
    }
}

/// The verbs of an engine, for one name and at one moment.
pub(super) trait Machine {
    /// Whether anybody holds or wants it.
    fn is_used(&self) -> bool;

    /// Whether there is nothing to remember. Tokens that were minted are remembered for good.
    fn is_idle(&self) -> bool {
        !self.is_used() && self.token() == 0
    }

    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath);
    fn release(&mut self, spot: &Spot, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath);
    fn force(&mut self, target: &Target, now: &Now) -> (bool, Aftermath);
    fn renew(&mut self, spot: &Spot, length: Duration, now: &Now) -> (Renewed, Aftermath);
    fn abandon(&mut self, spot: &Spot, count: u32, now: &Now) -> Aftermath;
    fn term(&self, spot: &Spot) -> Option<Arc<Term>>;
    fn query(&mut self, target: &Target, owner: Option<OwnerId>, now: &Now) -> (Option<Holding>, Aftermath);

    fn token(&self) -> u64 {
        0
    }

    /// For those that count.
    fn adjust(&mut self, _adjust: &Adjust, _now: &Now) -> (i64, Aftermath) {
        unreachable!("a lock has no counter")
    }

    /// Forgets who holds it, but not that it is held. For those that can be held without a guard.
    fn let_go(&mut self, _spot: &Spot, _now: &Now) -> Aftermath {
        unreachable!("a lock is held by its guards alone")
    }

    /// Those who stand in the queue of a fair lock.
    fn queue(&self) -> Vec<Owner> {
        Vec::new()
    }

    /// Where those stand who wait for this.
    fn line(&mut self, target: &Target) -> &mut Line;

    /// The same, where a line is there only as long as somebody stands in it.
    fn line_if_any(&mut self, target: &Target) -> Option<&mut Line> {
        Some(self.line(target))
    }

    /// Where anybody stands in line.
    fn lines(&mut self) -> Vec<&mut Line>;

    fn listen(&mut self, spot: &Spot, ticket: Ticket) {
        self.line(&spot.target).join(ticket);
    }

    /// Joins the line, and tells whether what a try was told before is perhaps no longer so.
    fn join(&mut self, spot: &Spot, ticket: Ticket, _told: Busy) -> bool {
        self.listen(spot, ticket);
        true
    }

    fn poll_hint(&mut self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> (Poll<()>, Aftermath) {
        self.line(&spot.target).poll_hint(ticket, context)
    }

    fn leave(&mut self, spot: &Spot, ticket: Ticket, now: &Now) -> Aftermath {
        self.line(&spot.target).leave(ticket, now)
    }

    /// The client stops keeping what it holds here; how much that was.
    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath);

    /// What is held is removed behind everybody's back; false if there is none.
    #[cfg(feature = "test-util")]
    fn remove(&mut self, now: &Now) -> (bool, Aftermath);
}
