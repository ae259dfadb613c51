//! The embedded engine: all locks of a process in one map, without a server.
//!
//! A hold without a lease lasts as long as its guard. A lease is judged when somebody looks; waiters sleep on
//! their caller's timer until it is over, or until a release hints at the head of the line. A small task sees to it that
//! none of them holds up the others.

mod fair;
mod group;
mod held;
mod key;
mod latch;
mod lock;
mod permits;
mod rw;
mod semaphore;
mod shared;
mod slot;
mod tokens;
mod watch;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use self::key::Key;
#[cfg(feature = "test-util")]
pub(crate) use self::shared::register;
pub(crate) use self::shared::shared;
use self::slot::{Machine, Slot};
use self::watch::Watch;
use super::aftermath::Aftermath;
use super::line::Line;
use super::{
    Adjusted, Attempt, AttemptAll, Busy, Change, Claim, Engine, Facts, Question, Released, Renewed, Reply,
    Spot, Target, Ticket,
};
use crate::client_id::ClientId;
use crate::lease::{Lapse, Lease};
use crate::name::ByName;
use crate::term::Term;
use crate::time::Now;

/// The memory engine.
#[derive(Debug)]
pub(crate) struct Memory {
    shards: [Mutex<Shard>; SHARDS],
    tickets: AtomicU64,
    watch: Watch,
}

/// Only names that are held or waited for have a slot.
type Shard = HashMap<Key, Slot, ByName>;

