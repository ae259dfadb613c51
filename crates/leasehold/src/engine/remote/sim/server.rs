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
    Adjust, Attempt, AttemptAll, Busy, Change, Claim, Engine, Family, HoldKey, Kind, Query, QueryResult,
    Released, Renewed, Reply, Resource, RwOptions, WRITER_PREFERENCE,
};
use crate::env::sim::Host;
use crate::env::{self, Instant, Tasks};
use crate::error::ServerError;
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
    queues: BTreeMap<Resource, VecDeque<(OwnerId, Instant)>>,
    /// The results of changes that may be sent again.
    results: BTreeMap<(u64, u64, u64), i64>,
    /// Writers that wait and keep new readers out, with when each was last seen.
    flags: BTreeMap<HoldKey, Instant>,
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
        let flagged = state.flags.iter().filter(|(_, seen)| is_alive(seen, WRITER_PREFERENCE));
        let waited: BTreeSet<_> =
            queued.map(|(resource, _)| resource).chain(flagged.map(|(key, _)| &key.resource)).collect();
        let memory = &state.memory;
        memory.names() + waited.into_iter().filter(|resource| !memory.is_used(resource)).count()
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
    pub(super) fn take(&self, take: &OwnedTake) -> Result<Taken, ServerError> {
        let OwnedTake { hold_key: key, .. } = take;
        note("take", &key.resource, Some(key.owner));
        if key.resource.kind != Kind::Fair {
            if take.heeds_flags() && self.is_flagged(key) {
                return Ok(Taken::Busy(Busy { retry_in: Some(WRITER_PREFERENCE), ..Busy::default() }));
            }
            let mut taken = taken(&now(self.memory().attempt(&take.claim(key), None))?);
            if take.flags() {
                self.flag(key, &mut taken);
            }
            if take.steal && matches!(taken, Taken::Granted(_)) {
                // Readers that the replaced hold kept out may enter beside a reader.
                self.publish(&key.resource);
            }
            return Ok(taken);
        }
        let lock = key_of(key, Kind::Lock);
        if take.held == 0
            && !take.steal
            && self.first_of(&key.resource).is_some_and(|first| first != key.owner)
        {
            let holder = now(self.memory().inspect(&Query::Holder(&lock.resource, None)))?.holding;
            let retry_in = holder.map(|holding| holding.remaining);
            let holder = holder.and_then(|holding| holding.owner);
            return Ok(Taken::Busy(self.queued(take, Busy { retry_in, holder, ..Busy::default() })));
        }
        let attempt = now(self.memory().attempt(&take.claim(&lock), None))?;
        Ok(match taken(&attempt) {
            Taken::Busy(busy) => Taken::Busy(self.queued(take, busy)),
            Taken::Granted(token) => {
                self.unqueue(key);
                Taken::Granted(token)
            }
            other => other,
        })
    }

    pub(super) fn take_all(&self, takes: &[OwnedTake]) -> Result<TakenAll, ServerError> {
        for take in takes {
            note("take all", &take.hold_key.resource, Some(take.hold_key.owner));
        }
        let claims: Vec<_> = takes.iter().map(|take| take.claim(&take.hold_key)).collect();
        let all = self.memory().attempt_all(&claims, None).expect("the memory engine takes all in one step");
        Ok(match now(all)? {
            AttemptAll::Granted(granted) => {
                TakenAll::Granted(granted.into_iter().map(|(_, token)| token).collect())
            }
            AttemptAll::Busy(number, busy) => TakenAll::Busy(number, busy),
            AttemptAll::NotSent(failure) => return Err(failure),
        })
    }

    pub(super) fn give(&self, key: &HoldKey, from: u32, length: Duration) -> Result<Given, ServerError> {
        note("give", &key.resource, Some(key.owner));
        let of = key_of(key, key.resource.kind.of_hold());
        let left = match now(self.memory().release(&of, from, Lease::Fixed(length)))? {
            Released::Left(left, _) => Some(left),
            Released::NotHeld => None,
        };
        // In a group, the remaining values of an owner are freed, although it did not have all of them.
        let is_some_freed = left.is_none() && key.resource.kind == Kind::Group;
        let subscribers = (left == Some(0) || is_some_freed).then(|| self.publish(&key.resource));
        Ok(Given { left, subscribers })
    }

    pub(super) fn lower(&self, key: &HoldKey, to: u32) -> Given {
        note("lower", &key.resource, Some(key.owner));
        if key.resource.kind == Kind::Fair {
            self.unqueue(key);
        }
        let of = key_of(key, key.resource.kind.of_hold());
        self.memory().undo(&of, to, Lease::Fixed(Duration::ZERO).into());
        Given { left: None, subscribers: Some(self.publish(&key.resource)) }
    }

    pub(super) fn abandon(&self, key: &HoldKey, rest: Duration) -> Result<bool, ServerError> {
        note("abandon", &key.resource, Some(key.owner));
        let was_held = now(self.memory().abandon(&key_of(key, key.resource.kind.of_hold()), rest))?;
        if was_held {
            self.publish(&key.resource);
        }
        Ok(was_held)
    }

    pub(super) fn renew(&self, key: &HoldKey, length: Duration) -> Result<Verdict, ServerError> {
        note("renew", &key.resource, Some(key.owner));
        let of = key_of(key, key.resource.kind.of_hold());
        if let Renewed::Until(_) = now(self.memory().renew(&of, length))? {
            return Ok(Verdict::Held);
        }
        if matches!(key.resource.kind, Kind::Semaphore | Kind::LeasedSemaphore | Kind::Latch) {
            return Ok(Verdict::Gone);
        }
        let halves: &[Kind] = if of.resource.kind.family() == Family::Rw {
            &[Kind::Read, Kind::Write]
        } else {
            &[of.resource.kind]
        };
        for kind in halves {
            let resource = of.resource.of_kind(*kind);
            if now(self.memory().inspect(&Query::Holder(&resource, None)))?.holding.is_some() {
                return Ok(Verdict::TakenOver);
            }
        }
        Ok(Verdict::Gone)
    }

    pub(super) fn force(&self, resource: &Resource) -> Result<Forced, ServerError> {
        note("force", resource, None);
        let was_held = now(self.memory().force(&resource.of_kind(resource.kind.of_hold())))?;
        Ok(Forced { was_held, subscribers: was_held.then(|| self.publish(resource)) })
    }

    pub(super) fn holder(
        &self,
        resource: &Resource,
        owner: Option<OwnerId>,
    ) -> Result<QueryResult, ServerError> {
        now(self.memory().inspect(&Query::Holder(&resource.of_kind(resource.kind.of_hold()), owner)))
    }

    pub(super) fn token(&self, resource: &Resource) -> Result<QueryResult, ServerError> {
        now(self.memory().inspect(&Query::Token(&resource.of_kind(resource.kind.of_hold()))))
    }

    pub(super) fn queue(&self, resource: &Resource) -> QueryResult {
        let state = self.state();
        let queue =
            state.queues.get(resource).into_iter().flatten().map(|(owner, _)| (*owner).into()).collect();
        QueryResult { queue, ..QueryResult::default() }
    }

    pub(super) fn change(&self, resource: &Resource, change: &Change) -> Result<i64, ServerError> {
        note("change", resource, Some(change.request));
        let key = (change.request.client.halves(), change.request.number);
        let key = (key.0.0, key.0.1, key.1);
        if let Some(known) = self.state().results.get(&key) {
            return Ok(*known);
        }
        let result = match now(self.memory().adjust(resource, change))? {
            crate::engine::Adjusted::Done(result) => result,
            crate::engine::Adjusted::NotSent(failure) => return Err(failure),
        };
        if !change.adjust.is_query() {
            self.state().results.insert(key, result);
            if change.adjust.frees(result) && !matches!(change.adjust, Adjust::Drain) {
                self.publish(resource);
            }
        }
        Ok(result)
    }

    pub(super) fn forget_change(&self, change: &Change) {
        let (first, second) = change.request.client.halves();
        self.state().results.remove(&(first, second, change.request.number));
    }

    /// A permit that is only counted stays taken, although its owner is forgotten.
    pub(super) fn detach(&self, key: &HoldKey) {
        self.memory().let_go(key);
    }

    /// Records heartbeats of waiters for fair locks. Returns their positions in the queues, from one, if they still have one.
    pub(super) fn queue_heartbeat(&self, keys: Vec<HoldKey>) -> Vec<(HoldKey, Option<usize>)> {
        let now = env::now();
        let mut state = self.state();
        let mut place = |key: &HoldKey| {
            let mut queue = state.queues.get_mut(&key.resource).into_iter().flatten().enumerate();
            let (place, (_, seen)) = queue.find(|(_, (owner, _))| *owner == key.owner)?;
            *seen = now;
            Some(place + 1)
        };
        keys.into_iter().map(|key| (key.clone(), place(&key))).collect()
    }
}

