//! A group of values in memory. Each owner can hold a set that does not overlap with the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::held::Held;
use super::primitive::{Exclusive, Holdable, Waited};
use super::tokens::Tokens;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Attempt, Busy, Claim, HoldKey, Holding, Kind, Released, Renewed, Resource, Ticket};
use crate::env::{Instant, Now};
use crate::lease::Lease;
use crate::limits;
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::term::Term;

/// Values, their holders and their waiters.
#[derive(Debug, Default)]
pub(super) struct Group {
    holds: BTreeMap<HoldKey, Held>,
    /// The hold that a value belongs to. A broken hold has fewer values than it took.
    taken: BTreeMap<Box<str>, HoldKey>,
    /// One for each set that has waiters.
    wait_queues: BTreeMap<Resource, WaitQueue>,
    tokens: Tokens,
}

impl Waited for Group {
    fn is_used(&self) -> bool {
        !self.holds.is_empty() || !self.wait_queues.is_empty()
    }

    fn is_idle(&self) -> bool {
        // Minted tokens are kept for good.
        !self.is_used() && self.token() == 0
    }

    fn wait_queue(&mut self, resource: &Resource) -> &mut WaitQueue {
        self.wait_queues.entry(resource.clone()).or_default()
    }

    fn wait_queue_if_any(&mut self, resource: &Resource) -> Option<&mut WaitQueue> {
        self.wait_queues.get_mut(resource)
    }

    fn wait_queues(&mut self) -> Vec<&mut WaitQueue> {
        self.wait_queues.values_mut().collect()
    }

    fn leave(&mut self, key: &HoldKey, ticket: Ticket) -> Aftermath {
        let Some(queue) = self.wait_queues.get_mut(&key.resource) else { return Aftermath::default() };
        // The end that the next waiter saw, if it saw one, was that of earlier holds.
        let after = queue.leave(ticket, true);
        if queue.is_empty() {
            self.wait_queues.remove(&key.resource);
        }
        after
    }
}

impl Holdable for Group {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let resource = &claim.key.resource;
        let mut after = self.expire(resource, now);
        let whole = self.is_whole(claim.key);
        if let Some(held) = self.holds.get_mut(claim.key) {
            if held.count != claim.held || !whole {
                return (Attempt::Gone, after);
            }
            let before = held.ends();
            let until = held.reenter(claim, now);
            let sooner = (before, held.ends());
            return (
                Attempt::Granted(Some(until), self.tokens.mint(claim)),
                after.and(self.wake_if_sooner(resource, sooner)),
            );
        }
        if claim.held > 0 {
            return (Attempt::Gone, after);
        }
        let others = self.holders(resource);
        if claim.steal {
            after = after.and(self.break_off(&others, resource, Loss::TakenOver, now));
        } else if let Some(other) = others.first() {
            let ends = others.iter().map(|other| self.holds[other].ends());
            let end: Option<Vec<_>> = ends.collect();
            let end = end.and_then(|ends| ends.into_iter().max());
            let retry_in = end.map(|at| at.saturating_duration_since(now.get()));
            return (Attempt::Busy(Busy { retry_in, holder: Some(other.owner), ..Busy::default() }), after);
        } else if self.wait_queues.get(resource).is_some_and(|queue| !queue.may_take(turn)) {
            return (Attempt::Busy(Busy::default()), after);
        }
        for (_, queue) in self.wait_queues.iter_mut().filter(|(set, _)| set.overlaps(resource)) {
            queue.withdraw();
        }
        let (held, until) = Held::new(claim, now);
        for value in resource.values() {
            self.taken.insert(value.clone(), claim.key.clone());
        }
        self.holds.insert(claim.key.clone(), held);
        (Attempt::Granted(Some(until), self.tokens.mint(claim)), after)
    }

    fn release(&mut self, key: &HoldKey, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.expire(&key.resource, now);
        let whole = self.is_whole(key);
        match self.holds.get_mut(key) {
            Some(held) if whole && held.count == from => {
                held.count -= 1;
                if held.count == 0 {
                    return (Released::Left(0, None), after.and(self.end(key, Loss::Gone)));
                }
                (Released::Left(held.count, Some(held.extend(lease.length(), now))), after)
            }
            _ => (Released::NotHeld, after.and(self.lower(key, from.saturating_sub(1), now))),
        }
    }

    fn renew(&mut self, key: &HoldKey, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let after = self.expire(&key.resource, now);
        let whole = self.is_whole(key);
        let held = self.holds.get_mut(key).filter(|_| whole);
        (held.map_or(Renewed::Gone, |held| Renewed::Until(held.extend(length, now))), after)
    }

    fn lower(&mut self, key: &HoldKey, count: u32, now: &Now) -> Aftermath {
        let after = self.expire(&key.resource, now);
        match self.holds.get_mut(key) {
            Some(_) if count == 0 => after.and(self.end(key, Loss::Gone)),
            Some(held) => {
                held.count = held.count.min(count);
                after
            }
            None => after,
        }
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        self.holds.get(key).map(|held| Arc::clone(&held.term))
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let mut changed = Vec::new();
        let mut after = Aftermath::default();
        for (key, held) in self.holds.iter_mut().filter(|(key, _)| key.owner.client == client) {
            let before = held.ends();
            held.retire(now);
            changed.push((key.resource.clone(), (before, held.ends())));
            after = after.and(held.lose(Loss::Shutdown));
        }
        for (resource, ends) in &changed {
            after = after.and(self.wake_if_sooner(resource, *ends));
        }
        (changed.len(), after)
    }
}

