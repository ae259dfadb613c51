//! Waiters and their wake-ups.
//!
//! Every waiter that could succeed has been woken by its engine, or retries by itself in time: at the retry time of its last
//! attempt. That holds for the front waiter of each queue on either engine, after every step.

use std::time::Duration;

use super::super::both::Side;
use super::super::op::{At, CLIENTS, How, NAMES};
use super::super::said::{self, NEARLY};
use super::asking::Wish;
use super::{Step, World, word};
use crate::engine::{Adjust, Attempt, BARRED, Busy, Family, Kind, Question, Spot};

#[derive(Debug, Clone)]
pub(super) struct Waiter {
    pub(super) wish: Wish,
    /// Whether it has to retry, in memory and on the server.
    told: [bool; 2],
    /// When it retries by itself.
    looks: [Duration; 2],
    /// The end that it saw on the server may have become earlier since.
    nearer: bool,
    /// When it last announced that it blocks readers.
    barred: Option<Duration>,
}

/// The longest sleep of a waiter without a wake-up, in memory and on the server. In memory every waiter has to be woken: the
/// sweep that wakes all of them every 30 s is for defects, and no case lasts that long.
const SAFETY_CAP: [Duration; 2] = [Duration::from_secs(1_000_000), Duration::from_secs(30)];
/// The queue heartbeat of a client wakes the front waiter of a fair lock that is free.
const BEAT: Duration = Duration::from_millis(1500);

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
    pub(super) fn new(wish: Wish, now: Duration) -> Self {
        Self { wish, told: [true; 2], looks: SAFETY_CAP.map(|cap| now + cap), nearer: false, barred: None }
    }

    pub(super) fn spot(&self) -> &Spot {
        &self.wish.spot
    }

    pub(super) fn client(&self) -> usize {
        self.wish.at.who % CLIENTS
    }

    /// Whether a server does not notify it that a lock of this kind is free: the plain, the spin and the fair lock of one
    /// name have different channels, as they have in Redisson.
    fn listens_elsewhere(&self, kind: Kind) -> bool {
        kind.family() == Family::Lock && self.spot().target.kind != kind
    }

    fn bars(&self) -> bool {
        self.spot().target.kind == Kind::Write && self.wish.how.prefer_writers
    }
}

