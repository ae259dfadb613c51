//! The engine on a server: everything that a networked engine needs and that does not depend on its server, written once.
//!
//! ```text
//!  callers ── Engine ──▶ Remote<S>                        I/O thread
//!                          queues    only the front waiter of a queue sends       ◀── freed, watching ──┐
//!                          undo      a step that no caller knows is taken back    ◀── up, down ─────────┤
//!                          renewal   holds in batches by shard and kind; losses                         │
//!                          retry     counter changes until there is a reply                             │
//!                          handover  a hold goes to the next waiter of this client                      │
//!                             │ take, give, lower, renew …                                              │
//!                             ▼                                                                         │
//!                          S: Store ── requests ──▶ server ── replies, messages ──▶ completions, events ┘
//! ```
//!
//! An acquire: the wait queue of its name decides whether it may send a request; pending undos of the same hold are sent
//! before it; the store sends the request and returns. When the reply is read, on any thread, it takes effect here, in the
//! order of the replies: a grant enters the ledger, and holds that it has displaced are lost. Only then is the caller woken,
//! and its future returns the result. A caller that is gone by then has left an undo behind its request.
//!
//! A busy lock: the waiter joins the wait queue of its name, which the store watches from then on, and retries once when it
//! is watched. After that it sleeps until a message arrives, until the lease that it saw is over, or until the safety cap.
//!
//! An outage: the store reports a shard as down. Attempts fail at once, waiters are woken and decide by their own limits,
//! undos and counter changes wait. When the shard is up again, undos are sent first, then every hold on it is checked.

mod attempt;
mod client_counts;
mod connection_log;
mod done;
mod fairness;
mod handover;
mod io;
mod ledger;
mod queues;
mod renewal;
mod retry;
mod sequence;
mod shards;
#[cfg(feature = "test-util")]
pub(crate) mod sim;
pub(crate) mod store;
mod undo;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use self::done::{caller, step};
use self::handover::LocalHandover;
use self::io::{Io, IoThread};
use self::ledger::Entry;
use self::queues::{Begun, Queues};
use self::renewal::Renewal;
use self::retry::{Open, Retries};
use self::sequence::Sequence;
use self::shards::Shards;
use self::store::{By, Done, Events, Forced, Given, LeaseOf, Shard, Store, StoreError, Topic, Verdict, Wake};
use self::undo::{Undos, never};
#[cfg(feature = "etcd")]
use super::Survey;
use super::{
    Adjusted, Attempt, AttemptAll, Change, Claim, Connection, Engine, Found, Handover, HoldKey, ListStep,
    Listed, Profile, Query, QueryResult, Released, Renewed, Reply, Resource, Ticket, wait_queue,
};
#[cfg(feature = "redis")]
use super::{Probe, Probed};
use crate::block::block_on;
use crate::client_id::ClientId;
use crate::env;
use crate::error::ServerError;
use crate::lease::{Bounds, Expiry, Lease};
use crate::loss::Loss;
use crate::name::Name;
use crate::observer::Observer;
use crate::race::race;
use crate::session::Session;
use crate::term::{Term, Until};

/// The engine of one client on a server.
pub(crate) struct Remote<S: Store> {
    inner: Arc<Inner<S>>,
    /// How long the end of the client waits for operations in progress.
    linger: Duration,
    /// Whether the thread that drops the last handle waits for it.
    blocks: bool,
}

/// The state that requests and their outcomes share.
struct Inner<S> {
    store: S,
    queues: Arc<Queues>,
    renewal: Arc<Renewal>,
    handover: LocalHandover,
    undos: Undos,
    retries: Retries,
    sequence: Sequence,
    /// Whether steps are sent one at a time.
    is_sequenced: bool,
    shards: Shards,
    io: Io,
    /// Where requests, renewals and connections are counted, from when the client is made.
    observer: OnceLock<Arc<Observer>>,
    /// The process that made it. A fork has no I/O thread, but a copy of everything else.
    process: u32,
}

