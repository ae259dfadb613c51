//! What the memory engine asks of a primitive, by what that is: one that is waited for, held, held alone, or counted.
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

/// A primitive that can be waited for, which all are.
pub(super) trait Waited {
    /// Whether it has a holder or a waiter.
    fn is_used(&self) -> bool;

    /// Whether there is nothing to remember of it.
    fn is_idle(&self) -> bool;

    /// The line of the waiters for this target.
    fn line(&mut self, target: &Target) -> &mut Line;

    /// The same, where a line is there only as long as it has waiters.
    fn line_if_any(&mut self, target: &Target) -> Option<&mut Line> {
        Some(self.line(target))
    }

    /// All lines that may have waiters.
    fn lines(&mut self) -> Vec<&mut Line>;

    fn listen(&mut self, spot: &Spot, ticket: Ticket) {
        self.line(&spot.target).join(ticket);
    }

    /// Joins the line, and tells whether what a try was told before is perhaps no longer so.
    fn join(&mut self, spot: &Spot, ticket: Ticket) -> bool {
        self.listen(spot, ticket);
        true
    }

    fn poll_hint(&mut self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> (Poll<()>, Aftermath) {
        self.line(&spot.target).poll_hint(ticket, context)
    }

    fn leave(&mut self, spot: &Spot, ticket: Ticket) -> Aftermath;

    /// One look of the sweep at the line of a target, if that has waiters.
    fn sweep(&mut self, target: &Target) -> Option<Aftermath> {
        self.line_if_any(target)?.sweep()
    }
}

/// A primitive that is taken and given back.
pub(super) trait Holdable: Waited {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath);
    fn release(&mut self, spot: &Spot, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath);
    fn renew(&mut self, spot: &Spot, length: Duration, now: &Now) -> (Renewed, Aftermath);
    fn abandon(&mut self, spot: &Spot, count: u32, now: &Now) -> Aftermath;
    fn term(&self, spot: &Spot) -> Option<Arc<Term>>;

    /// Forgets the holder, but not that it is held. A lock is held by its guards alone, and has nothing to forget.
    fn let_go(&mut self, _spot: &Spot, _now: &Now) -> Aftermath {
        Aftermath::default()
    }

    /// The client stops keeping what it holds here; how much that was.
    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath);
}

/// A primitive whose holder keeps others out: it can be asked who that is, and be freed by force.
pub(super) trait Exclusive: Holdable {
    fn force(&mut self, target: &Target, now: &Now) -> (bool, Aftermath);
    fn query(&mut self, target: &Target, owner: Option<OwnerId>, now: &Now) -> (Option<Holding>, Aftermath);

    /// The last token that was minted.
    fn token(&self) -> u64;

    /// The waiters in the queue of a fair lock.
    fn queue(&self) -> Vec<Owner> {
        Vec::new()
    }

    /// Everything that is held is removed behind the backs of the holders; false if nothing is.
    #[cfg(feature = "test-util")]
    fn remove(&mut self, now: &Now) -> (bool, Aftermath);
}

/// A primitive that has a count.
pub(super) trait Counted: Waited {
    /// A change that the primitive does not have changes nothing, and tells zero.
    fn adjust(&mut self, adjust: &Adjust, now: &Now) -> (i64, Aftermath);
}
