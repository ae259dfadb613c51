//! The memory engine: all locks of a process in one map, without a server.
//!
//! A hold without a lease lasts as long as its guard. Expiry is checked at the next request for a resource; waiters sleep on
//! their caller's timer until the lease is over, or until a release wakes the front waiter. A small task skips front waiters
//! that are not polled.

mod fair;
mod group;
mod held;
mod key;
mod latch;
mod lock;
mod permits;
mod primitive;
mod rw;
mod semaphore;
mod shared;
mod slot;
mod sweeper;
mod tokens;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use self::key::Key;
use self::primitive::{Exclusive, Holdable, Waited};
pub(crate) use self::shared::SCHEME;
#[cfg(feature = "test-util")]
pub(crate) use self::shared::shared;
use self::slot::Slot;
use self::sweeper::Sweeper;
use super::aftermath::Aftermath;
use super::{
    Adjusted, Attempt, AttemptAll, Busy, Change, Claim, Cursor, Engine, Feature, Found, HoldKey, Kind,
    ListStep, Listed, Profile, Query, QueryResult, Released, Renewed, Reply, Resource, Ticket,
};
use crate::client_id::ClientId;
use crate::env::Now;
use crate::lease::{Expiry, Lease};
use crate::mutex::Mutex;
use crate::name::{ByName, Name};
use crate::term::Term;

/// The memory engine.
#[derive(Debug)]
pub(crate) struct Memory {
    // Invariant: the state and the queue of a name change together, under the mutex of its shard. Waiters are woken and
    // terms are notified of losses when it is free again.
    shards: [Mutex<Shard>; SHARDS],
    tickets: AtomicU64,
    sweeper: Sweeper,
}

const PROFILE: Profile = Profile { engine: "memory", real_time: false, lacks: &[Feature::FencedWrite] };

/// Only names that are held or waited for have a slot.
type Shard = HashMap<Key, Slot, ByName>;

