//! Waiters and their wake-ups.
//!
//! Every waiter that could succeed has been woken by its engine, or retries by itself in time: at the retry time of its last
//! attempt. That holds for the front waiter of each queue on either engine, after every step.

use std::time::Duration;

use super::super::engine_pair::Side;
use super::super::observed::{self, NEARLY};
use super::super::op::{At, CLIENTS, How, NAMES};
use super::attempts::Request;
use super::{CaseState, Step, lock_name};
use crate::engine::{Adjust, Attempt, Busy, Family, HoldKey, Kind, Query, WRITER_PREFERENCE};

#[derive(Debug, Clone)]
pub(super) struct Waiter {
    pub(super) request: Request,
    /// Whether it has to retry, in memory and on the server.
    must_retry: [bool; 2],
    /// When it retries by itself.
    retries_at: [Duration; 2],
    /// The end that it saw on the server may have become earlier since.
    nearer: bool,
    /// When it last announced that it blocks readers.
    blocks_since: Option<Duration>,
}

/// The longest sleep of a waiter without a wake-up, in memory and on the server. In memory every waiter has to be woken: the
/// sweep that wakes all of them every 30 s is for defects, and no case lasts that long.
const SAFETY_CAP: [Duration; 2] = [Duration::from_secs(1_000_000), Duration::from_secs(30)];
/// The queue heartbeat of a client wakes the front waiter of a fair lock that is free.
const HEARTBEAT: Duration = Duration::from_millis(1500);

/// Why waiters may have to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Nothing was released and no end has become earlier: no waiter is woken.
    Nothing,
    /// Time has passed.
    Time,
    /// A hold of this kind was released.
    Freed(Kind),
    Other,
}

impl Waiter {
    /// A waiter that retries at once.
    pub(super) fn new(request: Request, now: Duration) -> Self {
        Self {
            request,
            must_retry: [true; 2],
            retries_at: SAFETY_CAP.map(|cap| now + cap),
            nearer: false,
            blocks_since: None,
        }
    }

    pub(super) fn key(&self) -> &HoldKey {
        &self.request.key
    }

    pub(super) fn client(&self) -> usize {
        self.request.at.who % CLIENTS
    }

    /// Whether a server does not notify it that a lock of this kind is free: the plain, the spin and the fair lock of one
    /// name have different channels, as they have in Redisson.
    fn has_other_channel(&self, kind: Kind) -> bool {
        kind.family() == Family::Lock && self.key().resource.kind != kind
    }

    fn blocks_readers(&self) -> bool {
        self.key().resource.kind == Kind::Write && self.request.how.prefer_writers
    }
}