impl World<'_> {
    pub(super) fn give_up(&mut self, at: At) -> Step {
        let places: Vec<_> =
            (0..self.waiters.len()).filter(|place| self.waiters[*place].wish.at.name == at.name).collect();
        let Some(place) = places.get((at.who + at.pick) % places.len().max(1)) else { return Ok(false) };
        let waiter = self.waiters.remove(*place);
        self.leave(&waiter);
        self.both.finish(waiter.client());
        self.after(waiter.wish.at)
    }

    pub(super) fn leave(&self, waiter: &Waiter) {
        let tickets = waiter.wish.tickets.expect("it is queued");
        self.both.tell(waiter.client(), |engine, side| engine.leave(waiter.spot(), tickets[side as usize]));
    }

    /// The next operation may make the end earlier that waiters have seen. A server does not publish that, because Redisson
    /// has no message for it. The waiters retry at the end that they saw, at the latest after 30 s.
    pub(super) fn comes_nearer(&mut self, name: usize) {
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.wish.at.name == name) {
            waiter.nearer = true;
        }
    }

    /// A hold of this kind is about to be released.
    pub(super) fn frees(&mut self, name: usize, kind: Kind) {
        self.cause = Cause::Freed(kind);
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.wish.at.name == name) {
            // A reader that leaves other readers behind wakes no waiter. They may end sooner than it would have.
            let behind_readers = kind == Kind::Read && waiter.spot().target.kind == Kind::Write;
            waiter.nearer |= behind_readers || waiter.listens_elsewhere(kind);
        }
    }

    /// Records which waiters were woken, or retry by themselves.
    pub(super) fn hear(&mut self, name: usize) -> Result<(), String> {
        let mut clients: Vec<_> =
            self.waiters.iter().filter(|waiter| waiter.wish.at.name == name).map(Waiter::client).collect();
        clients.sort_unstable();
        clients.dedup();
        self.both.settle(&clients);
        let now = self.now();
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.wish.at.name == name) {
            let tickets = waiter.wish.tickets.expect("it is queued");
            let hinted = self.both.hinted(waiter.client(), waiter.spot(), tickets);
            // The queue heartbeat runs at any time, and wakes the front waiter if the lock is free just then.
            let beaten = waiter.spot().target.kind == Kind::Fair;
            if self.cause == Cause::Nothing && (hinted[0] || hinted[1] && !beaten) {
                return Err(format!("{waiter:?} was woken in vain: {hinted:?}"));
            }
            for (side, hinted) in hinted.into_iter().enumerate() {
                waiter.told[side] |= hinted || waiter.looks[side] <= now;
            }
        }
        Ok(())
    }

    /// Lets woken waiters retry, and those succeed that can.
    pub(super) fn wake(&mut self, name: usize) -> Result<(), String> {
        self.all_told(name)?;
        let mut place = 0;
        while place < self.waiters.len() {
            let waiter = &self.waiters[place];
            if waiter.wish.at.name != name {
                place += 1;
            } else if !self.is_free_for(waiter.spot(), waiter.wish.how) {
                self.look_in_vain(place)?;
                place += 1;
            } else if self.is_first(place) {
                self.go_on(place)?;
                self.all_told(name)?;
                place = 0;
            } else {
                // On a server it may overtake waiters of other clients. Here it does not.
                place += 1;
            }
        }
        Ok(())
    }

    /// Whether the waiters that can succeed are woken: in memory the front waiter, on a server the first of each client.
    fn all_told(&self, name: usize) -> Result<(), String> {
        for (place, waiter) in
            self.waiters.iter().enumerate().filter(|(_, waiter)| waiter.wish.at.name == name)
        {
            let excused = match self.cause {
                Cause::Time => waiter.nearer,
                Cause::Freed(kind) => waiter.listens_elsewhere(kind),
                Cause::Nothing | Cause::Other => false,
            };
            let [memory, server] = waiter.told;
            let fine = (memory || !self.is_first(place)) && (server || excused || !self.leads(place));
            if !fine && self.is_free_for(waiter.spot(), waiter.wish.how) {
                let told = format!("woken: {memory} in memory, {server} on {}", self.both.other());
                return Err(format!("{waiter:?} could continue at {:?}, and was {told}", self.now()));
            }
        }
        Ok(())
    }

    /// Whether no other waiter is before this one in its queue. A latch has no queue.
    fn is_first(&self, place: usize) -> bool {
        let target = &self.waiters[place].spot().target;
        target.kind == Kind::Latch
            || !self.waiters[..place].iter().any(|other| other.spot().target == *target)
    }

    /// Whether no waiter of the same client is before this one in its queue. For a fair lock each has a queue.
    fn leads(&self, place: usize) -> bool {
        let waiter = &self.waiters[place];
        let target = &waiter.spot().target;
        let mut before = self.waiters[..place].iter().filter(|other| other.client() == waiter.client());
        matches!(target.kind, Kind::Latch | Kind::Fair) || !before.any(|other| other.spot().target == *target)
    }

    fn go_on(&mut self, place: usize) -> Result<(), String> {
        let waiter = self.waiters.remove(place);
        let name = waiter.wish.at.name;
        if !waiter.told[Side::Server as usize] {
            // It would have retried later, and the waiters behind it are not notified of it.
            self.comes_nearer(name);
        }
        if waiter.spot().target.kind != Kind::Latch {
            let told = self.ask(&waiter.wish)?;
            if let Attempt::Busy(_) = told {
                return Err(format!("{waiter:?} could continue, and does not: {told:?}"));
            }
        }
        self.leave(&waiter);
        self.both.finish(waiter.client());
        self.tally.wakeups += 1;
        // A waiter that leaves may wake the next one.
        self.hear(name)?;
        self.look(name, waiter.client())
    }

    /// Lets a waiter retry without success, on the engines that woke it.
    fn look_in_vain(&mut self, place: usize) -> Result<(), String> {
        let waiter = self.waiters[place].clone();
        // A writer that blocks readers has to retry on both.
        let told = if waiter.bars() { [waiter.told[0] || waiter.told[1]; 2] } else { waiter.told };
        if waiter.spot().target.kind == Kind::Latch {
            for (side, cap) in SAFETY_CAP.into_iter().enumerate() {
                if std::mem::take(&mut self.waiters[place].told[side]) {
                    self.waiters[place].looks[side] = self.now() + cap;
                }
            }
            return Ok(());
        }
        let now = self.now();
        let memory = told[0].then(|| self.ask_side(&waiter.wish, Side::Memory));
        let server = told[1].then(|| match &memory {
            Some(memory) => self.ask_politely(&waiter.wish, memory),
            None => self.ask_side(&waiter.wish, Side::Server),
        });
        let answers = [memory, server];
        let mut looked = Waiter { told: [false; 2], ..waiter };
        for (side, answer) in answers.iter().enumerate() {
            let Some(answer) = answer else { continue };
            let Attempt::Busy(Busy { retry_in, .. }) = answer else {
                return Err(format!("{looked:?} cannot continue, but does on engine {side}: {answer:?}"));
            };
            let mut sleep = retry_in.unwrap_or(SAFETY_CAP[side]).min(SAFETY_CAP[side]);
            if side == 1 {
                looked.nearer = false;
                if looked.spot().target.kind == Kind::Fair {
                    sleep = sleep.min(BEAT);
                }
            }
            looked.looks[side] = now + sleep;
            self.tally.in_vain[side] += 1;
        }
        if looked.bars() && told[0] {
            looked.barred = Some(now);
        }
        let spot = looked.spot().clone();
        self.waiters[place] = looked;
        // A client does not repeat the request of its own waiters.
        if let ([Some(memory), Some(server)], true) = (answers, self.leads(place)) {
            self.same(self.waiters[place].wish.at.name, "look", said::attempts(&[memory, server], &spot))?;
        }
        Ok(())
    }

    /// Whether this attempt would succeed without other waiters, by the state that both engines have.
    pub(super) fn is_free_for(&self, spot: &Spot, how: How) -> bool {
        let Spot { target, owner, amount } = spot;
        let holder =
            |target| self.both.ask_memory(|memory| memory.inspect(&Question::Holder(target, None))).holding;
        let name = || name_of(spot);
        match target.kind {
            Kind::Lock | Kind::Spin | Kind::SetNx | Kind::Group => holder(target).is_none(),
            Kind::Fair => {
                let queue = self.both.ask_memory(|memory| memory.inspect(&Question::Queue(target))).queue;
                holder(target).is_none() && queue.first().is_none_or(|first| first.full() == Some(*owner))
            }
            Kind::Read => {
                let writer = holder(&self.of_kind(name(), Kind::Write));
                let barred = || how.prefer_writers && self.is_barred(name());
                writer.map_or_else(|| !barred(), |writer| writer.owner == Some(*owner))
            }
            Kind::Write => {
                let read = self.of_kind(name(), Kind::Read);
                let reader = self
                    .both
                    .ask_memory(|memory| memory.inspect(&Question::Holder(&read, Some(*owner))))
                    .holding;
                // An owner that reads gets its refusal at once.
                let reads = reader.is_some_and(|reader| reader.owner == Some(*owner));
                reads || holder(target).is_none() && reader.is_none()
            }
            Kind::Semaphore | Kind::Permits => self.count(target) >= i64::from(*amount),
            Kind::Latch => self.count(target) <= 0,
        }
    }

    fn is_barred(&self, name: usize) -> bool {
        let now = self.now();
        self.waiters.iter().any(|waiter| {
            waiter.wish.at.name == name && waiter.barred.is_some_and(|since| now + NEARLY < since + BARRED)
        })
    }

    fn count(&self, target: &crate::engine::Target) -> i64 {
        let change = self.question(Adjust::Count);
        super::looking::number(&self.both.ask_memory(|memory| memory.adjust(target, &change)))
    }
}

/// The index of the spot's name.
fn name_of(spot: &Spot) -> usize {
    (0..NAMES).find(|name| word(*name) == spot.target.name).expect("one of them")
}
