//! The read-write lock in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::held::Held;
use super::primitive::{Exclusive, Holdable, Waited};
use super::tokens::Tokens;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{
    Attempt, Busy, Claim, HoldKey, Holding, Kind, Released, Renewed, Resource, Ticket, WRITER_PREFERENCE,
};
use crate::env::{Instant, Now};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::term::Term;

/// Many readers or one writer, which may read as well.
#[derive(Debug, Default)]
pub(super) struct Rw {
    writer: Option<Held>,
    /// While the lock is held for writing, only the writer itself is in here.
    readers: BTreeMap<OwnerId, Held>,
    reads: WaitQueue,
    writes: WaitQueue,
    /// Queued writers that block new readers, and when each last retried.
    blocking_writers: BTreeMap<Ticket, Instant>,
    tokens: Tokens,
}

impl Waited for Rw {
    fn is_used(&self) -> bool {
        self.is_held() || !self.reads.is_empty() || !self.writes.is_empty()
    }

    fn is_idle(&self) -> bool {
        // Minted tokens are kept for good.
        !self.is_used() && self.token() == 0
    }

    fn wait_queue(&mut self, resource: &Resource) -> &mut WaitQueue {
        if resource.kind == Kind::Write { &mut self.writes } else { &mut self.reads }
    }

    fn wait_queues(&mut self) -> Vec<&mut WaitQueue> {
        vec![&mut self.reads, &mut self.writes]
    }

    fn leave(&mut self, key: &HoldKey, ticket: Ticket) -> Aftermath {
        // The end that the next waiter saw, if it saw one, was that of earlier holds.
        let wake_next = self.end().is_some();
        let left = self.wait_queue(&key.resource).leave(ticket, wake_next);
        let was_last = self.blocking_writers.remove(&ticket).is_some() && self.blocking_writers.is_empty();
        let wake = if was_last && self.writer.is_none() { self.reads.reserve() } else { None };
        left.and(Aftermath::waking(wake)).and(self.reserve_free())
    }
}

impl Holdable for Rw {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let after = self.expire(now);
        let before = self.end();
        let (attempt, more) = match self.held(claim.key) {
            Some(held) if held.count == claim.held => {
                let until = held.reenter(claim, now);
                (Attempt::Granted(Some(until), self.tokens.mint(claim)), self.wake_if_sooner(before))
            }
            None if claim.held == 0 => match claim.key.resource.kind {
                Kind::Write => self.write(claim, turn, now),
                _ => self.read(claim, turn, now),
            },
            _ => (Attempt::Gone, Aftermath::default()),
        };
        // The new hold may end sooner, and a reader that took it over from a writer may not be the only one that wants to
        // read.
        let taken_over = if claim.steal {
            self.wake_if_sooner(before).and(self.reserve_free())
        } else {
            Aftermath::default()
        };
        (attempt, after.and(more).and(taken_over))
    }

    fn release(&mut self, key: &HoldKey, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.expire(now);
        match self.held(key) {
            Some(held) if held.count == from => {
                held.count -= 1;
                if held.count == 0 {
                    return (Released::Left(0, None), after.and(self.free(key)));
                }
                (Released::Left(held.count, Some(held.extend(lease.length(), now))), after)
            }
            _ => (Released::NotHeld, after),
        }
    }

    fn renew(&mut self, key: &HoldKey, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let after = self.expire(now);
        let held = self.held(key);
        (held.map_or(Renewed::Gone, |held| Renewed::Until(held.extend(length, now))), after)
    }

    fn lower(&mut self, key: &HoldKey, count: u32, now: &Now) -> Aftermath {
        let after = self.expire(now);
        match self.held(key) {
            Some(held) if held.count > count => {
                held.count = count;
                if count == 0 { after.and(self.free(key)) } else { after }
            }
            _ => after,
        }
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        let held = match key.resource.kind {
            Kind::Write => self.writer.as_ref().filter(|held| held.owner == key.owner),
            _ => self.readers.get(&key.owner),
        };
        held.map(|held| Arc::clone(&held.term))
    }

    fn abandon(&mut self, key: &HoldKey, rest: Duration, now: &Now) -> (bool, Aftermath) {
        let after = self.expire(now);
        let before = self.end();
        let Some(held) = self.held(key) else { return (false, after) };
        held.abandon(rest, now);
        (true, after.and(self.wake_if_sooner(before)))
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let mut after = self.expire(now);
        let before = self.end();
        let mut retired = 0;
        let all = self.writer.iter_mut().chain(self.readers.values_mut());
        for held in all.filter(|held| held.owner.client == client && held.term.is_held()) {
            held.retire(now);
            retired += 1;
            after = after.and(held.lose(Loss::Shutdown));
        }
        (retired, after.and(self.wake_if_sooner(before)))
    }
}