impl<S: Store> Remote<S> {
    /// Makes a store that reports to this engine, and starts its I/O thread. Returns when the store is connected.
    pub(crate) async fn connect(
        linger: Duration,
        store: impl FnOnce(Weak<dyn Events>) -> S,
    ) -> Result<Self, ServerError> {
        let thread = IoThread::new()?;
        let inner = Inner::new(thread.io(), store);
        let (ready, is_ready) = oneshot::channel();
        thread.start(Arc::clone(&inner).run(Some(ready)))?;
        // Before it is awaited: a caller that is dropped closes the store by dropping this.
        let remote = Self { inner, linger, blocks: true };
        is_ready.await.unwrap_or_else(|_| Err(ServerError::Unavailable("the thread has ended".into())))?;
        Ok(remote)
    }

    /// The same without waiting: until the store is connected, it is as in an outage.
    pub(crate) fn connect_lazily(
        linger: Duration,
        store: impl FnOnce(Weak<dyn Events>) -> S,
    ) -> Result<Self, ServerError> {
        let thread = IoThread::new()?;
        let inner = Inner::new(thread.io(), store);
        inner.not_connected_yet();
        thread.start(Arc::clone(&inner).run(None))?;
        Ok(Self { inner, linger, blocks: true })
    }

    /// The same as [`connect`](Self::connect) without a thread, for a store inside the process: its tasks run beside the caller.
    /// `lazy`: as [`connect_lazily`](Self::connect_lazily).
    #[cfg(feature = "test-util")]
    pub(crate) async fn embed(
        linger: Duration,
        lazy: bool,
        store: impl FnOnce(Weak<dyn Events>) -> S,
    ) -> Result<Self, ServerError> {
        let io = Io::here();
        let inner = Inner::new(io.clone(), store);
        if lazy {
            inner.not_connected_yet();
            io.spawn(Arc::clone(&inner).run(None));
            return Ok(Self { inner, linger, blocks: false });
        }
        let (ready, is_ready) = oneshot::channel();
        io.spawn(Arc::clone(&inner).run(Some(ready)));
        let remote = Self { inner, linger, blocks: false };
        is_ready.await.unwrap_or_else(|_| Err(ServerError::Unavailable("the runtime has ended".into())))?;
        Ok(remote)
    }
}

impl<S: Store> Inner<S> {
    fn new(io: Io, store: impl FnOnce(Weak<dyn Events>) -> S) -> Arc<Self> {
        let queues = Arc::<Queues>::default();
        let renewal = Arc::new(Renewal::new(Arc::clone(&queues)));
        Arc::new_cyclic(|inner: &Weak<Self>| {
            let store = store(Weak::<Self>::clone(inner));
            let traits = store.traits();
            Self {
                is_sequenced: !traits.ordered || traits.owners == By::Client,
                store,
                handover: LocalHandover::new(Arc::clone(&queues), Arc::clone(&renewal), io.clone()),
                queues,
                renewal,
                undos: Undos::default(),
                retries: Retries::default(),
                sequence: Sequence::default(),
                shards: Shards::default(),
                io,
                observer: OnceLock::new(),
                process: std::process::id(),
            }
        })
    }

    /// Resolves when no background operation is in progress.
    async fn settled(&self) {
        loop {
            let (undone, changed) = (self.undos.settled.notified(), self.retries.settled.notified());
            if self.undos.is_settled() && self.retries.is_settled() {
                return;
            }
            race(pin!(undone), pin!(changed)).await;
        }
    }

    /// Skips front waiters that are not polled, on reachable shards.
    async fn keep_sweeping(&self) {
        loop {
            self.queues.has_waiters().await;
            let begun = env::now();
            self.queues.sweep(|shard| self.shards.is_up(shard));
            env::sleep_for(wait_queue::pause_after(env::now().saturating_duration_since(begun))).await;
        }
    }

    /// The shards are down until the store reports that they are connected.
    fn not_connected_yet(&self) {
        for shard in self.store.shards() {
            self.shards.not_yet(shard);
        }
    }

