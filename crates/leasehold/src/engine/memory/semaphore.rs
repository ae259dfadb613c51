//! The counting semaphore in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::primitive::{Counted, Holdable, Waited};
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Adjust, Attempt, Busy, Claim, HoldKey, Released, Renewed, Resource, Ticket};
use crate::env::{Instant, Now};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::term::{Term, Until};

#[derive(Debug, Default)]
pub(super) struct Semaphore {
    /// None until permits are set or released.
    free: Option<i64>,
    /// When the count expires.
    ends: Option<Instant>,
    holds: BTreeMap<OwnerId, Held>,
    wait_queue: WaitQueue,
}

/// Permits of a guard.
#[derive(Debug)]
struct Held {
    amount: u32,
    term: Arc<Term>,
}

impl Waited for Semaphore {
    fn is_used(&self) -> bool {
        !self.holds.is_empty() || !self.wait_queue.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.is_used() && self.free.is_none()
    }

    fn wait_queue(&mut self, _resource: &Resource) -> &mut WaitQueue {
        &mut self.wait_queue
    }

    fn wait_queues(&mut self) -> Vec<&mut WaitQueue> {
        vec![&mut self.wait_queue]
    }

    fn leave(&mut self, _key: &HoldKey, ticket: Ticket) -> Aftermath {
        // One waiter after the other, as long as permits are free.
        self.wait_queue.leave(ticket, self.free.is_some_and(|free| free > 0))
    }
}

impl Holdable for Semaphore {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let after = self.expire(now);
        let HoldKey { owner, amount, .. } = *claim.key;
        let busy = |retry_in| Attempt::Busy(Busy { retry_in, ..Busy::default() });
        if self.holds.contains_key(&owner) {
            return (Attempt::Gone, after);
        }
        if self.free.unwrap_or(0) < i64::from(amount) {
            // A front waiter that finds too few permits has retried: what it waits for is not reserved yet.
            if turn.is_some_and(|ticket| self.wait_queue.is_front(ticket)) {
                self.wait_queue.withdraw();
            }
            return (busy(None), after);
        }
        if !self.wait_queue.may_take(turn) {
            return (busy(None), after);
        }
        self.wait_queue.withdraw();
        self.free = self.free.map(|free| free - i64::from(amount));
        self.holds.insert(owner, Held { amount, term: Arc::clone(claim.term) });
        (Attempt::Granted(Some(Until::Kept(claim.lease.length())), None), after)
    }

    fn release(&mut self, key: &HoldKey, _from: u32, _lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.expire(now);
        match self.holds.remove(&key.owner) {
            Some(held) => (Released::Left(0, None), after.and(self.add(held.amount.into()))),
            None => (Released::NotHeld, after),
        }
    }

    fn renew(&mut self, key: &HoldKey, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let after = self.expire(now);
        let held = self.holds.contains_key(&key.owner);
        (if held { Renewed::Until(Until::Kept(length)) } else { Renewed::Gone }, after)
    }

    fn lower(&mut self, key: &HoldKey, _count: u32, now: &Now) -> Aftermath {
        self.release(key, 1, Lease::Kept(Duration::ZERO), now).1
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        self.holds.get(&key.owner).map(|held| Arc::clone(&held.term))
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let after = self.expire(now);
        let ours = self.holds.iter().filter(|(owner, held)| owner.client == client && held.term.is_held());
        let terms: Vec<_> = ours.map(|(_, held)| Arc::clone(&held.term)).collect();
        (terms.len(), after.and(Aftermath::losing(terms, Loss::Shutdown)))
    }

    fn let_go(&mut self, key: &HoldKey, _now: &Now) -> Aftermath {
        self.holds.remove(&key.owner);
        Aftermath::default()
    }
}

impl Counted for Semaphore {
    fn adjust(&mut self, adjust: &Adjust, now: &Now) -> (i64, Aftermath) {
        let before = self.expire(now);
        let (free, nothing) = (self.free, Aftermath::default());
        let (result, after) = match *adjust {
            Adjust::TrySet { .. } if free.is_some() => (0, nothing),
            Adjust::TrySet { count, ttl } => {
                let after = self.add(count.into());
                self.ends = ttl.map(|ttl| now.get() + ttl);
                (1, after)
            }
            Adjust::Add(permits) => {
                let after = self.add(permits.into());
                self.ends = None;
                (self.free.unwrap_or(0), after)
            }
            Adjust::Give { create: false, .. } if free.is_none() => (0, nothing),
            Adjust::Give { count, .. } => (1, self.add(count.into())),
            Adjust::Drain => {
                self.free = free.map(|_| 0);
                self.ends = None;
                (free.unwrap_or(0), nothing)
            }
            Adjust::Delete => (free.is_some().into(), self.delete()),
            Adjust::Count => (free.unwrap_or(0), nothing),
            Adjust::Exists => (free.is_some().into(), nothing),
            _ => (0, nothing),
        };
        (result, before.and(after))
    }
}

impl Semaphore {
    /// Deletes an expired count. Its permits do not belong to the next count of that name.
    fn expire(&mut self, now: &Now) -> Aftermath {
        let is_over = self.ends.is_some_and(|at| at <= now.get());
        if is_over { self.delete() } else { Aftermath::default() }
    }

    fn add(&mut self, permits: i64) -> Aftermath {
        let free = self.free.unwrap_or(0).saturating_add(permits);
        self.free = Some(free);
        Aftermath::waking(if free > 0 { self.wait_queue.reserve() } else { None })
    }

    fn delete(&mut self) -> Aftermath {
        (self.free, self.ends) = (None, None);
        let all = std::mem::take(&mut self.holds).into_values();
        Aftermath::losing(all.map(|held| held.term), Loss::Gone)
    }
}
