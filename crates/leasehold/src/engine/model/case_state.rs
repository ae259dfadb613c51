//! One case: holders and waiters by the replies of both engines, and the steps.

mod attempt_all;
mod attempts;
mod counters;
mod inspection;
mod wake_ups;

use std::collections::BTreeMap;
use std::time::Duration;

use self::wake_ups::{Cause, Waiter};
use super::engine_pair::{EnginePair, name};
use super::observed::{self, Observed};
use super::op::{At, CLIENTS, KEPT, Length, NAMES, Op, SETS, kinds};
use crate::client_id::ClientId;
use crate::engine::{Family, HoldKey, Kind, Released, Renewed, Resource};
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::permit_id::PermitId;
use crate::term::Until;

/// A case that takes longer than this comes too near to the end of a lease between two steps.
const LATE: Duration = Duration::from_millis(400);
/// A step that takes longer than this by the real clock did not happen at one moment. The sweep of the memory engine, which
/// uses that clock everywhere, may have skipped a waiter.
const SLOW: Duration = Duration::from_millis(40);
/// Time moves by whole seconds and so much more: then a lease of whole seconds is over also on a server that counts
/// milliseconds.
const AND_A_LITTLE: Duration = Duration::from_millis(2);

pub(super) struct CaseState<'a> {
    engines: &'a mut EnginePair,
    families: [Family; NAMES],
    clients: [ClientId; CLIENTS],
    dead: [bool; CLIENTS],
    holds: BTreeMap<HoldId, Hold>,
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
    stats: Stats,
}

/// What was done so far.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) operations: u64,
    cases: u64,
    /// Cases that took too long to compare.
    cut_short: u64,
    /// How often a waiter succeeded.
    wakeups: u64,
    /// How often a waiter retried and did not succeed, in memory and on the server.
    in_vain: [u64; 2],
}

impl Stats {
    pub(super) fn add(&mut self, more: &Self) {
        self.operations += more.operations;
        self.cases += more.cases;
        self.cut_short += more.cut_short;
        self.wakeups += more.wakeups;
        self.in_vain = std::array::from_fn(|side| self.in_vain[side] + more.in_vain[side]);
    }
}

/// The identity of one hold: an owner, a name, and the resource.
type HoldId = (usize, usize, Resource);

/// A hold, as far as its owner knows.
#[derive(Debug, Clone)]
struct Hold {
    /// The hold key by which it was entered first.
    key: HoldKey,
    count: u32,
    lease: Lease,
    /// When a fixed lease ends, from the beginning of the case.
    ends: Duration,
}

/// Whether a step was done, or there was nothing to do.
type Step = Result<bool, String>;