    /// Connects, reports the result to `ready`, and runs the background work until the store is closed.
    async fn run(self: Arc<Self>, ready: Option<oneshot::Sender<Result<(), ServerError>>>) {
        let opened = ready.map(|ready| {
            |opened: Result<(), ServerError>| {
                if opened.is_ok() {
                    self.store.shards().into_iter().for_each(|shard| self.connected(shard));
                }
                drop(ready.send(opened));
            }
        });
        tokio::select! {
            biased;
            () = self.store.run(opened) => {}
            () = self.keep_renewing() => {}
            () = self.keep_sweeping() => {}
        }
    }
}

#[cfg(test)]
impl<S: Store> Remote<S> {
    pub(crate) fn store(&self) -> &S {
        &self.inner.store
    }
}

impl<S: Store> Drop for Remote<S> {
    /// Waits a moment for undos and changes that are still in flight.
    fn drop(&mut self) {
        let (inner, linger) = (Arc::clone(&self.inner), self.linger);
        let end = async move {
            let limit = env::sleep_until_or_forever(env::after(linger));
            race(pin!(inner.settled()), limit).await;
            inner.store.close();
        };
        // The I/O thread does not wait for work that it has to do itself.
        if self.blocks && !self.inner.io.is_here() { block_on(end) } else { self.inner.io.spawn(end) }
    }
}

impl<S: Store> fmt::Debug for Remote<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.store.fmt(f)
    }
}

impl<S: Store> Inner<S> {
    /// The store, for a request about locks, which is counted.
    fn requesting(&self) -> &S {
        if let Some(observer) = self.observer.get() {
            observer.requests();
        }
        &self.store
    }

    /// Whether a request can be sent.
    fn can_send(&self, shard: Shard) -> Result<(), ServerError> {
        self.check_process()?;
        self.shards.check(shard)
    }

    fn check_process(&self) -> Result<(), ServerError> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text = "this process was forked: make a client of its own in the child";
        // Not an outage: no time mends it.
        Err(ServerError::Denied(text.into()))
    }

    /// Notes that the outcome of a step is unknown, if it is, and returns the caller's error.
    fn failed(&self, shard: Shard, key: &HoldKey, error: StoreError) -> ServerError {
        if let StoreError::Unknown(_) = error {
            self.undos.doubt(shard, key);
        }
        self.explained(shard, error)
    }

    /// The caller's error: the reason why there is no connection explains more than its absence.
    fn explained(&self, shard: Shard, error: StoreError) -> ServerError {
        match error {
            StoreError::NotSent(failure) => self.shards.check(shard).err().unwrap_or(failure),
            other => other.into(),
        }
    }

    /// A request that changes nothing here.
    fn read_only<T: 'static, R: Send + 'static>(
        self: &Arc<Self>,
        shard: Shard,
        map: impl FnOnce(T) -> R + Send + 'static,
    ) -> (impl Done<T>, Reply<R>) {
        let inner = Arc::clone(self);
        caller(move |outcome: Result<T, StoreError>| {
            outcome.map(map).map_err(|error| inner.explained(shard, error))
        })
    }

    /// Starts a queue that has its first waiter.
    fn begin_queue(&self, topic: &Topic) -> Begun {
        Begun {
            shard: self.store.shard(&topic.0),
            watch: self.store.watch(topic),
            polls: match self.store.wake(topic.0.kind) {
                Wake::Poll(period) => Some(period),
                Wake::Message => None,
            },
        }
    }
}

