//! One case: holders and waiters by the replies of both engines, and the steps.

mod asking;
mod asking_all;
mod counting;
mod looking;
mod waking;

use std::collections::BTreeMap;
use std::time::Duration;

use self::waking::{Cause, Waiter};
use super::both::{Both, name};
use super::op::{At, CLIENTS, KEPT, Length, NAMES, Op, SETS, kinds};
use super::said::{self, Said};
use crate::client_id::ClientId;
use crate::engine::{Family, Kind, Released, Renewed, Spot, Target};
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::permit_id::PermitId;
use crate::term::Until;

/// A case that takes longer than this is too near to the end of a lease between two steps.
const LATE: Duration = Duration::from_millis(400);
/// A step that takes longer than this by the real clock did not happen at one moment. The sweep of the memory engine, which
/// uses that clock everywhere, may have skipped a waiter.
const SLOW: Duration = Duration::from_millis(40);
/// Time moves by whole seconds and so much more: then a lease of whole seconds is over also on a server that counts
/// milliseconds.
const AND_A_LITTLE: Duration = Duration::from_millis(2);

pub(super) struct World<'a> {
    both: &'a mut Both,
    families: [Family; NAMES],
    clients: [ClientId; CLIENTS],
    dead: [bool; CLIENTS],
    holds: BTreeMap<Seat, Hold>,
    /// Permits that belong to no hold, and their name.
    loose: Vec<(usize, PermitId)>,
    /// In the order in which they arrived.
    waiters: Vec<Waiter>,
    /// By how much the time was advanced.
    advanced: Duration,
    /// When the kept holds were last renewed on the server.
    kept: Duration,
    /// How many owner numbers were drawn.
    drawn: u64,
    cause: Cause,
    is_late: bool,
    tally: Tally,
}

/// What was done so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    cases: u64,
    /// Cases that took too long to compare.
    cut_short: u64,
    /// How often a waiter succeeded.
    wakeups: u64,
    /// How often a waiter retried and did not succeed, in memory and on the server.
    in_vain: [u64; 2],
}

impl Tally {
    pub(super) fn add(&mut self, more: &Self) {
        self.operations += more.operations;
        self.cases += more.cases;
        self.cut_short += more.cut_short;
        self.wakeups += more.wakeups;
        self.in_vain = std::array::from_fn(|side| self.in_vain[side] + more.in_vain[side]);
    }
}

/// The identity of one hold: an owner, a name, and the target.
type Seat = (usize, usize, Target);

/// A hold, as far as its owner knows.
#[derive(Debug, Clone)]
struct Hold {
    /// The spot by which it was entered first.
    spot: Spot,
    count: u32,
    lease: Lease,
    /// When a fixed lease ends, from the beginning of the case.
    ends: Duration,
}

/// Whether a step was done, or there was nothing to do.
type Step = Result<bool, String>;

