//! The server of a simulation: the state of all locks, and the clients that subscribe.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::SimFaults;
use super::sessions::Sessions;
use super::store::Listener;
use crate::engine::memory::Memory;
use crate::engine::remote::store::{Forced, Given, Shard, Take, Taken, TakenAll, Topic, Verdict};
use crate::engine::{
    Adjust, Attempt, AttemptAll, BARRED, Busy, Change, Claim, Engine, Facts, Family, Kind, Question,
    Released, Renewed, Reply, RwOptions, Spot, Target,
};
use crate::env::sim::Host;
use crate::env::{self, Instant, Tasks};
use crate::error::Failure;
use crate::lease::{COUNTED, Lease};
use crate::owner::OwnerId;
use crate::term::Term;

/// The server of a simulation.
pub(crate) struct SimServer {
    state: Mutex<State>,
    faults: Mutex<SimFaults>,
    /// Where it runs outside of a schedule.
    tasks: Tasks,
}

/// Invariant: the queues and results belong to the locks of `memory`: a restart empties all of them.
#[derive(Debug)]
pub(super) struct State {
    memory: Arc<Memory>,
    /// The queues of fair locks, with the last heartbeat of each waiter.
    queues: BTreeMap<Target, VecDeque<(OwnerId, Instant)>>,
    /// The results of changes that may be sent again.
    results: BTreeMap<(u64, u64, u64), i64>,
    /// Writers that wait and keep new readers out, with when each was last seen.
    flags: BTreeMap<Spot, Instant>,
    clients: Vec<Weak<Listener>>,
    pub(super) sessions: Sessions,
}

impl State {
    fn new(clients: Vec<Weak<Listener>>) -> Self {
        Self {
            memory: Memory::new(),
            queues: BTreeMap::new(),
            results: BTreeMap::new(),
            flags: BTreeMap::new(),
            clients,
            sessions: Sessions::default(),
        }
    }
}

/// A waiter in the queue of a fair lock without a heartbeat for longer is presumed dead.
const SILENT: Duration = Duration::from_secs(3);

/// The server of this name, made for the first client and dropped with the last.
pub(crate) fn shared(name: &str) -> Arc<SimServer> {
    static SERVERS: LazyLock<Mutex<BTreeMap<String, Weak<SimServer>>>> = LazyLock::new(Mutex::default);
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = servers.get(name).and_then(Weak::upgrade) {
        return server;
    }
    servers.retain(|_, server| server.strong_count() > 0);
    let server = SimServer::new();
    servers.insert(name.to_owned(), Arc::downgrade(&server));
    server
}

impl SimServer {
    pub(crate) fn new() -> Arc<Self> {
        let tasks = Tasks::here();
        Arc::new(Self { state: Mutex::new(State::new(Vec::new())), faults: Mutex::default(), tasks })
    }

    /// The faults, to be changed.
    pub(crate) fn faults(&self) -> MutexGuard<'_, SimFaults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the reply to the request that was just carried out is lost.
    pub(super) fn loses_reply(&self) -> bool {
        let mut faults = self.faults();
        let is_lost = faults.lost_replies > 0;
        faults.lost_replies -= usize::from(is_lost);
        is_lost
    }

