//! The semaphore whose permits have a lease, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::primitive::{Counted, Holdable, Waited};
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Adjust, Attempt, Busy, Claim, HoldKey, Released, Renewed, Resource, Ticket};
use crate::env::{Instant, Now};
use crate::lease::{Bounds, Lease, PERMANENT};
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::permit_id::PermitId;
use crate::term::{Term, Until};

#[derive(Debug, Default)]
pub(super) struct Permits {
    /// None until a count is set.
    free: Option<i64>,
    taken: BTreeMap<PermitId, Permit>,
    holds: BTreeMap<OwnerId, Held>,
    wait_queue: WaitQueue,
}

/// An acquired permit.
#[derive(Debug)]
struct Permit {
    /// None if its guard keeps it or it has no lease.
    ends: Option<Instant>,
    /// The owner of the guard that it belongs to.
    owner: Option<OwnerId>,
}

/// Permits of a guard.
#[derive(Debug)]
struct Held {
    amount: u32,
    lease: Lease,
    term: Arc<Term>,
}

impl Waited for Permits {
    fn is_used(&self) -> bool {
        !self.taken.is_empty() || !self.wait_queue.is_empty()
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
        // The next waiter has to learn when to retry, also if no permit is free.
        self.wait_queue.leave(ticket, true)
    }
}

impl Holdable for Permits {
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
            let next = self.taken.values().filter_map(|permit| permit.ends).min();
            return (busy(next.map(|ends| ends.saturating_duration_since(now.get()))), after);
        }
        if !self.wait_queue.may_take(turn) {
            return (busy(None), after);
        }
        self.wait_queue.withdraw();
        self.free = self.free.map(|free| free - i64::from(amount));
        let ends = match claim.lease {
            Lease::Kept(_) | Lease::Fixed(PERMANENT) => None,
            Lease::Fixed(length) => Some(now.get() + length),
        };
        for id in PermitId::of(owner, amount) {
            self.taken.insert(id, Permit { ends, owner: Some(owner) });
        }
        self.holds.insert(owner, Held { amount, lease: claim.lease, term: Arc::clone(claim.term) });
        (Attempt::Granted(Some(until(claim.lease, ends, now)), None), after)
    }

    fn release(&mut self, key: &HoldKey, _from: u32, _lease: Lease, now: &Now) -> (Released, Aftermath) {
        let mut after = self.expire(now);
        let all = self.give(key, &mut after);
        (if all { Released::Left(0, None) } else { Released::NotHeld }, after)
    }

    fn renew(&mut self, key: &HoldKey, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let after = self.expire(now);
        let Some(held) = self.holds.get(&key.owner) else { return (Renewed::Gone, after) };
        let mut first = None;
        for id in PermitId::of(key.owner, key.amount) {
            if let Some(ends) = self.taken.get_mut(&id).and_then(|permit| permit.ends.as_mut()) {
                *ends = (*ends).max(now.get() + length);
                first = first.into_iter().chain([*ends]).min();
            }
        }
        (Renewed::Until(until(held.lease, first, now)), after)
    }

    fn lower(&mut self, key: &HoldKey, _count: u32, now: &Now) -> Aftermath {
        let mut after = self.expire(now);
        self.give(key, &mut after);
        after
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        self.holds.get(&key.owner).map(|held| Arc::clone(&held.term))
    }

    fn abandon(&mut self, key: &HoldKey, rest: Duration, now: &Now) -> (bool, Aftermath) {
        let mut after = self.expire(now);
        let ids: Vec<_> = PermitId::of(key.owner, key.amount).collect();
        if ids.iter().any(|id| !self.taken.contains_key(id)) {
            return (false, after);
        }
        let ends = Some(now.get() + rest);
        for id in ids {
            self.taken.insert(id, Permit { ends, owner: None });
        }
        self.holds.remove(&key.owner);
        after.wake = self.wait_queue.notify_front_if_sooner(None, ends).or(after.wake.take());
        (true, after)
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let mut after = self.expire(now);
        let ours = self.holds.iter().filter(|(owner, held)| owner.client == client && held.term.is_held());
        let ours: Vec<_> = ours.map(|(owner, _)| *owner).collect();
        for owner in &ours {
            self.lose(*owner, Loss::Shutdown, &mut after, now);
        }
        (ours.len(), after)
    }

    fn let_go(&mut self, key: &HoldKey, now: &Now) -> Aftermath {
        let mut after = Aftermath::default();
        self.detach(key.owner, &mut after, now);
        after
    }
}