impl<'a> World<'a> {
    pub(super) fn new(both: &'a mut Both, families: [Family; NAMES]) -> Self {
        both.begin();
        Self {
            both,
            families,
            clients: std::array::from_fn(|_| ClientId::random()),
            dead: [false; CLIENTS],
            holds: BTreeMap::new(),
            loose: Vec::new(),
            waiters: Vec::new(),
            advanced: Duration::ZERO,
            kept: Duration::ZERO,
            drawn: 100,
            cause: Cause::Other,
            is_late: false,
            tally: Tally { cases: 1, ..Tally::default() },
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Ends the case.
    pub(super) fn end(mut self, cut_short: bool) -> Tally {
        for waiter in std::mem::take(&mut self.waiters) {
            self.leave(&waiter);
        }
        self.tally.cut_short = cut_short.into();
        self.tally
    }

    pub(super) fn step(&mut self, op: &Op) -> Result<(), String> {
        let begun = tokio::time::Instant::now();
        self.both.tick();
        self.cause = Cause::Other;
        let done = self.act(op);
        self.is_late |= self.both.elapsed() > LATE || begun.elapsed() > SLOW;
        self.tally.operations += u64::from(done == Ok(true) && !self.is_late);
        done.map(drop)
    }

    fn act(&mut self, op: &Op) -> Step {
        match *op {
            Op::Try(at, how) if self.lives(at) => self.try_once(at, how),
            Op::TryAll(at, how) if self.lives(at) => self.try_all(at, how),
            Op::Wait(at, how) if self.lives(at) => self.wait(at, how),
            Op::GiveUp(at) if self.lives(at) => self.give_up(at),
            Op::Release(at) if self.lives(at) => self.release(at),
            Op::Abandon(at, all) if self.lives(at) => self.abandon(at, all),
            Op::Renew(at, length) if self.lives(at) => self.renew(at, length),
            Op::Force(at) if self.lives(at) => self.force(at),
            Op::LetGo(at) if self.lives(at) => self.let_go(at),
            Op::Adjust(at, count) if self.lives(at) => self.adjust(at, count),
            Op::Advance(seconds) => self.advance(Duration::from_secs(seconds) + AND_A_LITTLE),
            Op::Die(client) if !self.dead[client] => self.die(client),
            _ => Ok(false),
        }
    }

    fn release(&mut self, at: At) -> Step {
        let Some((at, seat, hold)) = self.some_hold(at) else { return Ok(false) };
        self.frees(at.name, hold.spot.target.kind);
        let told = self.both.ask(client(at), |engine| engine.release(&hold.spot, hold.count, hold.lease));
        self.same(at.name, "release", told.each_ref().map(said::released))?;
        self.lasts(
            client(at),
            &hold.spot,
            told.map(|told| if let Released::Left(_, until) = told { until } else { None }),
        );
        match told[0] {
            Released::Left(0, _) => drop(self.holds.remove(&seat)),
            Released::Left(left, _) => {
                self.cause = Cause::Nothing;
                let ends = hold.ends.max(self.now() + hold.lease.length());
                self.holds.insert(seat, Hold { count: left, ends, ..hold });
            }
            Released::NotHeld => self.learn_of_loss(at, &seat, &hold),
        }
        self.after(at)
    }

    fn abandon(&mut self, at: At, all: bool) -> Step {
        let Some((at, seat, hold)) = self.some_hold(at) else { return Ok(false) };
        let counts = matches!(hold.spot.target.kind.family(), Family::Lock | Family::Rw | Family::Group);
        let count = if all || !counts { 0 } else { hold.count - 1 };
        self.frees(at.name, hold.spot.target.kind);
        self.both.tell(client(at), |engine, _| engine.abandon(&hold.spot, count, hold.lease.into()));
        self.both.finish(client(at));
        if count == 0 {
            self.holds.remove(&seat);
        } else {
            self.holds.insert(seat, Hold { count, ..hold });
        }
        self.after(at)
    }

    fn renew(&mut self, at: At, length: Length) -> Step {
        let Some((at, seat, hold)) = self.some_hold(at) else { return Ok(false) };
        let [_, is_held] = self
            .both
            .tell(client(at), |engine, _| engine.term(&hold.spot).is_some_and(|term| term.is_held()));
        let length = match (hold.lease, length) {
            (Lease::Kept(kept), _) => kept,
            // Its lease may have been extended by its id, and its holder is not notified: by its own clock it is lost.
            _ if hold.spot.target.kind == Kind::Permits && !is_held => return Ok(false),
            // On a server the halves of one owner end together, see `rw_lease`.
            _ if self.other_half(at, hold.spot.target.kind).is_some() => return Ok(false),
            (_, Length::Kept) => Length::Long.time(),
            (_, length) => length.time(),
        };
        let told = self.both.ask(client(at), |engine| engine.renew(&hold.spot, length));
        self.same(at.name, "renew", told.each_ref().map(said::renewed))?;
        self.lasts(
            client(at),
            &hold.spot,
            told.map(|told| if let Renewed::Until(until) = told { Some(until) } else { None }),
        );
        if let Renewed::Gone = told[0] {
            self.learn_of_loss(at, &seat, &hold);
        } else {
            self.cause = Cause::Nothing;
            let ends = hold.ends.max(self.now() + length);
            self.holds.insert(seat, Hold { ends, ..hold });
        }
        self.after(at)
    }

    /// Extends the term of a hold, by the clock of each engine.
    fn lasts(&self, client: usize, spot: &Spot, until: [Option<Until>; 2]) {
        self.both.tell(client, |engine, side| {
            if let (Some(term), Some(until)) = (engine.term(spot), until[side as usize]) {
                term.lasts_at_least(until);
            }
        });
    }

    /// The owner finds a hold lost and releases the rest of it.
    fn learn_of_loss(&mut self, at: At, seat: &Seat, hold: &Hold) {
        self.frees(at.name, hold.spot.target.kind);
        self.both.tell(client(at), |engine, _| engine.abandon(&hold.spot, 0, hold.lease.into()));
        self.both.finish(client(at));
        self.holds.remove(seat);
    }

    fn force(&mut self, at: At) -> Step {
        let target = self.target(at);
        if !matches!(target.kind.family(), Family::Lock | Family::SetNx | Family::Rw | Family::Group) {
            return Ok(false);
        }
        // The rest of a broken set ends as if it had been renewed just now.
        self.keep();
        self.frees(at.name, target.kind);
        let told = self.both.ask(client(at), |engine| engine.force(&target));
        self.same(at.name, "force", told.map(|freed| Said::words(freed.to_string())))?;
        self.after(at)
    }

    fn let_go(&mut self, at: At) -> Step {
        let Some((at, seat, hold)) = self.some_hold(at) else { return Ok(false) };
        if !matches!(hold.spot.target.kind, Kind::Semaphore | Kind::Permits) {
            return Ok(false);
        }
        self.keep();
        self.both.tell(client(at), |engine, _| engine.let_go(&hold.spot));
        self.loosen(at.name, &hold);
        self.holds.remove(&seat);
        self.after(at)
    }

    fn advance(&mut self, length: Duration) -> Step {
        self.both.advance(length);
        self.advanced += length;
        self.cause = Cause::Time;
        self.keep();
        for name in 0..NAMES {
            self.check(name, 0)?;
        }
        Ok(true)
    }

    fn die(&mut self, dying: usize) -> Step {
        self.keep();
        let (leave, stay) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.client() == dying);
        self.waiters = stay;
        for waiter in &leave {
            self.leave(waiter);
        }
        self.both.tell(dying, |engine, _| engine.retire(self.clients[dying]));
        self.dead[dying] = true;
        let (gone, stay) =
            std::mem::take(&mut self.holds).into_iter().partition(|((who, ..), _)| who % CLIENTS == dying);
        self.holds = stay;
        let gone: BTreeMap<Seat, Hold> = gone;
        for ((_, name, _), hold) in &gone {
            self.loosen(*name, hold);
        }
        self.both.finish(dying);
        for name in 0..NAMES {
            self.check(name, dying)?;
        }
        Ok(true)
    }

    /// Renews the kept holds on the server, as a client does all the time. Memory does not need that.
    fn keep(&mut self) {
        let kept = self.holds.iter().filter(|(_, hold)| hold.lease == Lease::Kept(KEPT));
        self.both.renew(kept.map(|((who, ..), hold)| (who % CLIENTS, &hold.spot)), KEPT);
        self.kept = self.both.elapsed();
    }

    /// The end of every step.
    fn after(&mut self, at: At) -> Step {
        self.check(at.name, client(at))?;
        Ok(true)
    }

    /// Compares the state of a name, and the wake-ups of its waiters. `client` is the client that did the step.
    fn check(&mut self, name: usize, client: usize) -> Result<(), String> {
        self.hear(name)?;
        self.look(name, client)?;
        self.wake(name)?;
        // Reading the state removes expired holds, which may wake waiters. Such wake-ups do not count.
        if self.cause == Cause::Time { self.hear(name) } else { Ok(()) }
    }

    /// Compares the replies of both engines.
    fn same(
        &self,
        name: usize,
        what: impl std::fmt::Debug,
        [memory, server]: [Said; 2],
    ) -> Result<(), String> {
        let kept = || self.both.elapsed().saturating_sub(self.kept);
        if memory.agrees(&server, Duration::ZERO)
            || self.something_is_kept(name) && memory.agrees(&server, kept())
        {
            return Ok(());
        }
        Err(format!("{what:?}: {memory:?} in memory, {server:?} on {}", self.both.other()))
    }

    fn something_is_kept(&self, at: usize) -> bool {
        self.holds.iter().any(|((who, name, _), hold)| {
            let is_held = || self.both.tell(who % CLIENTS, |engine, _| engine.term(&hold.spot).is_some())[0];
            *name == at && hold.lease == Lease::Kept(KEPT) && is_held()
        })
    }

    /// The ids of a hold belong to no hold any more.
    fn loosen(&mut self, name: usize, hold: &Hold) {
        if hold.spot.target.kind == Kind::Permits {
            self.loose.extend(PermitId::of(hold.spot.owner, hold.spot.amount).map(|id| (name, id)));
        }
    }

    /// A hold of a living client: the one at `at` if there is one, or another, so that few steps have nothing to do.
    fn some_hold(&self, at: At) -> Option<(At, Seat, Hold)> {
        if let Some((seat, hold)) = self.held(at) {
            return Some((at, seat, hold));
        }
        let holds: Vec<_> = self.holds.iter().filter(|((_, name, _), _)| *name == at.name).collect();
        let (seat, hold) = holds.get((at.who + at.pick) % holds.len().max(1))?;
        Some((At { who: seat.0, ..at }, (*seat).clone(), (*hold).clone()))
    }

    fn held(&self, at: At) -> Option<(Seat, Hold)> {
        let seat = self.seat(at);
        self.holds.get(&seat).map(|hold| (seat, hold.clone()))
    }

    /// The same owner's hold of the other half of a read-write lock.
    fn other_half(&self, at: At, kind: Kind) -> Option<&Hold> {
        let other = match kind {
            Kind::Read => Kind::Write,
            Kind::Write => Kind::Read,
            _ => return None,
        };
        self.holds.get(&(at.who, at.name, self.of_kind(at.name, other)))
    }

    fn seat(&self, at: At) -> Seat {
        (at.who, at.name, self.spot(at).of_hold().target)
    }

    fn target(&self, at: At) -> Target {
        let family = self.families[at.name];
        if family == Family::Group {
            return Target::group(word(at.name), SETS[at.pick % SETS.len()]).expect("a good group");
        }
        let kinds = kinds(family);
        self.of_kind(at.name, kinds[at.pick % kinds.len()])
    }

    fn of_kind(&self, name: usize, kind: Kind) -> Target {
        debug_assert_eq!(kind.family(), self.families[name]);
        Target::new(kind, word(name))
    }

    fn spot(&self, at: At) -> Spot {
        let number = u64::try_from(at.who).expect("few");
        let owner = OwnerId { client: self.clients[client(at)], number };
        Spot { target: self.target(at), owner, amount: 1 }
    }

    fn lives(&self, at: At) -> bool {
        !self.dead[client(at)]
    }

    /// The time since the case began, by the clock of the model.
    fn now(&self) -> Duration {
        self.both.elapsed() + self.advanced
    }
}

fn word(number: usize) -> crate::name::Name {
    name(["one", "two"][number])
}

/// The client of the owner.
fn client(at: At) -> usize {
    at.who % CLIENTS
}