/// Writers that wait.
impl SimServer {
    /// Whether a waiting writer keeps a reader out. At a lock that is held for writing, the holder keeps it out.
    fn is_flagged(&self, key: &HoldKey) -> bool {
        let now = env::now();
        let writer = self.holder(&key.resource.of_kind(Kind::Write), None);
        if writer.is_ok_and(|result| result.holding.is_some()) {
            return false;
        }
        let mut state = self.state();
        state.flags.retain(|_, seen| now.saturating_duration_since(*seen) < WRITER_PREFERENCE);
        state
            .flags
            .keys()
            .any(|writer| writer.resource.name == key.resource.name && writer.owner != key.owner)
    }

    /// Notes that a writer waits, or does not any more.
    fn flag(&self, key: &HoldKey, taken: &mut Taken) {
        match taken {
            Taken::Busy(busy) => {
                self.state().flags.insert(key.clone(), env::now());
                busy.keep_blocking_readers();
            }
            _ => drop(self.state().flags.remove(key)),
        }
    }

    pub(super) fn unflag(&self, key: &HoldKey) {
        self.state().flags.remove(key);
        self.publish(&key.resource);
    }
}

/// The queues of fair locks.
impl SimServer {
    /// The first waiter in a queue that is presumed alive.
    fn first_of(&self, resource: &Resource) -> Option<OwnerId> {
        let now = env::now();
        let mut state = self.state();
        let queue = state.queues.get_mut(resource)?;
        queue.retain(|(_, seen)| now.saturating_duration_since(*seen) < SILENT);
        let first = queue.front().map(|(owner, _)| *owner);
        if first.is_none() {
            state.queues.remove(resource);
        }
        first
    }