impl<'a> CaseState<'a> {
    pub(super) fn new(engines: &'a mut EnginePair, families: [Family; NAMES]) -> Self {
        engines.begin();
        Self {
            engines,
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
            stats: Stats { cases: 1, ..Stats::default() },
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Ends the case.
    pub(super) fn end(mut self, cut_short: bool) -> Stats {
        for waiter in std::mem::take(&mut self.waiters) {
            self.leave(&waiter);
        }
        self.stats.cut_short = cut_short.into();
        self.stats
    }

    pub(super) fn step(&mut self, op: &Op) -> Result<(), String> {
        let begun = tokio::time::Instant::now();
        self.engines.tick();
        self.cause = Cause::Other;
        let done = self.act(op);
        self.is_late |= self.engines.elapsed() > LATE || begun.elapsed() > SLOW;
        self.stats.operations += u64::from(done == Ok(true) && !self.is_late);
        done.map(drop)
    }

    fn act(&mut self, op: &Op) -> Step {
        match *op {
            Op::Try(at, how) if self.lives(at) => self.try_once(at, how),
            Op::TryAll(at, how) if self.lives(at) => self.try_all(at, how),
            Op::Wait(at, how) if self.lives(at) => self.wait(at, how),
            Op::GiveUp(at) if self.lives(at) => self.give_up(at),
            Op::Release(at) if self.lives(at) => self.release(at),
            Op::Undo(at, all) if self.lives(at) => self.undo(at, all),
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
        let Some((at, hold_id, hold)) = self.some_hold(at) else { return Ok(false) };
        self.frees(at.name, hold.key.resource.kind);
        let results =
            self.engines.call(client(at), |engine| engine.release(&hold.key, hold.count, hold.lease));
        self.same(at.name, "release", results.each_ref().map(observed::released))?;
        self.set_until(
            client(at),
            &hold.key,
            results.map(|result| if let Released::Left(_, until) = result { until } else { None }),
        );
        match results[0] {
            Released::Left(0, _) => drop(self.holds.remove(&hold_id)),
            Released::Left(left, _) => {
                self.cause = Cause::Nothing;
                let ends = hold.ends.max(self.now() + hold.lease.length());
                self.holds.insert(hold_id, Hold { count: left, ends, ..hold });
            }
            Released::NotHeld => self.learn_of_loss(at, &hold_id, &hold),
        }
        self.after(at)
    }

    fn undo(&mut self, at: At, all: bool) -> Step {
        let Some((at, hold_id, hold)) = self.some_hold(at) else { return Ok(false) };
        let counts = matches!(hold.key.resource.kind.family(), Family::Lock | Family::Rw | Family::Group);
        let count = if all || !counts { 0 } else { hold.count - 1 };
        self.frees(at.name, hold.key.resource.kind);
        self.engines
            .call_without_reply(client(at), |engine, _| engine.undo(&hold.key, count, hold.lease.into()));
        self.engines.finish(client(at));
        if count == 0 {
            self.holds.remove(&hold_id);
        } else {
            self.holds.insert(hold_id, Hold { count, ..hold });
        }
        self.after(at)
    }

    fn renew(&mut self, at: At, length: Length) -> Step {
        let Some((at, hold_id, hold)) = self.some_hold(at) else { return Ok(false) };
        let [_, is_held] = self.engines.call_without_reply(client(at), |engine, _| {
            engine.term(&hold.key).is_some_and(|term| term.is_held())
        });
        let length = match (hold.lease, length) {
            (Lease::Kept(kept), _) => kept,
            // Its lease may have been extended by its id, and its holder is not notified: by its own clock it is lost.
            _ if hold.key.resource.kind == Kind::LeasedSemaphore && !is_held => return Ok(false),
            // On a server the halves of one owner end together, see `rw_lease`.
            _ if self.other_half(at, hold.key.resource.kind).is_some() => return Ok(false),
            (_, Length::Kept) => Length::Long.time(),
            (_, length) => length.time(),
        };
        let results = self.engines.call(client(at), |engine| engine.renew(&hold.key, length));
        self.same(at.name, "renew", results.each_ref().map(observed::renewed))?;
        self.set_until(
            client(at),
            &hold.key,
            results.map(|result| if let Renewed::Until(until) = result { Some(until) } else { None }),
        );
        if let Renewed::Gone = results[0] {
            self.learn_of_loss(at, &hold_id, &hold);
        } else {
            self.cause = Cause::Nothing;
            let ends = hold.ends.max(self.now() + length);
            self.holds.insert(hold_id, Hold { ends, ..hold });
        }
        self.after(at)
    }

    /// Extends the term of a hold, by the clock of each engine.
    fn set_until(&self, client: usize, key: &HoldKey, until: [Option<Until>; 2]) {
        self.engines.call_without_reply(client, |engine, side| {
            if let (Some(term), Some(until)) = (engine.term(key), until[side as usize]) {
                term.extend_until(until);
            }
        });
    }

    /// The owner finds a hold lost and releases the rest of it.
    fn learn_of_loss(&mut self, at: At, hold_id: &HoldId, hold: &Hold) {
        self.frees(at.name, hold.key.resource.kind);
        self.engines.call_without_reply(client(at), |engine, _| engine.undo(&hold.key, 0, hold.lease.into()));
        self.engines.finish(client(at));
        self.holds.remove(hold_id);
    }

    fn force(&mut self, at: At) -> Step {
        let resource = self.resource(at);
        if !matches!(resource.kind.family(), Family::Lock | Family::SetNx | Family::Rw | Family::Group) {
            return Ok(false);
        }
        // The rest of a broken set ends as if it had been renewed just now.
        self.keep();
        self.frees(at.name, resource.kind);
        let results = self.engines.call(client(at), |engine| engine.force(&resource));
        self.same(at.name, "force", results.map(|freed| Observed::text(freed.to_string())))?;
        self.after(at)
    }

    fn let_go(&mut self, at: At) -> Step {
        let Some((at, hold_id, hold)) = self.some_hold(at) else { return Ok(false) };
        if !matches!(hold.key.resource.kind, Kind::Semaphore | Kind::LeasedSemaphore) {
            return Ok(false);
        }
        self.keep();
        self.engines.call_without_reply(client(at), |engine, _| engine.let_go(&hold.key));
        self.loosen(at.name, &hold);
        self.holds.remove(&hold_id);
        self.after(at)
    }

    fn advance(&mut self, length: Duration) -> Step {
        self.engines.advance(length);
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
        self.engines.call_without_reply(dying, |engine, _| engine.retire(self.clients[dying]));
        self.dead[dying] = true;
        let (gone, stay) =
            std::mem::take(&mut self.holds).into_iter().partition(|((who, ..), _)| who % CLIENTS == dying);
        self.holds = stay;
        let gone: BTreeMap<HoldId, Hold> = gone;
        for ((_, name, _), hold) in &gone {
            self.loosen(*name, hold);
        }
        self.engines.finish(dying);
        for name in 0..NAMES {
            self.check(name, dying)?;
        }
        Ok(true)
    }

    /// Renews the kept holds on the server, as a client does all the time. Memory does not need that.
    fn keep(&mut self) {
        let kept = self.holds.iter().filter(|(_, hold)| hold.lease == Lease::Kept(KEPT));
        self.engines.renew(kept.map(|((who, ..), hold)| (who % CLIENTS, &hold.key)), KEPT);
        self.kept = self.engines.elapsed();
    }

    /// The end of every step.
    fn after(&mut self, at: At) -> Step {
        self.check(at.name, client(at))?;
        Ok(true)
    }

    /// Compares the state of a name, and the wake-ups of its waiters. `client` is the client that did the step.
    fn check(&mut self, name: usize, client: usize) -> Result<(), String> {
        self.record_wake_ups(name)?;
        self.compare_state(name, client)?;
        self.wake(name)?;
        // Reading the state removes expired holds, which may wake waiters. Such wake-ups do not count.
        if self.cause == Cause::Time { self.record_wake_ups(name) } else { Ok(()) }
    }

    /// Compares the replies of both engines.
    fn same(
        &self,
        name: usize,
        what: impl std::fmt::Debug,
        [memory, server]: [Observed; 2],
    ) -> Result<(), String> {
        let kept = || self.engines.elapsed().saturating_sub(self.kept);
        if memory.agrees(&server, Duration::ZERO)
            || self.something_is_kept(name) && memory.agrees(&server, kept())
        {
            return Ok(());
        }
        Err(format!("{what:?}: {memory:?} in memory, {server:?} on {}", self.engines.server_name()))
    }

    fn something_is_kept(&self, at: usize) -> bool {
        self.holds.iter().any(|((who, name, _), hold)| {
            let is_held = || {
                self.engines.call_without_reply(who % CLIENTS, |engine, _| engine.term(&hold.key).is_some())
                    [0]
            };
            *name == at && hold.lease == Lease::Kept(KEPT) && is_held()
        })
    }

    /// The ids of a hold belong to no hold any more.
    fn loosen(&mut self, name: usize, hold: &Hold) {
        if hold.key.resource.kind == Kind::LeasedSemaphore {
            self.loose.extend(PermitId::of(hold.key.owner, hold.key.amount).map(|id| (name, id)));
        }
    }

    /// A hold of a living client: the one at `at` if there is one, or another, so that few steps have nothing to do.
    fn some_hold(&self, at: At) -> Option<(At, HoldId, Hold)> {
        if let Some((hold_id, hold)) = self.held(at) {
            return Some((at, hold_id, hold));
        }
        let holds: Vec<_> = self.holds.iter().filter(|((_, name, _), _)| *name == at.name).collect();
        let (hold_id, hold) = holds.get((at.who + at.pick) % holds.len().max(1))?;
        Some((At { who: hold_id.0, ..at }, (*hold_id).clone(), (*hold).clone()))
    }

    fn held(&self, at: At) -> Option<(HoldId, Hold)> {
        let hold_id = self.hold_id(at);
        self.holds.get(&hold_id).map(|hold| (hold_id, hold.clone()))
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

    fn hold_id(&self, at: At) -> HoldId {
        (at.who, at.name, self.key(at).of_hold().resource)
    }

    fn resource(&self, at: At) -> Resource {
        let family = self.families[at.name];
        if family == Family::Group {
            return Resource::group(lock_name(at.name), SETS[at.pick % SETS.len()]).expect("a good group");
        }
        let kinds = kinds(family);
        self.of_kind(at.name, kinds[at.pick % kinds.len()])
    }

    fn of_kind(&self, name: usize, kind: Kind) -> Resource {
        debug_assert_eq!(kind.family(), self.families[name]);
        Resource::new(kind, lock_name(name))
    }

    fn key(&self, at: At) -> HoldKey {
        let number = u64::try_from(at.who).expect("few");
        let owner = OwnerId { client: self.clients[client(at)], number };
        HoldKey { resource: self.resource(at), owner, amount: 1 }
    }

    fn lives(&self, at: At) -> bool {
        !self.dead[client(at)]
    }

    /// The time since the case began, by the clock of the model.
    fn now(&self) -> Duration {
        self.engines.elapsed() + self.advanced
    }
}

fn lock_name(number: usize) -> crate::name::Name {
    name(["one", "two"][number])
}

/// The client of the owner.
fn client(at: At) -> usize {
    at.who % CLIENTS
}