impl Counted for Permits {
    fn adjust(&mut self, adjust: &Adjust, now: &Now) -> (i64, Aftermath) {
        let mut after = self.expire(now);
        let free = self.free.unwrap_or(0);
        let result = match adjust {
            Adjust::TrySet { .. } if self.free.is_some() => 0,
            Adjust::TrySet { count, .. } => {
                self.add((*count).into(), &mut after);
                1
            }
            Adjust::Set(count) => {
                let total = if self.free.is_some() { self.total() } else { 0 };
                self.add(i64::from(*count) - total, &mut after);
                0
            }
            Adjust::Add(permits) => {
                self.add((*permits).into(), &mut after);
                self.free.unwrap_or(0)
            }
            Adjust::GiveIds(ids) if ids.iter().any(|id| !self.taken.contains_key(id)) => 0,
            Adjust::GiveIds(ids) => {
                let owners =
                    ids.iter().filter_map(|id| self.taken.remove(id)).filter_map(|permit| permit.owner);
                for owner in owners.collect::<Vec<_>>() {
                    self.lose(owner, Loss::Gone, &mut after, now);
                }
                let given = i64::try_from(ids.len()).unwrap_or(i64::MAX);
                self.add(given, &mut after);
                given
            }
            Adjust::SetLease(id, length) => {
                let Some(permit) = self.taken.get_mut(id) else { return (0, after) };
                permit.ends = length.map(|length| now.get() + length);
                after.wake = self.wait_queue.notify_front_if_sooner(None, permit.ends).or(after.wake);
                1
            }
            Adjust::Delete => {
                let existed = self.free.take().is_some();
                self.taken.clear();
                for owner in self.holds.keys().copied().collect::<Vec<_>>() {
                    self.lose(owner, Loss::Gone, &mut after, now);
                }
                existed.into()
            }
            Adjust::Count => free,
            Adjust::Exists => self.free.is_some().into(),
            Adjust::Taken => self.total() - free,
            Adjust::Total if self.free.is_none() => 0,
            Adjust::Total => self.total(),
            Adjust::LeaseOf(id) => self.lease_of(id, now),
            Adjust::Give { .. } | Adjust::Drain | Adjust::CountDown => 0,
        };
        (result, after)
    }
}

impl Permits {
    /// Takes expired permits back. There is no timer: the next request does it.
    fn expire(&mut self, now: &Now) -> Aftermath {
        let mut after = Aftermath::default();
        let mut expired = Vec::new();
        self.taken.retain(|_, permit| {
            let over = permit.ends.is_some_and(|ends| ends <= now.get());
            if over {
                expired.push(permit.owner);
            }
            !over
        });
        if !expired.is_empty() {
            self.add(i64::try_from(expired.len()).unwrap_or(i64::MAX), &mut after);
            for owner in expired.into_iter().flatten() {
                self.lose(owner, Loss::Expired, &mut after, now);
            }
        }
        after
    }

    fn add(&mut self, permits: i64, after: &mut Aftermath) {
        let free = self.free.unwrap_or(0).saturating_add(permits);
        self.free = Some(free);
        if free > 0 {
            after.wake = self.wait_queue.reserve().or(after.wake.take());
        }
    }

    /// Takes the rest of a hold back; true if that is all of it.
    fn give(&mut self, key: &HoldKey, after: &mut Aftermath) -> bool {
        let ids = PermitId::of(key.owner, key.amount);
        let given = ids.filter(|id| self.taken.remove(id).is_some()).count();
        self.holds.remove(&key.owner);
        if given > 0 {
            self.add(i64::try_from(given).unwrap_or(i64::MAX), after);
        }
        u32::try_from(given) == Ok(key.amount)
    }

    /// Notifies a guard that it has lost permits.
    fn lose(&mut self, owner: OwnerId, loss: Loss, after: &mut Aftermath, now: &Now) {
        if let Some(term) = self.detach(owner, after, now) {
            *after = std::mem::take(after).and(Aftermath::losing([term], loss));
        }
    }

    /// Detaches the permits from their guard. Kept permits end as on a server, where they are no longer renewed.
    fn detach(&mut self, owner: OwnerId, after: &mut Aftermath, now: &Now) -> Option<Arc<Term>> {
        let held = self.holds.remove(&owner)?;
        let ends = match held.lease {
            Lease::Kept(length) => Some(now.get() + length),
            Lease::Fixed(_) => None,
        };
        for id in PermitId::of(owner, held.amount) {
            if let Some(permit) = self.taken.get_mut(&id) {
                permit.ends = permit.ends.or(ends);
                permit.owner = None;
            }
        }
        after.wake = self.wait_queue.notify_front_if_sooner(None, ends).or(after.wake.take());
        Some(held.term)
    }

    fn total(&self) -> i64 {
        let taken = i64::try_from(self.taken.len()).unwrap_or(i64::MAX);
        self.free.unwrap_or(0).saturating_add(taken)
    }

    fn lease_of(&self, id: &PermitId, now: &Now) -> i64 {
        let Some(permit) = self.taken.get(id) else { return -2 };
        let held = permit.owner.and_then(|owner| self.holds.get(&owner));
        let left = match (permit.ends, held.map(|held| held.lease)) {
            (Some(ends), _) => ends.saturating_duration_since(now.get()),
            (None, Some(Lease::Kept(length))) => length,
            (None, _) => return -1,
        };
        i64::try_from(left.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Until when a hold lasts whose first permit ends at `ends`.
fn until(lease: Lease, ends: Option<Instant>, now: &Now) -> Until {
    let Some(ends) = ends else { return Until::Kept(lease.length()) };
    // Permits that are kept end when their client is gone, after a lease of their own.
    let lease = Lease::Fixed(lease.length());
    Bounds { lease, limit: None }.until_end(ends, now.get())
}