impl<S: Store> Engine for Remote<S> {
    fn profile(&self) -> &'static Profile {
        self.inner.store.traits().profile
    }

    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        self.inner.attempt(claim, turn)
    }

    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Option<Reply<AttemptAll>> {
        self.inner.attempt_all(claims, turn)
    }

    fn release(&self, key: &HoldKey, from: u32, lease: Lease) -> Reply<Released> {
        let begun = env::now();
        let inner = &self.inner;
        if from > 1 && inner.store.traits().counts == By::Client {
            let is_held = inner.renewal.set_count(key, from - 1).is_some();
            return Reply::now(if is_held { Released::Left(from - 1, None) } else { Released::NotHeld });
        }
        let hold = if from <= 1 {
            inner.queues.releasing(key);
            // Renewal ends before the release is sent.
            if mutation!("released-hold-renewed") {
                inner.renewal.get(key)
            } else {
                inner.renewal.forget(key)
            }
        } else {
            inner.renewal.get(key)
        };
        let bounds = hold.as_ref().map_or(Bounds { lease, limit: None }, Entry::bounds);
        let length = bounds.length(begun);
        let (effects, of, shard) = (Arc::clone(inner), key.clone(), inner.store.shard(&key.resource));
        let (done, reply) = step(move |given: Result<Given, StoreError>| {
            let subscribers = given.as_ref().ok().and_then(|given| given.subscribers);
            effects.queues.released(&of, subscribers, begun);
            match given {
                Ok(Given { left: Some(left), .. }) => {
                    let until = hold.filter(|_| left > 0).map(|hold| hold.until(begun, length));
                    Ok(Released::Left(left, until))
                }
                Ok(Given { left: None, .. }) | Err(StoreError::Refused(ServerError::NotALock)) => {
                    Ok(Released::NotHeld)
                }
                Err(error) => Err(effects.failed(shard, &of, error)),
            }
        });
        if inner.is_sequenced {
            let (inner, of) = (Arc::clone(inner), key.clone());
            self.inner.in_turn(key, move |over| {
                inner.requesting().give(&of, from, length, done.then(|| drop(over)));
            });
            self.inner.given_back(key);
            return reply;
        }
        let permit = match inner.send_undos_first(key) {
            Ok(permit) => permit,
            Err(failure) => return Reply::Now(Some(Err(failure))),
        };
        inner.requesting().give(key, from, length, done);
        drop(permit);
        // Before the reply: when that is read, the next step of the same hold may be under way.
        inner.given_back(key);
        reply
    }

    fn abandon(&self, key: &HoldKey, rest: Duration) -> Reply<bool> {
        // Renewal ends before the request is sent.
        self.inner.renewal.forget(key);
        let (effects, of, open) = (Arc::clone(&self.inner), key.clone(), Open::new(&self.inner));
        let shard = self.inner.store.shard(&key.resource);
        let (end, lease) = (env::now() + rest, self.inner.store.traits().lease);
        let (step, last_step) = oneshot::channel();
        let (done, reply) = caller(move |abandoned: Result<bool, StoreError>| {
            // The waiters of this client do not ask the server while a hold of it is in the way.
            effects.queues.wake(&of);
            if abandoned.is_err() && lease != LeaseOf::Hold {
                // It may last as long as the session. Its owner does not try again before the undo.
                let (inner, of) = (Arc::clone(&effects), of.clone());
                effects.io.spawn(async move {
                    env::sleep_until(end).await;
                    inner.undo(&of, 0, never());
                    drop(last_step.await);
                });
            }
            let result = match abandoned {
                Err(StoreError::Refused(ServerError::NotALock)) => Ok(false),
                abandoned => abandoned.map_err(|error| effects.explained(shard, error)),
            };
            drop(open);
            result
        });
        if self.inner.is_sequenced {
            let (inner, of) = (Arc::clone(&self.inner), key.clone());
            self.inner.in_turn(key, move |over| {
                inner.requesting().abandon(&of, rest, done.then(|| drop(step.send(over))));
            });
        } else {
            self.inner.requesting().abandon(key, rest, done);
        }
        reply
    }

    fn force(&self, resource: &Resource) -> Reply<bool> {
        let (effects, freed, shard) =
            (Arc::clone(&self.inner), resource.clone(), self.inner.store.shard(resource));
        let (done, reply) = caller(move |forced: Result<Forced, StoreError>| {
            let Forced { was_held, subscribers } = forced.map_err(|error| effects.explained(shard, error))?;
            if was_held {
                effects.lose(&freed, Loss::ForceUnlocked);
                if subscribers == Some(0) {
                    effects.queues.freed_without_message(&freed);
                }
            }
            Ok(was_held)
        });
        self.inner.requesting().force(resource, done);
        reply
    }

    fn renew(&self, key: &HoldKey, length: Duration) -> Reply<Renewed> {
        let Some(hold) = self.inner.renewal.get(key) else { return Reply::now(Renewed::Gone) };
        let begun = env::now();
        let limit = hold.bounds().limit;
        let length = limit.map_or(length, |limit| length.min(limit.saturating_duration_since(begun)));
        if hold.term.has_session() {
            let is_extended =
                matches!(hold.bounds().lease, Lease::Fixed(_)) && length > hold.term.remaining();
            let lasts = is_extended.then_some(length);
            let (effects, of) = (Arc::clone(&self.inner), key.clone());
            let (done, reply) = caller(move |is_there: Result<bool, StoreError>| {
                if !is_there.map_err(|error| effects.explained(hold.shard, error))? {
                    effects.lose_one(&of, Loss::Gone);
                    return Ok(Renewed::Gone);
                }
                let until = hold.until(begun, length);
                if let (Until::Deadline(before, _), Until::Deadline(after, _)) = (hold.term.until(), until)
                    && after > before
                {
                    effects.renewal.ends_at(&of, begun + length);
                }
                // The caller moves the deadline only further away.
                Ok(Renewed::Until(until))
            });
            self.inner.store.is_there(key, lasts, done);
            return reply;
        }
        let effects = Arc::clone(&self.inner);
        let (done, reply) = caller(move |verdicts: Result<Vec<Verdict>, StoreError>| {
            let verdicts = verdicts.map_err(|error| effects.explained(hold.shard, error))?;
            Ok(match verdicts.as_slice() {
                [Verdict::Held] if length > hold.term.remaining() => {
                    Renewed::Until(hold.until(begun, length))
                }
                [Verdict::Held] => Renewed::Until(hold.term.until()),
                _ => Renewed::Gone,
            })
        });
        let holds = [(key, length.max(Duration::from_millis(1)))];
        self.inner.requesting().renew(key.resource.kind, &holds, done);
        reply
    }

    fn undo(&self, key: &HoldKey, count: u32, expiry: Expiry) {
        let traits = self.inner.store.traits();
        if count == 0 {
            self.inner.renewal.forget(key);
            self.inner.queues.releasing(key);
        } else if traits.counts == By::Client {
            self.inner.renewal.set_count(key, count);
            return;
        }
        let until = if traits.lease == LeaseOf::Hold { expiry.at() } else { never() };
        self.inner.undo(key, count, until);
    }

    fn expect_progress(&self, term: &Arc<Term>) {
        let term = Arc::clone(term);
        self.inner.io.spawn(async move {
            if Arc::clone(&term).stalled().await
                && let Some(hold) = term.hold()
            {
                hold.leave_lost_term().await;
            }
        });
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        self.inner.renewal.term(key)
    }

    fn inspect(&self, query: &Query<'_>) -> Reply<QueryResult> {
        let shard = query.resource().map_or(Shard::ONLY, |resource| self.inner.store.shard(resource));
        let of = query.resource().filter(|_| self.inner.store.traits().counts == By::Client).cloned();
        let effects = Arc::clone(&self.inner);
        let own_waiters = match query {
            Query::Waiters(resource) => self.inner.queues.waiters(resource.name.as_str()),
            _ => 0,
        };
        let (done, reply) = self.inner.read_only(shard, move |mut result: QueryResult| {
            result.waiters = result.waiters.max(own_waiters);
            if let (Some(resource), Some(holding)) = (of, &mut result.holding) {
                effects.complete(&resource, holding);
            }
            result
        });
        self.inner.requesting().inspect(query, done);
        reply
    }

    fn list(&self, step: &ListStep) -> Reply<Listed> {
        if let Err(failure) = self.inner.check_process() {
            return Reply::Now(Some(Err(failure)));
        }
        let counts_here = self.inner.store.traits().counts == By::Client;
        let effects = Arc::clone(&self.inner);
        let (done, reply) = self.inner.read_only(Shard::ONLY, move |mut listed: Listed| {
            for Found { resource, holding, .. } in listed.found.iter_mut().filter(|_| counts_here) {
                effects.complete(resource, holding);
            }
            listed
        });
        self.inner.requesting().list(step, done);
        reply
    }

    fn fenced_write(&self, key: &Name, token: u64, value: &[u8]) -> Reply<Option<u64>> {
        let (done, reply) = self.inner.read_only(Shard::ONLY, |greater| greater);
        self.inner.requesting().write_fenced(key, token, value, done);
        reply
    }

    fn adjust(&self, resource: &Resource, change: &Change) -> Reply<Adjusted> {
        if let Err(failure) = self.inner.check_process() {
            return Reply::now(Adjusted::NotSent(failure));
        }
        if change.adjust.is_query() {
            let (done, reply) = self.inner.read_only(self.inner.store.shard(resource), Adjusted::Done);
            self.inner.requesting().change(resource, change, done);
            return reply;
        }
        self.inner.change(resource, change)
    }

    fn let_go(&self, key: &HoldKey) {
        self.inner.renewal.forget(key);
        let open = Open::new(&self.inner);
        self.inner.requesting().detach(key, move |_: Result<(), StoreError>| drop(open));
    }

    fn join(&self, key: &HoldKey, accepts_handover: bool, _context: &mut Context<'_>) -> (Ticket, bool) {
        (self.inner.queues.join(key, accepts_handover, |topic| self.inner.begin_queue(topic)), true)
    }

    /// Without the sweep: a test that polls a waiter slowly has not dropped it.
    #[cfg(test)]
    fn enqueue(&self, key: &HoldKey, accepts_handover: bool) -> Ticket {
        self.inner.queues.join_unswept(key, accepts_handover, |topic| self.inner.begin_queue(topic)).0
    }

    fn subscribed(&self, key: &HoldKey) -> Reply<()> {
        let (queues, key) = (Arc::clone(&self.inner.queues), key.clone());
        Reply::later(async move {
            queues.watched(&key).await;
            Ok(())
        })
    }

    fn poll_wake_up(&self, key: &HoldKey, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.inner.queues.poll_wake_up(key, ticket, context);
        if polled.is_pending() {
            self.inner.store.sleeps(|| self.inner.queues.is_front(key, ticket));
        }
        polled
    }

    fn longest_sleep(&self, key: &HoldKey, ticket: Ticket) -> Option<Duration> {
        self.inner.queues.longest_sleep(key, ticket)
    }

    fn wake_all(&self) {
        self.inner.queues.wake_all(None);
    }

    fn leave(&self, key: &HoldKey, ticket: Ticket) {
        self.inner.queues.leave(key, ticket, |topic| self.inner.store.unwatch(topic));
        if let Some(stays) = self.inner.store.left(key) {
            // The waiter did not acquire the lock. A hold that the same owner has through another waiter stays.
            self.inner.undo(key, u32::MAX, env::now() + stays);
        }
        self.inner.given_back(key);
    }

    fn handover(&self) -> Option<&dyn Handover> {
        Some(&self.inner.handover)
    }

    #[cfg(feature = "file")]
    fn lock_file(&self, key: &HoldKey) -> std::io::Result<Option<std::fs::File>> {
        self.inner.store.lock_file(key)
    }

    fn ping(&self) -> Reply<()> {
        if let Err(failure) = self.inner.check_process() {
            return Reply::Now(Some(Err(failure)));
        }
        let (done, reply) = self.inner.read_only(Shard::ONLY, |()| ());
        self.inner.requesting().ping(done);
        reply
    }

    #[cfg(feature = "redis")]
    fn probe(&self, probe: Probe) -> Reply<Probed> {
        if let Err(failure) = self.inner.check_process() {
            return Reply::Now(Some(Err(failure)));
        }
        let (done, reply) = self.inner.read_only(Shard::ONLY, |probed| probed);
        self.inner.requesting().probe(probe, done);
        reply
    }

    #[cfg(feature = "etcd")]
    fn survey(&self) -> Reply<Survey> {
        if let Err(failure) = self.inner.check_process() {
            return Reply::Now(Some(Err(failure)));
        }
        let (done, reply) = self.inner.read_only(Shard::ONLY, |survey| survey);
        self.inner.requesting().survey(done);
        reply
    }

    fn connection(&self) -> Option<Connection> {
        Some(self.inner.shards.connection())
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.store.warnings()
    }

    fn observe(&self, observer: &Arc<Observer>) {
        let _ = self.inner.observer.set(Arc::clone(observer));
    }

    fn retire(&self, _client: ClientId) -> usize {
        let lost = self.inner.renewal.retire();
        // A hold under a session that is not released by then expires after the time that a lease would have had.
        for hold in lost.iter().filter(|hold| hold.term.has_session()).cloned() {
            let inner = Arc::clone(&self.inner);
            let end = hold.due().min(env::now() + hold.bounds().lease.length());
            self.inner.io.spawn(async move {
                env::sleep_until(end).await;
                inner.undo(&hold.key, 0, never());
            });
        }
        // A grant that no caller has taken yet is released when the caller finds the term ended.
        lost.iter().filter(|hold| hold.term.claimed().is_some()).count()
    }
}