/// Enough that threads on different names seldom contend.
const SHARDS: usize = 64;

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            tickets: AtomicU64::default(),
            sweeper: Sweeper::new(this),
        })
    }

    /// Removes the hold of a lock as if its key had been deleted by hand.
    #[cfg(feature = "test-util")]
    pub(crate) fn remove(&self, resource: &Resource) -> bool {
        self.with_exclusive(resource, |held, now| held.remove(now))
    }

    /// How many waiters a lock has.
    pub(crate) fn waiters(&self, resource: &Resource) -> usize {
        self.with(resource, |slot, _| {
            (slot.waited().wait_queues().iter().map(|queue| queue.len()).sum(), Aftermath::default())
        })
    }

    /// How many names are held or waited for.
    #[cfg(feature = "test-util")]
    pub(crate) fn names(&self) -> usize {
        let used = |shard: &Mutex<Shard>| {
            shard.lock().values_mut().map(|slot| usize::from(slot.waited().is_used())).sum::<usize>()
        };
        self.shards.iter().map(used).sum()
    }

    /// Whether the name of a resource is held or waited for, as anything of its family.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_used(&self, resource: &Resource) -> bool {
        self.with(resource, |slot, _| (slot.waited().is_used(), Aftermath::default()))
    }

    /// Reads or changes the state of one resource, which is created and deleted as needed.
    fn with<T>(&self, resource: &Resource, change: impl FnOnce(&mut Slot, &Now) -> (T, Aftermath)) -> T {
        let now = Now::default();
        let key = Key::new(resource.kind.family(), &resource.name);
        let mut shard = self.shards[key.part_of(SHARDS)].lock();
        let (result, aftermath) = match shard.entry(key) {
            Entry::Occupied(mut entry) => {
                let slot = entry.get_mut();
                let done = change(slot, &now);
                if slot.waited().is_idle() {
                    entry.remove();
                }
                done
            }
            Entry::Vacant(entry) => {
                let mut slot = Slot::new(resource.kind.family());
                let done = change(&mut slot, &now);
                if !slot.waited().is_idle() {
                    entry.insert(slot);
                }
                done
            }
        };
        drop(shard);
        aftermath.run();
        result
    }

    /// The same for resources that are held, or `otherwise` if the resource is not.
    fn with_held<T>(
        &self,
        resource: &Resource,
        otherwise: T,
        change: impl FnOnce(&mut dyn Holdable, &Now) -> (T, Aftermath),
    ) -> T {
        self.with(resource, |slot, now| match slot.holdable() {
            Some(held) => change(held, now),
            None => (otherwise, Aftermath::default()),
        })
    }

    /// The same for resources with exclusive holders, or the default if the resource has none.
    fn with_exclusive<T: Default>(
        &self,
        resource: &Resource,
        change: impl FnOnce(&mut dyn Exclusive, &Now) -> (T, Aftermath),
    ) -> T {
        self.with(resource, |slot, now| slot.exclusive().map(|held| change(held, now)).unwrap_or_default())
    }

    /// Tries once. A waiter that does so is present, also if it was skipped since it was woken.
    fn try_for(&self, claim: &Claim, turn: Option<Ticket>) -> Attempt {
        let resource = &claim.key.resource;
        self.with_held(resource, Attempt::Gone, |held, now| {
            if let Some(ticket) = turn
                && let Some(queue) = held.wait_queue_if_any(resource)
            {
                queue.mark_present(ticket);
            }
            held.attempt(claim, turn, now)
        })
    }

    /// Puts a waiter with a new ticket into its wait queue with `join`, and has that queue swept.
    fn join_and<T>(&self, key: &HoldKey, join: impl FnOnce(&mut dyn Waited, Ticket) -> (T, Aftermath)) -> T {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (joined, begins_sweep) = self.with(&key.resource, |slot, _| {
            let waited = slot.waited();
            let (joined, aftermath) = join(waited, ticket);
            ((joined, waited.wait_queue(&key.resource).begins_sweep()), aftermath)
        });
        if begins_sweep {
            self.sweeper.add(&key.resource);
        }
        joined
    }

    /// Lowers a hold to at most `count`.
    fn lower(&self, key: &HoldKey, count: u32) {
        self.with_held(&key.resource, (), |held, now| ((), held.lower(key, count, now)));
    }

    /// What is held under names of which this is true, in the order of the names.
    fn held(&self, is_wanted: impl Fn(&Name) -> bool) -> Vec<Found> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(shard.lock().keys().filter(|key| is_wanted(key.name())).cloned());
        }
        keys.sort_unstable();
        let kinds =
            keys.iter().flat_map(|key| key.family().exclusive_kinds().iter().map(move |kind| (key, *kind)));
        kinds.filter_map(|(key, kind)| self.holder(Resource::new(kind, key.name().clone()))).collect()
    }

    /// One of the holders of a resource; of all values, if it is a group.
    fn holder(&self, resource: Resource) -> Option<Found> {
        let (held, holders) = self.with_exclusive(&resource, |held, now| {
            let values = held.values();
            let of = if values.is_empty() {
                Ok(resource.clone())
            } else {
                Resource::group(resource.name.clone(), values)
            };
            let (holding, aftermath) = match of {
                Ok(of) => held.query(&of, None, now),
                Err(_) => <_>::default(),
            };
            ((holding, held.holders(resource.kind)), aftermath)
        });
        held.filter(|_| holders > 0).map(|holding| Found {
            resource,
            holding,
            holders,
            client: None,
            process: None,
        })
    }

    /// Which of several locks is busy, before any is acquired: a minted token is not taken back.
    fn find_busy(&self, claims: &[Claim]) -> Option<(usize, Busy)> {
        let is_held = |claim: &Claim| {
            let resource = &claim.key.resource;
            self.with_exclusive(resource, |held, now| held.query(resource, None, now)).is_some()
        };
        let (number, claim) = claims.iter().enumerate().find(|(_, claim)| is_held(claim))?;
        match self.try_for(claim, None) {
            Attempt::Busy(busy) => Some((number, busy)),
            Attempt::Granted(..) => {
                // It became free after the query. Releasing it ends the claim's term, so it counts as busy; a waiting caller
                // retries at once.
                self.lower(claim.key, 0);
                Some((number, Busy::default()))
            }
            _ => None,
        }
    }
}