impl Exclusive for Rw {
    fn holders(&self, kind: Kind) -> usize {
        match kind {
            Kind::Write => usize::from(self.writer.is_some()),
            // A writer may read as well.
            _ if self.writer.is_some() => 0,
            _ => self.readers.len(),
        }
    }

    fn force(&mut self, resource: &Resource, now: &Now) -> (bool, Aftermath) {
        let after = self.expire(now);
        let held = match resource.kind {
            Kind::Write => self.writer.is_some(),
            _ => self.writer.is_none() && !self.readers.is_empty(),
        };
        if held {
            (true, after.and(self.free_all(Loss::ForceUnlocked)).and(self.reserve_free()))
        } else {
            (false, after)
        }
    }

    fn query(
        &mut self,
        resource: &Resource,
        owner: Option<OwnerId>,
        now: &Now,
    ) -> (Option<Holding>, Aftermath) {
        let after = self.expire(now);
        let held = match resource.kind {
            Kind::Write => self.writer.as_ref(),
            _ => owner.and_then(|owner| self.readers.get(&owner)).or_else(|| self.readers.values().next()),
        };
        // The lock exists as long as an owner holds it.
        let all = self.all().map(|held| held.holding(now).remaining).max().unwrap_or_default();
        (held.map(|held| Holding { remaining: all, ..held.holding(now) }), after)
    }

    fn token(&self) -> u64 {
        self.tokens.last()
    }

    #[cfg(feature = "test-util")]
    fn remove(&mut self, now: &Now) -> (bool, Aftermath) {
        let after = self.expire(now);
        if self.is_held() {
            (true, after.and(self.free_all(Loss::Gone)).and(self.reserve_free()))
        } else {
            (false, after)
        }
    }
}

impl Rw {
    /// Acquires the read half for an owner that does not have it.
    fn read(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let mut after = Aftermath::default();
        match &self.writer {
            Some(writer) if writer.owner == claim.key.owner => {}
            Some(_) if claim.steal => after = self.free_all(Loss::TakenOver),
            Some(writer) => return (Attempt::Busy(busy(writer.ends(), writer.owner, now)), after),
            None if claim.steal => {}
            None if self.readers_are_blocked(now) => {
                if claim.rw.prefer_writers {
                    return (
                        Attempt::Busy(Busy { retry_in: Some(WRITER_PREFERENCE), ..Busy::default() }),
                        after,
                    );
                }
                // A reader that ignores waiting writers does not wait behind readers that respect them.
            }
            None if self.reads.may_take(turn) => {}
            None => return (Attempt::Busy(Busy::default()), after),
        }
        self.reads.withdraw();
        self.writes.withdraw();
        let (held, until) = Held::new(claim, now);
        self.readers.insert(held.owner, held);
        (Attempt::Granted(Some(until), self.tokens.mint(claim)), after)
    }