impl<S: Store> Events for Inner<S> {
    fn freed(&self, topic: &Topic) {
        self.queues.freed(topic);
    }

    fn watching(&self, topics: &[Topic]) {
        self.queues.watching(topics);
    }

    fn unwatched(&self) {
        self.queues.unwatched();
    }

    fn rewatched(&self) {
        self.queues.wake_fronts();
    }

    fn watch_denied(&self, denied: bool) {
        self.queues.set_denied(denied);
    }

    fn wake_waiter(&self, key: &HoldKey) {
        self.queues.wake(key);
    }

    fn revoked(self: Arc<Self>, resource: &Resource, loss: Loss) {
        self.lose(resource, loss);
    }

    #[cfg(feature = "redis")]
    fn requesting(&self) {
        Self::requesting(self);
    }

    #[cfg(any(feature = "etcd", feature = "file"))]
    fn revoked_one(self: Arc<Self>, key: &HoldKey, loss: Loss) {
        self.lose_one(key, loss);
    }

    fn session_lost(&self, session: &Arc<Session>, loss: Loss) {
        self.renewal.lose_session(session, loss);
    }

    fn down(&self, shard: Shard) {
        self.shards.down(shard);
        self.log_outage(shard);
        if !mutation!("outage-not-told") {
            self.queues.wake_all(Some(shard));
        }
    }