impl CaseState<'_> {
    pub(super) fn give_up(&mut self, at: At) -> Step {
        let places: Vec<_> =
            (0..self.waiters.len()).filter(|place| self.waiters[*place].request.at.name == at.name).collect();
        let Some(place) = places.get((at.who + at.pick) % places.len().max(1)) else { return Ok(false) };
        let waiter = self.waiters.remove(*place);
        self.leave(&waiter);
        self.engines.finish(waiter.client());
        self.after(waiter.request.at)
    }

    pub(super) fn leave(&self, waiter: &Waiter) {
        let tickets = waiter.request.tickets.expect("it is queued");
        self.engines.call_without_reply(waiter.client(), |engine, side| {
            engine.leave(waiter.key(), tickets[side as usize]);
        });
    }

    /// The next operation may make the end earlier that waiters have seen. A server does not publish that, because Redisson
    /// has no message for it. The waiters retry at the end that they saw, at the latest after 30 s.
    pub(super) fn comes_nearer(&mut self, name: usize) {
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.request.at.name == name) {
            waiter.nearer = true;
        }
    }

    /// A hold of this kind is about to be released.
    pub(super) fn frees(&mut self, name: usize, kind: Kind) {
        self.cause = Cause::Freed(kind);
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.request.at.name == name) {
            // A reader that leaves other readers behind wakes no waiter. They may end sooner than it would have.
            let behind_readers = kind == Kind::Read && waiter.key().resource.kind == Kind::Write;
            waiter.nearer |= behind_readers || waiter.has_other_channel(kind);
        }
    }

    /// Records which waiters were woken, or retry by themselves.
    pub(super) fn record_wake_ups(&mut self, name: usize) -> Result<(), String> {
        let mut clients: Vec<_> =
            self.waiters.iter().filter(|waiter| waiter.request.at.name == name).map(Waiter::client).collect();
        clients.sort_unstable();
        clients.dedup();
        self.engines.settle(&clients);
        let now = self.now();
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.request.at.name == name) {
            let tickets = waiter.request.tickets.expect("it is queued");
            let woken = self.engines.woken(waiter.client(), waiter.key(), tickets);
            // The queue heartbeat runs at any time, and wakes the front waiter if the lock is free just then.
            let may_be_heartbeat = waiter.key().resource.kind == Kind::Fair;
            if self.cause == Cause::Nothing && (woken[0] || woken[1] && !may_be_heartbeat) {
                return Err(format!("{waiter:?} was woken for nothing: {woken:?}"));
            }
            for (side, woken) in woken.into_iter().enumerate() {
                waiter.must_retry[side] |= woken || waiter.retries_at[side] <= now;
            }
        }
        Ok(())
    }

    /// Lets woken waiters retry, and those succeed that can.
    pub(super) fn wake(&mut self, name: usize) -> Result<(), String> {
        self.check_wake_ups(name)?;
        let mut place = 0;
        while place < self.waiters.len() {
            let waiter = &self.waiters[place];
            if waiter.request.at.name != name {
                place += 1;
            } else if !self.is_free_for(waiter.key(), waiter.request.how) {
                self.retry_in_vain(place)?;
                place += 1;
            } else if self.is_first(place) {
                self.succeed(place)?;
                self.check_wake_ups(name)?;
                place = 0;
            } else {
                // On a server it may overtake waiters of other clients. Here it does not.
                place += 1;
            }
        }
        Ok(())
    }

    /// Whether the waiters that can succeed are woken: in memory the front waiter, on a server the first of each client.
    fn check_wake_ups(&self, name: usize) -> Result<(), String> {
        for (place, waiter) in
            self.waiters.iter().enumerate().filter(|(_, waiter)| waiter.request.at.name == name)
        {
            let excused = match self.cause {
                Cause::Time => waiter.nearer,
                Cause::Freed(kind) => waiter.has_other_channel(kind),
                Cause::Nothing | Cause::Other => false,
            };
            let [memory, server] = waiter.must_retry;
            let fine = (memory || !self.is_first(place)) && (server || excused || !self.leads(place));
            if !fine && self.is_free_for(waiter.key(), waiter.request.how) {
                let woken = format!("woken: {memory} in memory, {server} on {}", self.engines.server_name());
                return Err(format!("{waiter:?} could go on at {:?}, and was {woken}", self.now()));
            }
        }
        Ok(())
    }

    /// Whether no other waiter is before this one in its queue. A latch has no queue.
    fn is_first(&self, place: usize) -> bool {
        let resource = &self.waiters[place].key().resource;
        resource.kind == Kind::Latch
            || !self.waiters[..place].iter().any(|other| other.key().resource == *resource)
    }

    /// Whether no waiter of the same client is before this one in its queue. For a fair lock each has a queue.
    fn leads(&self, place: usize) -> bool {
        let waiter = &self.waiters[place];
        let resource = &waiter.key().resource;
        let mut before = self.waiters[..place].iter().filter(|other| other.client() == waiter.client());
        matches!(resource.kind, Kind::Latch | Kind::Fair)
            || !before.any(|other| other.key().resource == *resource)
    }

    fn succeed(&mut self, place: usize) -> Result<(), String> {
        let waiter = self.waiters.remove(place);
        let name = waiter.request.at.name;
        if !waiter.must_retry[Side::Server as usize] {
            // It would have retried later, and the waiters behind it are not notified of it.
            self.comes_nearer(name);
        }
        if waiter.key().resource.kind != Kind::Latch {
            let attempt = self.attempt(&waiter.request)?;
            if let Attempt::Busy(_) = attempt {
                return Err(format!("{waiter:?} could go on, and does not: {attempt:?}"));
            }
        }
        self.leave(&waiter);
        self.engines.finish(waiter.client());
        self.stats.wakeups += 1;
        // A waiter that leaves may wake the next one.
        self.record_wake_ups(name)?;
        self.compare_state(name, waiter.client())
    }

    /// Lets a waiter retry without success, on the engines that woke it.
    fn retry_in_vain(&mut self, place: usize) -> Result<(), String> {
        let waiter = self.waiters[place].clone();
        // A writer that blocks readers has to retry on both.
        let must_retry = if waiter.blocks_readers() {
            [waiter.must_retry[0] || waiter.must_retry[1]; 2]
        } else {
            waiter.must_retry
        };
        if waiter.key().resource.kind == Kind::Latch {
            for (side, cap) in SAFETY_CAP.into_iter().enumerate() {
                if std::mem::take(&mut self.waiters[place].must_retry[side]) {
                    self.waiters[place].retries_at[side] = self.now() + cap;
                }
            }
            return Ok(());
        }
        let now = self.now();
        let memory = must_retry[0].then(|| self.attempt_on(&waiter.request, Side::Memory));
        let server = must_retry[1].then(|| match &memory {
            Some(memory) => self.attempt_after_pause(&waiter.request, memory),
            None => self.attempt_on(&waiter.request, Side::Server),
        });
        let attempts = [memory, server];
        let mut retried = Waiter { must_retry: [false; 2], ..waiter };
        for (side, attempt) in attempts.iter().enumerate() {
            let Some(attempt) = attempt else { continue };
            let Attempt::Busy(Busy { retry_in, .. }) = attempt else {
                return Err(format!("{retried:?} cannot go on, but does on engine {side}: {attempt:?}"));
            };
            let mut sleep = retry_in.unwrap_or(SAFETY_CAP[side]).min(SAFETY_CAP[side]);
            if side == 1 {
                retried.nearer = false;
                if retried.key().resource.kind == Kind::Fair {
                    sleep = sleep.min(HEARTBEAT);
                }
            }
            retried.retries_at[side] = now + sleep;
            self.stats.in_vain[side] += 1;
        }
        if retried.blocks_readers() && must_retry[0] {
            retried.blocks_since = Some(now);
        }
        let key = retried.key().clone();
        self.waiters[place] = retried;
        // A client does not repeat the request of its own waiters.
        if let ([Some(memory), Some(server)], true) = (attempts, self.leads(place)) {
            self.same(
                self.waiters[place].request.at.name,
                "retry",
                observed::attempts(&[memory, server], &key),
            )?;
        }
        Ok(())
    }

    /// Whether this attempt would succeed without other waiters, by the state that both engines have.
    pub(super) fn is_free_for(&self, key: &HoldKey, how: How) -> bool {
        let HoldKey { resource, owner, amount } = key;
        let holder = |resource| {
            self.engines.call_memory(|memory| memory.inspect(&Query::Holder(resource, None))).holding
        };
        let name = || name_of(key);
        match resource.kind {
            Kind::Lock | Kind::Spin | Kind::SetNx | Kind::Group => holder(resource).is_none(),
            Kind::Fair => {
                let queue = self.engines.call_memory(|memory| memory.inspect(&Query::Queue(resource))).queue;
                holder(resource).is_none() && queue.first().is_none_or(|first| first.full() == Some(*owner))
            }
            Kind::Read => {
                let writer = holder(&self.of_kind(name(), Kind::Write));
                let is_blocked = || how.prefer_writers && self.readers_are_blocked(name());
                writer.map_or_else(|| !is_blocked(), |writer| writer.owner == Some(*owner))
            }
            Kind::Write => {
                let read = self.of_kind(name(), Kind::Read);
                let reader = self
                    .engines
                    .call_memory(|memory| memory.inspect(&Query::Holder(&read, Some(*owner))))
                    .holding;
                // An owner that reads gets its refusal at once.
                let reads = reader.is_some_and(|reader| reader.owner == Some(*owner));
                reads || holder(resource).is_none() && reader.is_none()
            }
            Kind::Semaphore | Kind::LeasedSemaphore => self.count(resource) >= i64::from(*amount),
            Kind::Latch => self.count(resource) <= 0,
        }
    }

    fn readers_are_blocked(&self, name: usize) -> bool {
        let now = self.now();
        self.waiters.iter().any(|waiter| {
            waiter.request.at.name == name
                && waiter.blocks_since.is_some_and(|since| now + NEARLY < since + WRITER_PREFERENCE)
        })
    }

    fn count(&self, resource: &crate::engine::Resource) -> i64 {
        let change = self.counter_query(Adjust::Count);
        super::inspection::number(&self.engines.call_memory(|memory| memory.adjust(resource, &change)))
    }
}

/// The index of the hold key's name.
fn name_of(key: &HoldKey) -> usize {
    (0..NAMES).find(|name| lock_name(*name) == key.resource.name).expect("one of them")
}