    /// Drops all state, as a server does that restarts without its data.
    pub(crate) fn restart_empty(&self) {
        let clients = std::mem::take(&mut self.state().clients);
        *self.state() = State::new(clients.clone());
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.cut();
        }
    }

    /// Breaks the connections of all clients.
    pub(crate) fn cut(&self) {
        for client in self.clients() {
            client.cut();
        }
    }

    /// Breaks the connections for messages of all clients.
    pub(crate) fn cut_messages(&self) {
        for client in self.clients() {
            client.cut_messages();
        }
    }

    /// Breaks the connections of all clients to one shard.
    pub(crate) fn cut_shard(&self, shard: Shard) {
        for client in self.clients() {
            client.cut_shard(shard);
        }
    }

    /// How many acquires of all clients wait for this name.
    pub(super) fn waiters(&self, name: &str) -> usize {
        self.clients().iter().map(|client| client.waiters(name)).sum()
    }

    /// How many names are held, or have waiters in the queue of a fair lock or a writer that waits and keeps readers out.
    pub(super) fn names(&self) -> usize {
        let now = env::now();
        let is_alive = |seen: &Instant, limit| now.saturating_duration_since(*seen) < limit;
        let state = self.state();
        let queued =
            state.queues.iter().filter(|(_, all)| all.iter().any(|(_, seen)| is_alive(seen, SILENT)));
        let flagged = state.flags.iter().filter(|(_, seen)| is_alive(seen, BARRED));
        let waited: BTreeSet<_> =
            queued.map(|(target, _)| target).chain(flagged.map(|(spot, _)| &spot.target)).collect();
        let memory = &state.memory;
        memory.names() + waited.into_iter().filter(|target| !memory.is_used(target)).count()
    }

    /// The state of the locks, to inspect.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.state().memory)
    }

    /// Starts a task of the server: in a schedule on no host, whichever client's task this is called from.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match env::sim::here(Host::schedule) {
            Some(schedule) => drop(schedule.spawn(work)),
            None => self.tasks.spawn(work),
        }
    }

    pub(super) fn join(&self, client: &Arc<Listener>) {
        let mut state = self.state();
        state.clients.retain(|client| client.strong_count() > 0);
        state.clients.push(Arc::downgrade(client));
    }

    fn clients(&self) -> Vec<Arc<Listener>> {
        self.state().clients.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The effects of requests.
impl SimServer {
    pub(super) fn take(&self, take: &OwnedTake) -> Result<Taken, Failure> {
        let OwnedTake { spot, .. } = take;
        note("take", &spot.target, Some(spot.owner));
        if spot.target.kind != Kind::Fair {
            if take.heeds_flags() && self.is_flagged(spot) {
                return Ok(Taken::Busy(Busy { retry_in: Some(BARRED), ..Busy::default() }));
            }
            let mut taken = taken(&now(self.memory().attempt(&take.claim(spot), None))?);
            if take.flags() {
                self.flag(spot, &mut taken);
            }
            if take.steal && matches!(taken, Taken::Granted(_)) {
                // Readers that the replaced hold kept out may enter beside a reader.
                self.publish(&spot.target);
            }
            return Ok(taken);
        }
        let lock = spot_of(spot, Kind::Lock);
        if take.held == 0
            && !take.steal
            && self.first_of(&spot.target).is_some_and(|first| first != spot.owner)
        {
            let holder = now(self.memory().inspect(&Question::Holder(&lock.target, None)))?.holding;
            let retry_in = holder.map(|holding| holding.remaining);
            let holder = holder.and_then(|holding| holding.owner);
            return Ok(Taken::Busy(self.queued(take, Busy { retry_in, holder, ..Busy::default() })));
        }
        let attempt = now(self.memory().attempt(&take.claim(&lock), None))?;
        Ok(match taken(&attempt) {
            Taken::Busy(busy) => Taken::Busy(self.queued(take, busy)),
            Taken::Granted(token) => {
                self.unqueue(spot);
                Taken::Granted(token)
            }
            other => other,
        })
    }

    pub(super) fn take_all(&self, takes: &[OwnedTake]) -> Result<TakenAll, Failure> {
        for take in takes {
            note("take all", &take.spot.target, Some(take.spot.owner));
        }
        let claims: Vec<_> = takes.iter().map(|take| take.claim(&take.spot)).collect();
        let all =
            self.memory().attempt_all(&claims, None).expect("the embedded engine takes all in one step");
        Ok(match now(all)? {
            AttemptAll::Granted(granted) => {
                TakenAll::Granted(granted.into_iter().map(|(_, token)| token).collect())
            }
            AttemptAll::Busy(number, busy) => TakenAll::Busy(number, busy),
            AttemptAll::NotAsked(failure) => return Err(failure),
        })
    }

    pub(super) fn give(&self, spot: &Spot, from: u32, length: Duration) -> Result<Given, Failure> {
        note("give", &spot.target, Some(spot.owner));
        let of = spot_of(spot, spot.target.kind.of_hold());
        let left = match now(self.memory().release(&of, from, Lease::Fixed(length)))? {
            Released::Left(left, _) => Some(left),
            Released::NotHeld => None,
        };
        // In a group, the remaining values of an owner are freed, although it did not have all of them.
        let is_some_freed = left.is_none() && spot.target.kind == Kind::Group;
        let listeners = (left == Some(0) || is_some_freed).then(|| self.publish(&spot.target));
        Ok(Given { left, listeners })
    }

    pub(super) fn lower(&self, spot: &Spot, to: u32) -> Given {
        note("lower", &spot.target, Some(spot.owner));
        if spot.target.kind == Kind::Fair {
            self.unqueue(spot);
        }
        let of = spot_of(spot, spot.target.kind.of_hold());
        self.memory().abandon(&of, to, Lease::Fixed(Duration::ZERO).into());
        Given { left: None, listeners: Some(self.publish(&spot.target)) }
    }

    pub(super) fn renew(&self, spot: &Spot, length: Duration) -> Result<Verdict, Failure> {
        note("renew", &spot.target, Some(spot.owner));
        let of = spot_of(spot, spot.target.kind.of_hold());
        if let Renewed::Until(_) = now(self.memory().renew(&of, length))? {
            return Ok(Verdict::Held);
        }
        if matches!(spot.target.kind, Kind::Semaphore | Kind::Permits | Kind::Latch) {
            return Ok(Verdict::Gone);
        }
        let halves: &[Kind] = if of.target.kind.family() == Family::Rw {
            &[Kind::Read, Kind::Write]
        } else {
            &[of.target.kind]
        };
        for kind in halves {
            let target = of.target.of_kind(*kind);
            if now(self.memory().inspect(&Question::Holder(&target, None)))?.holding.is_some() {
                return Ok(Verdict::TakenOver);
            }
        }
        Ok(Verdict::Gone)
    }

    pub(super) fn force(&self, target: &Target) -> Result<Forced, Failure> {
        note("force", target, None);
        let was_held = now(self.memory().force(&target.of_kind(target.kind.of_hold())))?;
        Ok(Forced { was_held, listeners: was_held.then(|| self.publish(target)) })
    }

    pub(super) fn holder(&self, target: &Target, owner: Option<OwnerId>) -> Result<Facts, Failure> {
        now(self.memory().inspect(&Question::Holder(&target.of_kind(target.kind.of_hold()), owner)))
    }

    pub(super) fn token(&self, target: &Target) -> Result<Facts, Failure> {
        now(self.memory().inspect(&Question::Token(&target.of_kind(target.kind.of_hold()))))
    }

    pub(super) fn queue(&self, target: &Target) -> Facts {
        let state = self.state();
        let queue =
            state.queues.get(target).into_iter().flatten().map(|(owner, _)| (*owner).into()).collect();
        Facts { queue, ..Facts::default() }
    }

    pub(super) fn change(&self, target: &Target, change: &Change) -> Result<i64, Failure> {
        note("change", target, Some(change.request));
        let key = (change.request.client.halves(), change.request.number);
        let key = (key.0.0, key.0.1, key.1);
        if let Some(known) = self.state().results.get(&key) {
            return Ok(*known);
        }
        let told = match now(self.memory().adjust(target, change))? {
            crate::engine::Adjusted::Done(told) => told,
            crate::engine::Adjusted::NotAsked(failure) => return Err(failure),
        };
        if !change.adjust.is_question() {
            self.state().results.insert(key, told);
            if change.adjust.frees(told) && !matches!(change.adjust, Adjust::Drain) {
                self.publish(target);
            }
        }
        Ok(told)
    }

    pub(super) fn forget_change(&self, change: &Change) {
        let (first, second) = change.request.client.halves();
        self.state().results.remove(&(first, second, change.request.number));
    }

    /// A permit that is only counted stays taken, although its owner is forgotten.
    pub(super) fn detach(&self, spot: &Spot) {
        self.memory().let_go(spot);
    }

    /// Records heartbeats of waiters for fair locks. Returns their positions in the queues, from one, if they still have one.
    pub(super) fn beat(&self, spots: Vec<Spot>) -> Vec<(Spot, Option<usize>)> {
        let now = env::now();
        let mut state = self.state();
        let mut place = |spot: &Spot| {
            let mut queue = state.queues.get_mut(&spot.target).into_iter().flatten().enumerate();
            let (place, (_, seen)) = queue.find(|(_, (owner, _))| *owner == spot.owner)?;
            *seen = now;
            Some(place + 1)
        };
        spots.into_iter().map(|spot| (spot.clone(), place(&spot))).collect()
    }
}

/// Writers that wait.
impl SimServer {
    /// Whether a waiting writer keeps a reader out. At a lock that is held for writing, the holder keeps it out.
    fn is_flagged(&self, spot: &Spot) -> bool {
        let now = env::now();
        let writer = self.holder(&spot.target.of_kind(Kind::Write), None);
        if writer.is_ok_and(|facts| facts.holding.is_some()) {
            return false;
        }
        let mut state = self.state();
        state.flags.retain(|_, seen| now.saturating_duration_since(*seen) < BARRED);
        state.flags.keys().any(|writer| writer.target.name == spot.target.name && writer.owner != spot.owner)
    }

    /// Notes that a writer waits, or does not any more.
    fn flag(&self, spot: &Spot, taken: &mut Taken) {
        match taken {
            Taken::Busy(busy) => {
                self.state().flags.insert(spot.clone(), env::now());
                busy.go_on_barring();
            }
            _ => drop(self.state().flags.remove(spot)),
        }
    }

    pub(super) fn unflag(&self, spot: &Spot) {
        self.state().flags.remove(spot);
        self.publish(&spot.target);
    }
}

/// The queues of fair locks.
impl SimServer {
    /// The first waiter in a queue that is presumed alive.
    fn first_of(&self, target: &Target) -> Option<OwnerId> {
        let now = env::now();
        let mut state = self.state();
        let queue = state.queues.get_mut(target)?;
        queue.retain(|(_, seen)| now.saturating_duration_since(*seen) < SILENT);
        let first = queue.front().map(|(owner, _)| *owner);
        if first.is_none() {
            state.queues.remove(target);
        }
        first
    }

    /// Queues a waiter, if it wants to wait.
    fn queued(&self, take: &OwnedTake, busy: Busy) -> Busy {
        let OwnedTake { spot, .. } = take;
        let mut state = self.state();
        let queue = state.queues.entry(spot.target.clone()).or_default();
        let mut place = queue.iter().position(|(owner, _)| *owner == spot.owner);
        if place.is_none() && take.queue.is_some() {
            queue.push_back((spot.owner, env::now()));
            place = Some(queue.len() - 1);
        }
        if queue.is_empty() {
            state.queues.remove(&spot.target);
        }
        let position = place.map(|place| place + 1);
        let retry_in = busy.retry_in.filter(|_| position.is_none_or(|position| position == 1));
        Busy { retry_in, position, ..busy }
    }

    fn unqueue(&self, spot: &Spot) {
        let mut state = self.state();
        if let Some(queue) = state.queues.get_mut(&spot.target) {
            queue.retain(|(owner, _)| *owner != spot.owner);
            if queue.is_empty() {
                state.queues.remove(&spot.target);
            }
        }
    }

    /// Notifies the subscribed clients that a target of this name may be free, and counts them.
    fn publish(&self, freed: &Target) -> usize {
        let next = self.first_of(&freed.of_kind(Kind::Fair));
        let concerns = |(target, owner): &Topic| {
            target.name == freed.name
                && target.kind.family() == freed.kind.family()
                && (target.kind != Kind::Fair || *owner == next)
        };
        let mut told = 0;
        for client in self.clients() {
            let topics = client.watched(concerns);
            told += usize::from(!topics.is_empty());
            for topic in topics {
                let times = {
                    let mut faults = self.faults();
                    let is_lost = faults.lost_messages > 0;
                    faults.lost_messages -= usize::from(is_lost);
                    if is_lost { 0 } else { 1 + usize::from(faults.doubled_messages) }
                };
                for _ in 0..times {
                    client.send(topic.clone());
                }
            }
        }
        told
    }
}

/// A take in flight.
pub(super) struct OwnedTake {
    pub(super) spot: Spot,
    held: u32,
    length: Duration,
    steal: bool,
    fenced: bool,
    queue: Option<crate::engine::Queueing>,
    rw: RwOptions,
    term: Arc<Term>,
    pub(super) waits: bool,
}

impl OwnedTake {
    pub(super) fn new(take: &Take<'_>) -> Self {
        let Take { spot, held, length, steal, fenced, queue, rw, waits } = *take;
        let (spot, term) = (spot.clone(), Term::new(Weak::new()));
        Self { spot, held, length, steal, fenced, queue, rw, term, waits }
    }

    /// Whether it is queued at a fair lock if it is not granted.
    pub(super) fn queues(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether its waiter wants to be notified of every change of its position there.
    pub(super) fn is_watched(&self) -> bool {
        self.queue.is_some_and(|queue| queue.watched)
    }

    /// Whether it sets a waiting-writer flag if it is not granted.
    pub(super) fn flags(&self) -> bool {
        self.spot.target.kind == Kind::Write && self.rw.prefer_writers && self.held == 0
    }

    /// Whether such a flag keeps it out.
    fn heeds_flags(&self) -> bool {
        self.spot.target.kind == Kind::Read && self.rw.prefer_writers && self.held == 0 && !self.steal
    }

    /// The take of a blocked call that is granted.
    pub(super) fn bound(spot: &Spot) -> Self {
        let (length, rw) = (Duration::ZERO, RwOptions::default());
        Self::new(&Take { spot, held: 0, length, steal: false, fenced: false, queue: None, rw, waits: false })
    }

    /// A claim that lasts until it is released.
    pub(super) fn unbounded_claim<'a>(&'a self, spot: &'a Spot) -> Claim<'a> {
        Claim { lease: Lease::Kept(COUNTED), ..self.claim(spot) }
    }

    fn claim<'a>(&'a self, spot: &'a Spot) -> Claim<'a> {
        // Permits that are only counted last until they are released.
        let is_counted = spot.target.kind == Kind::Semaphore;
        let lease = if is_counted { Lease::Kept(COUNTED) } else { Lease::Fixed(self.length) };
        let Self { held, steal, fenced, queue, rw, term, .. } = self;
        Claim {
            spot,
            held: *held,
            lease,
            limit: None,
            steal: *steal,
            fenced: *fenced,
            queue: *queue,
            rw: *rw,
            fresh: false,
            term,
        }
    }
}

/// Adds a request to the trace of a schedule.
fn note(verb: &str, target: &Target, owner: Option<OwnerId>) {
    env::sim::here(|host| {
        let owner = owner.map(|owner| owner.to_string()).unwrap_or_default();
        host.schedule().note(format_args!("{verb} {:?} {target} {owner}\n", target.kind));
    });
}

/// The same owner at the same name as another kind.
fn spot_of(spot: &Spot, kind: Kind) -> Spot {
    Spot { target: spot.target.of_kind(kind), ..spot.clone() }
}

fn taken(attempt: &Attempt) -> Taken {
    match *attempt {
        Attempt::Granted(_, token) => Taken::Granted(token),
        Attempt::Busy(busy) => Taken::Busy(busy),
        Attempt::Gone | Attempt::NotAsked(_) | Attempt::OwnerSpent => Taken::CountDiffers,
        Attempt::Misfit => Taken::WouldWaitForItself,
    }
}

/// The reply of the embedded engine, which is ready at once.
pub(super) fn now<T>(reply: Reply<T>) -> Result<T, Failure> {
    match reply {
        Reply::Now(Some(reply)) => reply,
        _ => Err(Failure::Unavailable("the embedded engine answers at once".into())),
    }
}