impl Engine for Memory {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        Reply::now(self.try_for(claim, turn))
    }

    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Option<Reply<AttemptAll>> {
        if let Some((number, busy)) = self.find_busy(claims) {
            return Some(Reply::now(AttemptAll::Busy(number, busy)));
        }
        let mut granted = Vec::with_capacity(claims.len());
        for (number, claim) in claims.iter().enumerate() {
            let turn = turn.filter(|(whose, _)| *whose == number).map(|(_, ticket)| ticket);
            match self.try_for(claim, turn) {
                Attempt::Granted(until, token) => granted.push((until, token)),
                not_granted => {
                    for taken in &claims[..number] {
                        self.lower(taken.key, 0);
                    }
                    let busy = if let Attempt::Busy(busy) = not_granted { busy } else { Busy::default() };
                    return Some(Reply::now(AttemptAll::Busy(number, busy)));
                }
            }
        }
        Some(Reply::now(AttemptAll::Granted(granted)))
    }

    fn release(&self, key: &HoldKey, from: u32, lease: Lease) -> Reply<Released> {
        let release = |held: &mut dyn Holdable, now: &Now| held.release(key, from, lease, now);
        Reply::now(self.with_held(&key.resource, Released::NotHeld, release))
    }

    fn abandon(&self, key: &HoldKey, rest: Duration) -> Reply<bool> {
        Reply::now(self.with_held(&key.resource, false, |held, now| held.abandon(key, rest, now)))
    }

    fn force(&self, resource: &Resource) -> Reply<bool> {
        Reply::now(self.with_exclusive(resource, |held, now| held.force(resource, now)))
    }

    fn renew(&self, key: &HoldKey, length: Duration) -> Reply<Renewed> {
        Reply::now(self.with_held(&key.resource, Renewed::Gone, |held, now| held.renew(key, length, now)))
    }

    fn undo(&self, key: &HoldKey, count: u32, _expiry: Expiry) {
        self.lower(key, count);
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        self.with_held(&key.resource, None, |held, _| (held.term(key), Aftermath::default()))
    }

    fn inspect(&self, query: &Query<'_>) -> Reply<QueryResult> {
        let mut result = QueryResult::default();
        match *query {
            Query::Holder(resource, owner) => {
                result.holding = self.with_exclusive(resource, |held, now| held.query(resource, owner, now));
            }
            Query::Token(resource) => {
                result.token = self.with_exclusive(resource, |held, _| (held.token(), Aftermath::default()));
            }
            Query::Queue(resource) => {
                result.queue = self.with_exclusive(resource, |held, _| (held.queue(), Aftermath::default()));
            }
            Query::Waiters(resource) => result.waiters = self.waiters(resource),
            Query::Client(_, client) => return Reply::now(QueryResult::of_process(client)),
            Query::Uptime => {}
        }
        Reply::now(result)
    }

    fn list(&self, step: &ListStep) -> Reply<Listed> {
        let mut found = match step {
            ListStep::Page(pattern, _) => self.held(|name| pattern.matched(name).is_some()),
            ListStep::Key(of, _) | ListStep::Name(of) => self.held(|name| name == of),
        };
        if let ListStep::Page(_, Cursor { with_strings: false, .. }) = step {
            found.retain(|found| found.resource.kind != Kind::SetNx);
        }
        Reply::now(Listed { found, ..Listed::default() })
    }

    fn adjust(&self, resource: &Resource, change: &Change) -> Reply<Adjusted> {
        let result = self.with(resource, |slot, now| {
            slot.counted().map(|counted| counted.adjust(&change.adjust, now)).unwrap_or_default()
        });
        Reply::now(Adjusted::Done(result))
    }

    fn let_go(&self, key: &HoldKey) {
        self.with_held(&key.resource, (), |held, now| ((), held.let_go(key, now)));
    }

    #[cfg(test)]
    fn enqueue(&self, key: &HoldKey, _accepts_handover: bool) -> Ticket {
        self.join_and(key, |waited, ticket| {
            waited.enqueue(key, ticket);
            (ticket, Aftermath::default())
        })
    }

    fn join(&self, key: &HoldKey, _accepts_handover: bool, context: &mut Context<'_>) -> (Ticket, bool) {
        self.join_and(key, |waited, ticket| {
            if waited.join(key, ticket) {
                return ((ticket, true), Aftermath::default());
            }
            let (polled, aftermath) = waited.poll_wake_up(key, ticket, context);
            ((ticket, polled.is_ready()), aftermath)
        })
    }

    fn subscribed(&self, _key: &HoldKey) -> Reply<()> {
        Reply::now(())
    }

    fn poll_wake_up(&self, key: &HoldKey, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        self.with(&key.resource, |slot, _| slot.waited().poll_wake_up(key, ticket, context))
    }

    fn wake_all(&self) {
        let mut woken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let queues = shard.values_mut().flat_map(|slot| slot.waited().wait_queues());
            woken.extend(queues.map(|queue| (queue.first_ticket(), Vec::from_iter(queue.notify_all()))));
        }
        // The order of a hash map differs between processes.
        woken.sort_unstable_by_key(|(first, _)| *first);
        Aftermath::waking(woken.into_iter().flat_map(|(_, wakers)| wakers)).run();
    }

    fn leave(&self, key: &HoldKey, ticket: Ticket) {
        self.with(&key.resource, |slot, _| ((), slot.waited().leave(key, ticket)));
    }

    fn retire(&self, client: ClientId) -> usize {
        let now = Now::default();
        let mut after = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|key, slot| {
                after.extend(slot.holdable().map(|held| (key.clone(), held.retire(client, &now))));
                !slot.waited().is_idle()
            });
        }
        after.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let retired = after.into_iter().map(|(_, (held, aftermath))| {
            aftermath.run();
            held
        });
        retired.sum()
    }
}
