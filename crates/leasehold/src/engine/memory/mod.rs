//! The embedded engine: all locks of a process in one map, without a server and without a background task.
//!
//! A hold without a lease lasts as long as its guard. A lease is judged when somebody looks; waiters sleep on
//! their caller's timer until it is over, or until a release hints at the head of the line.

mod shared;
mod slot;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(feature = "test-util")]
pub(crate) use self::shared::register;
pub(crate) use self::shared::shared;
use self::slot::Slot;
use super::aftermath::Aftermath;
use super::{Attempt, Claim, Engine, Holding, Release, Released, Renewed, Reply, Ticket};
use crate::client_id::ClientId;
use crate::lease::Lease;
use crate::name::Name;
use crate::owner::OwnerId;
use crate::term::Term;
use crate::time::{self, Instant};

/// The memory engine.
#[derive(Debug)]
pub(crate) struct Memory {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    tickets: AtomicU64,
}

/// Only names that are held or waited for have a slot.
type Shard = HashMap<Name, Slot>;

/// Enough that threads on different names seldom meet.
const SHARDS: usize = 64;

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            tickets: AtomicU64::new(0),
        }
    }

    /// Removes the hold of a name as if its key had been deleted by hand.
    #[cfg(feature = "test-util")]
    pub(crate) fn remove(&self, name: &Name) -> bool {
        self.with(name, Slot::remove)
    }

    /// How many wait for this name.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiters(&self, name: &Name) -> usize {
        self.shard(name).get(name).map_or(0, |slot| slot.line.len())
    }

    /// How many names are held or waited for.
    #[cfg(feature = "test-util")]
    pub(crate) fn names(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Looks at or changes the slot of one name, which comes and goes as needed.
    fn with<T>(&self, name: &Name, change: impl FnOnce(&mut Slot, Instant) -> (T, Aftermath)) -> T {
        let now = time::now();
        let mut shard = self.shard(name);
        let (result, aftermath) = if let Some(slot) = shard.get_mut(name) {
            let done = change(slot, now);
            if slot.is_idle() {
                shard.remove(name);
            }
            done
        } else {
            let mut slot = Slot::default();
            let done = change(&mut slot, now);
            if !slot.is_idle() {
                shard.insert(name.clone(), slot);
            }
            done
        };
        drop(shard);
        aftermath.run();
        result
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "any part of a hash will do")]
        let hash = self.hasher.hash_one(name) as usize;
        lock(&self.shards[hash % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for Memory {
    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        Reply::now(self.with(&claim.name, |slot, now| slot.attempt(claim, turn, now)))
    }

    fn release(&self, name: &Name, release: Release) -> Reply<Released> {
        Reply::now(self.with(name, |slot, now| slot.release(release, now)))
    }

    fn renew(&self, name: &Name, owner: OwnerId, length: Duration) -> Reply<Renewed> {
        Reply::now(self.with(name, |slot, now| slot.renew(owner, length, now)))
    }

    fn abandon(&self, name: &Name, owner: OwnerId, count: u32, _lease: Lease) {
        self.with(name, |slot, now| ((), slot.abandon(owner, count, now)));
    }

    fn term(&self, name: &Name, owner: OwnerId) -> Option<Arc<Term>> {
        self.shard(name).get(name).and_then(|slot| slot.term(owner))
    }

    fn query(&self, name: &Name) -> Reply<Option<Holding>> {
        Reply::now(self.with(name, Slot::query))
    }

    fn listen(&self, name: &Name) -> Ticket {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.with(name, |slot, _| {
            slot.line.join(ticket);
            (ticket, Aftermath::default())
        })
    }

    fn listening(&self, _name: &Name) -> Reply<()> {
        Reply::now(())
    }

    fn poll_hint(&self, name: &Name, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        self.with(name, |slot, _| slot.line.poll_hint(ticket, context))
    }

    fn leave(&self, name: &Name, ticket: Ticket) {
        self.with(name, |slot, now| ((), slot.line.leave(ticket, now)));
    }

    fn retire(&self, client: ClientId) -> usize {
        let now = time::now();
        let mut retired = 0;
        for shard in &self.shards {
            let mut after = Vec::new();
            lock(shard).retain(|_, slot| {
                after.push(slot.retire(client, now));
                !slot.is_idle()
            });
            for (held, aftermath) in after {
                retired += usize::from(held);
                aftermath.run();
            }
        }
        retired
    }
}