    /// Queues a waiter, if it wants to wait.
    fn queued(&self, take: &OwnedTake, busy: Busy) -> Busy {
        let OwnedTake { hold_key: key, .. } = take;
        let mut state = self.state();
        let queue = state.queues.entry(key.resource.clone()).or_default();
        let mut place = queue.iter().position(|(owner, _)| *owner == key.owner);
        if place.is_none() && take.queue.is_some() {
            queue.push_back((key.owner, env::now()));
            place = Some(queue.len() - 1);
        }
        if queue.is_empty() {
            state.queues.remove(&key.resource);
        }
        let position = place.map(|place| place + 1);
        let retry_in = busy.retry_in.filter(|_| position.is_none_or(|position| position == 1));
        Busy { retry_in, position, ..busy }
    }

    fn unqueue(&self, key: &HoldKey) {
        let mut state = self.state();
        if let Some(queue) = state.queues.get_mut(&key.resource) {
            queue.retain(|(owner, _)| *owner != key.owner);
            if queue.is_empty() {
                state.queues.remove(&key.resource);
            }
        }
    }

    /// Notifies the subscribed clients that a resource of this name may be free, and counts them.
    fn publish(&self, freed: &Resource) -> usize {
        let next = self.first_of(&freed.of_kind(Kind::Fair));
        let concerns = |(resource, owner): &Topic| {
            resource.name == freed.name
                && resource.kind.family() == freed.kind.family()
                && (resource.kind != Kind::Fair || *owner == next)
        };
        let mut notified = 0;
        for client in self.clients() {
            let topics = client.watched(concerns);
            notified += usize::from(!topics.is_empty());
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
        notified
    }
}

/// A take in flight.
pub(super) struct OwnedTake {
    pub(super) hold_key: HoldKey,
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
        let Take { hold_key, held, lease, steal, fenced, queue, rw, waits } = *take;
        let (hold_key, term) = (hold_key.clone(), Term::new(Weak::new()));
        Self { hold_key, held, length: lease.length(), steal, fenced, queue, rw, term, waits }
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
        self.hold_key.resource.kind == Kind::Write && self.rw.prefer_writers && self.held == 0
    }

    /// Whether such a flag keeps it out.
    fn heeds_flags(&self) -> bool {
        self.hold_key.resource.kind == Kind::Read && self.rw.prefer_writers && self.held == 0 && !self.steal
    }

    /// The take of a blocked call that is granted.
    pub(super) fn bound(key: &HoldKey) -> Self {
        let rw = RwOptions::default();
        Self::new(&Take {
            hold_key: key,
            held: 0,
            lease: Lease::Kept(Duration::ZERO),
            steal: false,
            fenced: false,
            queue: None,
            rw,
            waits: false,
        })
    }

    /// A claim that lasts until it is released.
    pub(super) fn unbounded_claim<'a>(&'a self, key: &'a HoldKey) -> Claim<'a> {
        Claim { lease: Lease::Kept(COUNTED), ..self.claim(key) }
    }

    fn claim<'a>(&'a self, key: &'a HoldKey) -> Claim<'a> {
        // Permits that are only counted last until they are released.
        let is_counted = key.resource.kind == Kind::Semaphore;
        let lease = if is_counted { Lease::Kept(COUNTED) } else { Lease::Fixed(self.length) };
        let Self { held, steal, fenced, queue, rw, term, .. } = self;
        Claim {
            key,
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
fn note(verb: &str, resource: &Resource, owner: Option<OwnerId>) {
    env::sim::here(|host| {
        let owner = owner.map(|owner| owner.to_string()).unwrap_or_default();
        host.schedule().note(format_args!("{verb} {:?} {resource} {owner}\n", resource.kind));
    });
}

/// The same owner at the same name as another kind.
fn key_of(key: &HoldKey, kind: Kind) -> HoldKey {
    HoldKey { resource: key.resource.of_kind(kind), ..key.clone() }
}

fn taken(attempt: &Attempt) -> Taken {
    match *attempt {
        Attempt::Granted(_, token) => Taken::Granted(token),
        Attempt::Busy(busy) => Taken::Busy(busy),
        Attempt::Gone | Attempt::NotSent(_) | Attempt::OwnerSpent => Taken::CountDiffers,
        Attempt::WouldDeadlock => Taken::WouldDeadlock,
    }
}

/// The reply of the memory engine, which is ready at once.
pub(super) fn now<T>(reply: Reply<T>) -> Result<T, ServerError> {
    match reply {
        Reply::Now(Some(reply)) => reply,
        _ => Err(ServerError::Unavailable("the memory engine replies at once".into())),
    }
}