    /// Acquires the write half for an owner that does not have it.
    fn write(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let mut after = Aftermath::default();
        if self.readers.contains_key(&claim.key.owner) != claim.rw.upgrade {
            return (Attempt::WouldDeadlock, after);
        }
        let other = self.all().find(|held| held.owner != claim.key.owner).map(|held| held.owner);
        match other {
            Some(_) if claim.steal => after = self.free_all(Loss::TakenOver),
            Some(other) => {
                let mut busy = busy(self.end(), other, now);
                if let (true, Some(turn)) = (claim.rw.prefer_writers, turn) {
                    self.blocking_writers.insert(turn, now.get());
                    busy.keep_blocking_readers();
                }
                return (Attempt::Busy(busy), after);
            }
            None if claim.steal || claim.rw.upgrade || self.writes.may_take(turn) => {}
            None => return (Attempt::Busy(Busy::default()), after),
        }
        self.reads.withdraw();
        self.writes.withdraw();
        let (held, until) = Held::new(claim, now);
        self.writer = Some(held);
        (Attempt::Granted(Some(until), self.tokens.mint(claim)), after)
    }

    /// Whether a waiting writer blocks new readers. A writer whose future is not polled any more does not.
    fn readers_are_blocked(&self, now: &Now) -> bool {
        self.blocking_writers
            .values()
            .any(|retried| now.get().saturating_duration_since(*retried) < WRITER_PREFERENCE)
    }

    fn is_held(&self) -> bool {
        self.writer.is_some() || !self.readers.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &Held> {
        self.writer.iter().chain(self.readers.values())
    }

    fn held(&mut self, key: &HoldKey) -> Option<&mut Held> {
        match key.resource.kind {
            Kind::Write => self.writer.as_mut().filter(|held| held.owner == key.owner),
            _ => self.readers.get_mut(&key.owner),
        }
    }

    /// When the last of the current holds ends, if all of them ever do.
    fn end(&self) -> Option<Instant> {
        self.all().map(Held::ends).try_fold(None, |last, end| Some(last.max(Some(end?)))).flatten()
    }

    /// Removes expired holds. There is no timer: the next request does it.
    fn expire(&mut self, now: &Now) -> Aftermath {
        let is_over = |held: &Held| held.ends().is_some_and(|at| now.get() >= at);
        let mut after = Aftermath::default();
        if let Some(writer) = self.writer.take_if(|held| is_over(held)) {
            after = after.and(writer.lose(Loss::Expired));
        }
        self.readers.retain(|_, held| {
            let is_over = is_over(held);
            if is_over {
                after = std::mem::take(&mut after).and(held.lose(Loss::Expired));
            }
            !is_over
        });
        after.and(self.reserve_free())
    }

    /// Ends one hold.
    fn free(&mut self, key: &HoldKey) -> Aftermath {
        let before = self.end();
        let freed = match key.resource.kind {
            Kind::Write => self.writer.take(),
            _ => self.readers.remove(&key.owner),
        };
        // Notifies its guards, if they are not notified yet.
        let after = freed.map(|held| held.lose(Loss::Gone)).unwrap_or_default();
        after.and(self.reserve_free()).and(self.wake_if_sooner(before))
    }

    /// Ends all holds. The caller decides which waiters are next.
    fn free_all(&mut self, loss: Loss) -> Aftermath {
        let all = self.writer.take().into_iter().chain(std::mem::take(&mut self.readers).into_values());
        all.fold(Aftermath::default(), |after, held| after.and(held.lose(loss)))
    }

    /// Reserves free halves for the front waiters.
    fn reserve_free(&mut self) -> Aftermath {
        let mut after = Aftermath::default();
        if self.writer.is_none() && !self.reads.is_reserved() {
            after.wake = self.reads.reserve();
        }
        if !self.is_held() && !self.writes.is_reserved() {
            after = after.and(Aftermath::waking(self.writes.reserve()));
        }
        after
    }

    /// Wakes the front waiters if the holds that they saw as lasting until `before` end sooner.
    fn wake_if_sooner(&mut self, before: Option<Instant>) -> Aftermath {
        let end = self.end();
        let wake = self.writes.notify_front_if_sooner(before, end);
        let readers = Aftermath::waking(self.reads.notify_front_if_sooner(before, end));
        Aftermath::waking(wake).and(readers)
    }
}

fn busy(end: Option<Instant>, holder: OwnerId, now: &Now) -> Busy {
    let retry_in = end.map(|at| at.saturating_duration_since(now.get()));
    Busy { retry_in, holder: Some(holder), ..Busy::default() }
}