impl Exclusive for Group {
    fn holders(&self, _kind: Kind) -> usize {
        self.holds.len()
    }

    fn values(&self) -> Vec<Box<str>> {
        self.taken.keys().take(limits::MOST_VALUES).cloned().collect()
    }

    fn force(&mut self, resource: &Resource, now: &Now) -> (bool, Aftermath) {
        let after = self.expire(resource, now);
        let holders = self.holders(resource);
        (!holders.is_empty(), after.and(self.break_off(&holders, resource, Loss::ForceUnlocked, now)))
    }

    fn query(
        &mut self,
        resource: &Resource,
        owner: Option<OwnerId>,
        now: &Now,
    ) -> (Option<Holding>, Aftermath) {
        let after = self.expire(resource, now);
        let held = |value| self.taken.get(value).map(|key| self.holds[key].holding(now));
        let all: Vec<_> = resource.values().iter().map(held).collect();
        let remaining = all.iter().flatten().map(|holding| holding.remaining).max();
        let holding = match owner {
            // The queried owner holds all of them, or does not hold the set.
            Some(_) if !all.iter().all(|one| one.is_some_and(|one| one.owner == owner)) => None,
            Some(_) => all.iter().flatten().min_by_key(|holding| holding.count),
            None => all.iter().flatten().next(),
        };
        let holding = holding.map(|one| Holding { remaining: remaining.unwrap_or_default(), ..*one });
        (holding, after)
    }

    fn token(&self) -> u64 {
        self.tokens.last()
    }

    #[cfg(feature = "test-util")]
    fn remove(&mut self, _now: &Now) -> (bool, Aftermath) {
        let keys: Vec<_> = self.holds.keys().cloned().collect();
        let after = keys.iter().fold(Aftermath::default(), |after, key| {
            let ended = self.end(key, Loss::Gone);
            after.and(ended)
        });
        (!keys.is_empty(), after)
    }
}

impl Group {
    /// The holders of any of the values, each once.
    fn holders(&self, resource: &Resource) -> Vec<HoldKey> {
        let mut holders: Vec<HoldKey> = Vec::new();
        for key in resource.values().iter().filter_map(|value| self.taken.get(value)) {
            if !holders.contains(key) {
                holders.push(key.clone());
            }
        }
        holders
    }

    /// Whether a hold has all the values that it took.
    fn is_whole(&self, key: &HoldKey) -> bool {
        key.resource.values().iter().all(|value| self.taken.get(value) == Some(key))
    }

    /// Removes expired holds of these values. There is no timer: the next request does it.
    fn expire(&mut self, resource: &Resource, now: &Now) -> Aftermath {
        let is_over = |key: &HoldKey| self.holds[key].ends().is_some_and(|at| now.get() >= at);
        let over: Vec<_> = self.holders(resource).into_iter().filter(is_over).collect();
        over.iter().fold(Aftermath::default(), |after, key| {
            let ended = self.end(key, Loss::Expired);
            after.and(ended)
        })
    }

    /// Ends a hold. Notifies its guards, if they are not notified yet.
    fn end(&mut self, key: &HoldKey, loss: Loss) -> Aftermath {
        let Some(held) = self.holds.remove(key) else { return Aftermath::default() };
        for value in key.resource.values() {
            if self.taken.get(value) == Some(key) {
                self.taken.remove(value);
            }
        }
        held.lose(loss).and(self.wake_waiters(&key.resource))
    }

    /// Takes some values from their holders. The holders keep their other values until they release them, as on a server,
    /// which does not store which values belong together; but nothing renews them.
    fn break_off(&mut self, holders: &[HoldKey], resource: &Resource, loss: Loss, now: &Now) -> Aftermath {
        for value in resource.values() {
            self.taken.remove(value);
        }
        let mut after = Aftermath::default();
        for key in holders {
            let left = key.resource.values().iter().any(|value| self.taken.get(value) == Some(key));
            match self.holds.get_mut(key).filter(|_| left) {
                Some(held) => {
                    let before = held.ends();
                    held.retire(now);
                    let (ends, lost) = ((before, held.ends()), held.lose(loss));
                    after = after.and(lost).and(self.wake_if_sooner(&key.resource, ends));
                }
                None => after = after.and(self.end(key, loss)),
            }
        }
        after.and(self.wake_waiters(resource))
    }

    /// Reserves free values for the front waiters since these values were freed. The other front waiters retry to learn when
    /// theirs will be free.
    fn wake_waiters(&mut self, freed: &Resource) -> Aftermath {
        let Self { wait_queues, taken, .. } = self;
        let queues = wait_queues.iter_mut().filter(|(set, _)| set.overlaps(freed));
        Aftermath::waking(queues.filter_map(|(set, queue)| {
            if set.values().iter().any(|value| taken.contains_key(value)) {
                queue.notify_front()
            } else if queue.is_reserved() {
                None
            } else {
                queue.reserve()
            }
        }))
    }

    /// Wakes the front waiters if the hold that they saw as lasting until the first of these now ends at the second, sooner.
    fn wake_if_sooner(&mut self, resource: &Resource, ends: (Option<Instant>, Option<Instant>)) -> Aftermath {
        let queues = self.wait_queues.iter_mut().filter(|(set, _)| set.overlaps(resource));
        Aftermath::waking(queues.filter_map(|(_, queue)| queue.notify_front_if_sooner(ends.0, ends.1)))
    }
}
