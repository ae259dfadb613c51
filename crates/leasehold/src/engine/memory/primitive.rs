//! The interfaces of a primitive in the memory engine: it can be waited for, held, held exclusively, or counted.
//!
//! Each is a state machine of one name, without a clock or a mutex of its own.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::Line;
use crate::engine::{Adjust, Attempt, Claim, Holding, Released, Renewed, Spot, Target, Ticket};
use crate::env::Now;
use crate::lease::Lease;
use crate::owner::{Owner, OwnerId};
use crate::term::Term;

/// A primitive that can be waited for, as all can.
pub(super) trait Waited {
    /// Whether it has a holder or a waiter.
    fn is_used(&self) -> bool;

    /// Whether there is no state to keep.
    fn is_idle(&self) -> bool;

    /// The wait queue of this target.
    fn line(&mut self, target: &Target) -> &mut Line;

    /// The same, where a queue exists only as long as it has waiters.
    fn line_if_any(&mut self, target: &Target) -> Option<&mut Line> {
        Some(self.line(target))
    }

    /// All wait queues that may have waiters.
    fn lines(&mut self) -> Vec<&mut Line>;

    fn listen(&mut self, spot: &Spot, ticket: Ticket) {
        self.line(&spot.target).join(ticket);
    }

    /// Joins the wait queue, and returns whether the result of an earlier attempt may be outdated.
    fn join(&mut self, spot: &Spot, ticket: Ticket) -> bool {
        self.listen(spot, ticket);
        true
    }

    fn poll_hint(&mut self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> (Poll<()>, Aftermath) {
        self.line(&spot.target).poll_hint(ticket, context)
    }

    fn leave(&mut self, spot: &Spot, ticket: Ticket) -> Aftermath;

    /// One pass of the sweep over the wait queue of a target, if that has waiters.
    fn sweep(&mut self, target: &Target) -> Option<Aftermath> {
        self.line_if_any(target)?.sweep()
    }
}

/// A primitive that is acquired and released.
pub(super) trait Holdable: Waited {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath);
    fn release(&mut self, spot: &Spot, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath);
    fn renew(&mut self, spot: &Spot, length: Duration, now: &Now) -> (Renewed, Aftermath);
    fn abandon(&mut self, spot: &Spot, count: u32, now: &Now) -> Aftermath;
    fn term(&self, spot: &Spot) -> Option<Arc<Term>>;

    /// Deletes the holder, but not the hold. A lock is held by its guards alone, and has nothing to delete.
    fn let_go(&mut self, _spot: &Spot, _now: &Now) -> Aftermath {
        Aftermath::default()
    }

    /// The client stops renewing its holds here; returns how many there were.
    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath);
}

/// A primitive whose holder excludes others: its holder can be queried, and it can be freed by force.
pub(super) trait Exclusive: Holdable {
    fn force(&mut self, target: &Target, now: &Now) -> (bool, Aftermath);
    fn query(&mut self, target: &Target, owner: Option<OwnerId>, now: &Now) -> (Option<Holding>, Aftermath);

    /// The last token that was minted.
    fn token(&self) -> u64;

    /// The waiters in the queue of a fair lock.
    fn queue(&self) -> Vec<Owner> {
        Vec::new()
    }

    /// Removes all holds without notifying the holders; false if there are none.
    #[cfg(feature = "test-util")]
    fn remove(&mut self, now: &Now) -> (bool, Aftermath);
}

/// A primitive that has a count.
pub(super) trait Counted: Waited {
    /// A change that the primitive does not support changes nothing, and returns zero.
    fn adjust(&mut self, adjust: &Adjust, now: &Now) -> (i64, Aftermath);
}