    fn still_down(&self, shard: Shard, reason: ServerError) {
        // Waiters retry when the reason is a new one: a refusal ends their wait.
        if self.shards.because(shard, reason) {
            self.queues.wake_all(Some(shard));
            self.retries.reconsider();
        }
    }

    fn up(self: Arc<Self>, shard: Shard, stale: bool) {
        self.connected(shard);
        self.resume_undos(shard, stale);
        self.retries.resume(stale);
        if self.store.traits().lease == LeaseOf::Hold {
            self.renewal.check_all(shard);
        }
        self.queues.wake_all(Some(shard));
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::sim::{SimServer, SimStore};
    use super::*;
    use crate::engine::{Kind, RwOptions};
    use crate::owner::OwnerId;

    /// A renewal after the release would extend a hold that the same owner may have acquired since.
    #[tokio::test(start_paused = true)]
    async fn a_release_ends_the_renewal_before_the_reply_is_read() {
        let server = SimServer::new();
        let remote =
            Remote::embed(Duration::ZERO, false, |events| SimStore::new(&server, events)).await.unwrap();
        let resource = Resource::new(Kind::Lock, Name::new("", "n").unwrap());
        let key = HoldKey { resource, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 };
        let (lease, term) = (Lease::Kept(Duration::from_secs(30)), Term::new(Weak::new()));
        let claim = Claim {
            key: &key,
            held: 0,
            lease,
            limit: None,
            steal: false,
            fenced: false,
            queue: None,
            rw: RwOptions::default(),
            fresh: false,
            term: &term,
        };
        assert!(matches!(remote.attempt(&claim, None).await, Ok(Attempt::Granted(..))));
        assert!(remote.term(&key).is_some(), "the hold is renewed");
        let released = remote.release(&key, 1, lease);
        assert!(remote.term(&key).is_none(), "the hold is renewed after its release");
        assert_eq!(released.await, Ok(Released::Left(0, None)));
    }
}