/// Enough that threads on different names seldom meet.
const SHARDS: usize = 64;

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            tickets: AtomicU64::default(),
            watch: Watch::new(this),
        })
    }

    /// Removes the hold of a lock as if its key had been deleted by hand.
    #[cfg(feature = "test-util")]
    pub(crate) fn remove(&self, target: &Target) -> bool {
        self.with(target, |machine, now| machine.remove(now))
    }

    /// How many wait for a lock.
    #[cfg(feature = "test-util")]
    pub(crate) fn waiters(&self, target: &Target) -> usize {
        self.with(target, |machine, _| {
            (machine.lines().iter().map(|line| line.len()).sum(), Aftermath::default())
        })
    }

    /// How many names are held or waited for.
    #[cfg(feature = "test-util")]
    pub(crate) fn names(&self) -> usize {
        let used =
            |shard| lock(shard).values_mut().map(|slot| usize::from(slot.machine().is_used())).sum::<usize>();
        self.shards.iter().map(used).sum()
    }

    /// Looks at or changes the state of one target, which comes and goes as needed.
    fn with<T>(&self, target: &Target, change: impl FnOnce(&mut dyn Machine, &Now) -> (T, Aftermath)) -> T {
        let now = Now::default();
        let key = Key::new(target.kind.family(), &target.name);
        let mut shard = lock(&self.shards[key.part_of(SHARDS)]);
        let (result, aftermath) = match shard.entry(key) {
            Entry::Occupied(mut entry) => {
                let machine = entry.get_mut().machine();
                let done = change(machine, &now);
                if machine.is_idle() {
                    entry.remove();
                }
                done
            }
            Entry::Vacant(entry) => {
                let mut slot = Slot::new(target.kind.family());
                let done = change(slot.machine(), &now);
                if !slot.machine().is_idle() {
                    entry.insert(slot);
                }
                done
            }
        };
        drop(shard);
        aftermath.run();
        result
    }

    /// Tries once. Whoever does is there, also if it was passed since it was told to.
    fn try_for(&self, claim: &Claim, turn: Option<Ticket>) -> Attempt {
        let target = &claim.spot.target;
        self.with(target, |machine, now| {
            if let Some(ticket) = turn
                && let Some(line) = machine.line_if_any(target)
            {
                line.hear_of(ticket);
            }
            machine.attempt(claim, turn, now)
        })
    }

    /// Sees to it that a hold has at most `count`.
    fn give_up(&self, spot: &Spot, count: u32) {
        self.with(&spot.target, |machine, now| ((), machine.abandon(spot, count, now)));
    }

    /// Which of several is not to be had, before any is taken: a token that was minted is not taken back.
    fn find_busy(&self, claims: &[Claim]) -> Option<(usize, Busy)> {
        let is_held = |claim: &Claim| {
            let target = &claim.spot.target;
            self.with(target, |machine, now| machine.query(target, None, now)).is_some()
        };
        let (number, claim) = claims.iter().enumerate().find(|(_, claim)| is_held(claim))?;
        match self.try_for(claim, None) {
            Attempt::Busy(busy) => Some((number, busy)),
            Attempt::Granted(..) => {
                // Free since we looked. Its term has ended by this, so it was busy, and whoever waits looks again at once.
                self.give_up(claim.spot, 0);
                Some((number, Busy::default()))
            }
            _ => None,
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for Memory {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        Reply::now(self.try_for(claim, turn))
    }

    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Reply<AttemptAll> {
        if let Some((number, busy)) = self.find_busy(claims) {
            return Reply::now(AttemptAll::Busy(number, busy));
        }
        let mut granted = Vec::with_capacity(claims.len());
        for (number, claim) in claims.iter().enumerate() {
            let turn = turn.filter(|(whose, _)| *whose == number).map(|(_, ticket)| ticket);
            match self.try_for(claim, turn) {
                Attempt::Granted(until, token) => granted.push((until, token)),
                not_granted => {
                    for taken in &claims[..number] {
                        self.give_up(taken.spot, 0);
                    }
                    let busy = if let Attempt::Busy(busy) = not_granted { busy } else { Busy::default() };
                    return Reply::now(AttemptAll::Busy(number, busy));
                }
            }
        }
        Reply::now(AttemptAll::Granted(granted))
    }

    fn release(&self, spot: &Spot, from: u32, lease: Lease) -> Reply<Released> {
        Reply::now(self.with(&spot.target, |machine, now| machine.release(spot, from, lease, now)))
    }

    fn force(&self, target: &Target) -> Reply<bool> {
        Reply::now(self.with(target, |machine, now| machine.force(target, now)))
    }

    fn renew(&self, spot: &Spot, length: Duration) -> Reply<Renewed> {
        Reply::now(self.with(&spot.target, |machine, now| machine.renew(spot, length, now)))
    }

    fn abandon(&self, spot: &Spot, count: u32, _lapse: Lapse) {
        self.give_up(spot, count);
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.with(&spot.target, |machine, _| (machine.term(spot), Aftermath::default()))
    }

    fn inspect(&self, question: &Question<'_>) -> Reply<Facts> {
        let mut facts = Facts::default();
        match *question {
            Question::Holder(target, owner) => {
                facts.holding = self.with(target, |machine, now| machine.query(target, owner, now));
            }
            Question::Token(target) => {
                facts.token = self.with(target, |machine, _| (machine.token(), Aftermath::default()));
            }
            Question::Queue(target) => {
                facts.queue = self.with(target, |machine, _| (machine.queue(), Aftermath::default()));
            }
            Question::Uptime => {}
        }
        Reply::now(facts)
    }

    fn adjust(&self, target: &Target, change: &Change) -> Reply<Adjusted> {
        let told = self.with(target, |machine, now| machine.adjust(&change.adjust, now));
        Reply::now(Adjusted::Done(told))
    }

    fn let_go(&self, spot: &Spot) {
        self.with(&spot.target, |machine, now| ((), machine.let_go(spot, now)));
    }

    #[cfg(test)]
    fn listen(&self, spot: &Spot, _heir: bool) -> Ticket {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.with(&spot.target, |machine, _| (machine.listen(spot, ticket), Aftermath::default()));
        ticket
    }

    fn join(&self, spot: &Spot, _heir: bool, told: Busy, context: &mut Context<'_>) -> (Ticket, bool) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (is_old, begins_watch) = self.with(&spot.target, |machine, _| {
            let is_old = machine.join(spot, ticket, told);
            let begins_watch = machine.line(&spot.target).begins_watch();
            if is_old {
                return ((true, begins_watch), Aftermath::default());
            }
            let (polled, aftermath) = machine.poll_hint(spot, ticket, context);
            ((polled.is_ready(), begins_watch), aftermath)
        });
        if begins_watch {
            self.watch.begin(&spot.target);
        }
        (ticket, is_old)
    }

    fn listening(&self, _spot: &Spot) -> Reply<()> {
        Reply::now(())
    }

    fn poll_hint(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        self.with(&spot.target, |machine, _| machine.poll_hint(spot, ticket, context))
    }

    fn longest_sleep(&self, _spot: &Spot) -> Option<Duration> {
        None
    }

    fn hint_all(&self) {
        for shard in &self.shards {
            let mut wakers = Vec::new();
            for slot in lock(shard).values_mut() {
                wakers.extend(slot.machine().lines().into_iter().flat_map(Line::hint_all));
            }
            Aftermath::waking(wakers).run();
        }
    }

    fn leave(&self, spot: &Spot, ticket: Ticket) {
        self.with(&spot.target, |machine, now| ((), machine.leave(spot, ticket, now)));
    }

    fn retire(&self, client: ClientId) -> usize {
        let now = Now::default();
        let mut retired = 0;
        for shard in &self.shards {
            let mut after = Vec::new();
            lock(shard).retain(|_, slot| {
                let machine = slot.machine();
                after.push(machine.retire(client, &now));
                !machine.is_idle()
            });
            for (held, aftermath) in after {
                retired += held;
                aftermath.run();
            }
        }
        retired
    }
}
