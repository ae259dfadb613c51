//! The interfaces of a primitive in the memory engine: it can be waited for, held, held exclusively, or counted.
//!
//! Each is a state machine of one name, without a clock or a mutex of its own.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Adjust, Attempt, Claim, HoldKey, Holding, Kind, Released, Renewed, Resource, Ticket};
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

    /// The wait queue of this resource.
    fn wait_queue(&mut self, resource: &Resource) -> &mut WaitQueue;

    /// The same, where a queue exists only as long as it has waiters.
    fn wait_queue_if_any(&mut self, resource: &Resource) -> Option<&mut WaitQueue> {
        Some(self.wait_queue(resource))
    }

    /// All wait queues that may have waiters.
    fn wait_queues(&mut self) -> Vec<&mut WaitQueue>;

    fn enqueue(&mut self, key: &HoldKey, ticket: Ticket) {
        self.wait_queue(&key.resource).join(ticket);
    }

    /// Joins the wait queue, and returns whether the result of an earlier attempt may be outdated.
    fn join(&mut self, key: &HoldKey, ticket: Ticket) -> bool {
        self.enqueue(key, ticket);
        true
    }

    fn poll_wake_up(
        &mut self,
        key: &HoldKey,
        ticket: Ticket,
        context: &mut Context<'_>,
    ) -> (Poll<()>, Aftermath) {
        self.wait_queue(&key.resource).poll_wake_up(ticket, context)
    }

    fn leave(&mut self, key: &HoldKey, ticket: Ticket) -> Aftermath;

    /// One pass of the sweep over the wait queue of a resource, if that has waiters.
    fn sweep(&mut self, resource: &Resource) -> Option<Aftermath> {
        self.wait_queue_if_any(resource)?.sweep()
    }
}

/// A primitive that is acquired and released.
pub(super) trait Holdable: Waited {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath);
    fn release(&mut self, key: &HoldKey, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath);
    fn renew(&mut self, key: &HoldKey, length: Duration, now: &Now) -> (Renewed, Aftermath);
    fn lower(&mut self, key: &HoldKey, count: u32, now: &Now) -> Aftermath;
    fn term(&self, key: &HoldKey) -> Option<Arc<Term>>;

    /// Ends a hold for its client, and leaves it for `rest` from now; false if it was gone. Only locks and permits with a lease
    /// are left like that.
    fn abandon(&mut self, _key: &HoldKey, _rest: Duration, _now: &Now) -> (bool, Aftermath) {
        (false, Aftermath::default())
    }

    /// Deletes the holder, but not the hold. A lock is held by its guards alone, and has nothing to delete.
    fn let_go(&mut self, _key: &HoldKey, _now: &Now) -> Aftermath {
        Aftermath::default()
    }

    /// The client stops renewing its holds here; returns how many there were.
    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath);
}

/// A primitive whose holder excludes others: its holder can be queried, and it can be freed by force.
pub(super) trait Exclusive: Holdable {
    fn force(&mut self, resource: &Resource, now: &Now) -> (bool, Aftermath);
    fn query(
        &mut self,
        resource: &Resource,
        owner: Option<OwnerId>,
        now: &Now,
    ) -> (Option<Holding>, Aftermath);

    /// The last token that was minted.
    fn token(&self) -> u64;

    /// How many holders this kind has, if it has any.
    fn holders(&self, _kind: Kind) -> usize {
        1
    }

    /// The values that are held, if it is a group, or as many of them as one lock may have.
    fn values(&self) -> Vec<Box<str>> {
        Vec::new()
    }

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
