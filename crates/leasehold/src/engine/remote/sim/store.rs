//! The simulated service as a client sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::link::{Job, Link, Request};
use super::server::OwnedTake;
use super::sessions::Service;
use super::{SimServer, bound, shared};
use crate::engine::remote::Remote;
use crate::engine::remote::queues::Queues;
use crate::engine::remote::store::{
    By, Done, Events, Forced, Given, LeaseOf, Shard, Store, StoreError, Take, Taken, TakenAll, Topic, Traits,
    UNPUBLISHED_POLL, Verdict, Wake, Watch, report,
};
use crate::engine::schemes::Scheme;
use crate::engine::{Change, Engine, Feature, HoldKey, Kind, Profile, Query, QueryResult, Resource};
use crate::env;
use crate::error::ServerError;
use crate::loss::Loss;
use crate::name::Name;

/// How many parts of the service fail independently.
const SHARDS: u32 = 2;
/// All of these parts.
pub(crate) fn all_shards() -> Vec<Shard> {
    (0..SHARDS).map(Shard).collect()
}

/// The part that has this name.
pub(crate) fn shard_of(name: &Name) -> Shard {
    let sum: u32 = name.as_str().bytes().map(u32::from).sum();
    Shard(sum % SHARDS)
}

/// How long a client waits before it connects again.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// How often the waiters for fair locks send a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a waiter for a fair lock stays in the queue without one.
const POSITION_TTL: Duration = Duration::from_secs(3);

/// The locks of one client on a simulated server.
pub(crate) struct SimStore {
    pub(super) server: Arc<SimServer>,
    pub(super) client: Arc<Listener>,
    pub(super) events: Weak<dyn Events>,
    /// The receivers that [`run`](Store::run) starts with.
    begun: Mutex<Option<(UnboundedReceiver<Message>, Rejected)>>,
    closed: Notify,
}

/// Requests without a connection.
type Rejected = UnboundedReceiver<Box<dyn Job>>;

/// The server's state of a client.
pub(crate) struct Listener {
    state: Mutex<Listening>,
    messages: UnboundedSender<Message>,
    rejected: UnboundedSender<Box<dyn Job>>,
    /// The waiters of the client. They are for tests; a server does not see them.
    queues: OnceLock<Weak<Queues>>,
}

/// Invariant: a link is here as long as its shard is reachable for this client.
#[derive(Default)]
struct Listening {
    links: BTreeMap<Shard, Link>,
    /// Wanted topics, and whether the server has each.
    topics: BTreeMap<Topic, bool>,
    /// There is no connection for messages.
    is_deaf: bool,
    /// Waiters that may have left state on the server: a position in the queue of a fair lock, or a waiting-writer flag. With the
    /// last known position of those that watch it.
    positions: BTreeMap<HoldKey, Option<usize>>,
}

impl Listening {
    /// Stores the position of a waiter, and returns whether it has to be woken: it is not queued any more, or watches its
    /// position and that has changed. A waiter that is not queued is queued again by its next attempt.
    fn moved(&mut self, key: &HoldKey, position: Option<usize>) -> bool {
        let Some(position) = position else { return self.positions.remove(key).is_some() };
        let Some(Some(known)) = self.positions.get_mut(key) else { return false };
        std::mem::replace(known, position) != position
    }
}

/// A message that is no reply.
enum Message {
    Watching(Topic),
    Freed(Topic),
    Revoked(Resource),
    /// The connection for messages is broken.
    Broken,
}

impl Listener {
    /// The topics whose messages this client wants.
    pub(super) fn watched(&self, wanted: impl Fn(&Topic) -> bool) -> Vec<Topic> {
        let state = self.state();
        let known = state.topics.iter().filter(|(topic, is_known)| **is_known && wanted(topic));
        known.map(|(topic, _)| topic.clone()).collect()
    }

    pub(super) fn send(&self, topic: Topic) {
        let _ = self.messages.send(Message::Freed(topic));
    }

    /// Reports that the hold of this client on a resource was removed.
    pub(super) fn revoke(&self, resource: &Resource) {
        let _ = self.messages.send(Message::Revoked(resource.clone()));
    }

    pub(super) fn add_position(&self, key: &HoldKey) {
        self.state().positions.insert(key.clone(), None);
    }

    pub(super) fn remove_position(&self, key: &HoldKey) -> bool {
        self.state().positions.remove(key).is_some()
    }

    pub(super) fn link(&self, shard: Shard) -> Option<Link> {
        self.state().links.get(&shard).cloned()
    }

    /// Breaks the connection for messages of this client: the server drops its subscriptions.
    pub(super) fn cut_messages(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_deaf, true) {
            state.topics.values_mut().for_each(|is_known| *is_known = false);
            let _ = self.messages.send(Message::Broken);
        }
    }

    /// Breaks all connections for requests of this client.
    pub(super) fn cut(&self) {
        let links: Vec<_> = self.state().links.values().cloned().collect();
        links.iter().for_each(Link::cut);
    }

    /// Breaks the connection of this client to one shard.
    pub(super) fn cut_shard(&self, shard: Shard) {
        let link = self.state().links.get(&shard).cloned();
        link.iter().for_each(Link::cut);
    }

    /// How many acquires of this client wait for this name.
    pub(super) fn waiters(&self, name: &str) -> usize {
        self.queues.get().and_then(Weak::upgrade).map_or(0, |queues| queues.waiters(name))
    }

    fn state(&self) -> MutexGuard<'_, Listening> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimStore {
    pub(crate) fn new(server: &Arc<SimServer>, events: Weak<dyn Events>) -> Self {
        let (messages, comes) = unbounded_channel();
        let (rejected, rejects) = unbounded_channel();
        let client =
            Arc::new(Listener { state: Mutex::default(), messages, rejected, queues: OnceLock::new() });
        server.join(&client);
        let (server, begun) = (Arc::clone(server), Mutex::new(Some((comes, rejects))));
        Self { server, client, events, begun, closed: Notify::new() }
    }

    /// Lets a test count the waiters in these queues.
    pub(super) fn show_waiters(&self, queues: &Arc<Queues>) {
        self.client.queues.get_or_init(|| Arc::downgrade(queues));
    }

    pub(super) fn request<T: Send + 'static>(
        &self,
        resource: &Resource,
        done: impl Done<T>,
        run: impl FnOnce(&SimServer) -> Result<T, ServerError> + Send + 'static,
    ) {
        self.request_to(self.shard(resource), vec![resource.name.clone()], done, run);
    }

    /// Completes a request that cannot be sent.
    pub(super) fn reject<T: Send + 'static>(&self, done: impl Done<T>) {
        let run = |_: &SimServer| Err(ServerError::Unavailable("not connected".into()));
        let _ = self.client.rejected.send(Box::new(Request::new(Vec::new(), done, run)));
    }

    /// Sends a request about these names; without names it is about all.
    pub(super) fn request_to<T: Send + 'static>(
        &self,
        shard: Shard,
        names: Vec<Name>,
        done: impl Done<T>,
        run: impl FnOnce(&SimServer) -> Result<T, ServerError> + Send + 'static,
    ) {
        let link = self.client.link(shard);
        let job: Box<dyn Job> = Box::new(Request::new(names, done, run));
        let unsent = match link {
            Some(link) => link.send(job),
            None => Some(job),
        };
        if let Some(job) = unsent {
            let _ = self.client.rejected.send(job);
        }
    }

    /// The outcome of a request that lowers a hold: its waiter has left the queue of a fair lock. The reply to its last attempt may
    /// have been read after it had left.
    fn lowered(&self, key: &HoldKey, done: impl Done<Given>) -> impl Done<Given> {
        let (of, client) = (key.clone(), Arc::clone(&self.client));
        move |given: Result<Given, StoreError>| {
            if given.is_ok() && of.resource.kind == Kind::Fair {
                client.state().positions.remove(&of);
            }
            done.done(given);
        }
    }

    /// Connects to a shard, and again whenever that connection has broken.
    async fn keep_connected(&self, shard: Shard) {
        loop {
            let link = self.client.state().links.get(&shard).cloned();
            if let Some(link) = link {
                link.broken().await;
                self.client.state().links.remove(&shard);
                report(&self.events, |events| events.down(shard));
            }
            env::sleep_for(PAUSE).await;
            while self.is_out(shard) {
                let reason = ServerError::Unavailable("a fault of the test".into());
                report(&self.events, |events| events.still_down(shard, reason));
                env::sleep_for(PAUSE).await;
            }
            self.connect(shard);
            let stale = self.server.faults().acts_late.is_some();
            report(&self.events, |events| events.up(shard, stale));
        }
    }

    fn connect(&self, shard: Shard) {
        self.client.state().links.insert(shard, Link::new(&self.server));
    }

    fn is_out(&self, shard: Shard) -> bool {
        self.server.faults().outage.contains(&shard)
    }

    async fn deliver(&self, mut messages: UnboundedReceiver<Message>) {
        while let Some(first) = messages.recv().await {
            // They are in flight together.
            let others = messages.len();
            let latency = self.server.faults().latency;
            if !latency.is_zero() {
                env::sleep_for(latency).await;
            }
            self.read(first).await;
            for _ in 0..others {
                let Ok(message) = messages.try_recv() else { break };
                self.read(message).await;
            }
        }
    }

    async fn read(&self, message: Message) {
        match message {
            Message::Watching(topic) => self.begin_watching(vec![topic]),
            Message::Freed(topic) => report(&self.events, |events| events.freed(&topic)),
            Message::Revoked(resource) => {
                report(&self.events, |events| events.revoked(&resource, Loss::Gone));
            }
            Message::Broken => self.listen_again().await,
        }
    }

    /// Subscribes to topics that are still wanted, if the server allows it.
    fn begin_watching(&self, mut topics: Vec<Topic>) {
        let is_denied = self.server.faults().watch_denied;
        {
            let mut state = self.client.state();
            let is_deaf = state.is_deaf;
            topics.retain(|topic| match state.topics.get_mut(topic) {
                Some(is_known) if !is_deaf => {
                    *is_known = !is_denied;
                    true
                }
                _ => false,
            });
        }
        if is_denied && !topics.is_empty() {
            report(&self.events, |events| events.watch_denied(true));
        } else {
            report(&self.events, |events| events.watching(&topics));
        }
    }

    /// Makes a new connection for messages.
    async fn listen_again(&self) {
        report(&self.events, |events| events.unwatched());
        env::sleep_for(PAUSE).await;
        while self.server.faults().message_outage {
            env::sleep_for(PAUSE).await;
        }
        report(&self.events, |events| events.watch_denied(false));
        let topics = {
            let mut state = self.client.state();
            state.is_deaf = false;
            state.topics.keys().cloned().collect()
        };
        self.begin_watching(topics);
        report(&self.events, |events| events.rewatched());
    }

    async fn send_heartbeats(&self) {
        loop {
            env::sleep_for(HEARTBEAT).await;
            let positions: Vec<_> = self.client.state().positions.keys().cloned().collect();
            for shard in all_shards() {
                let is_here =
                    |key: &&HoldKey| key.resource.kind == Kind::Fair && self.shard(&key.resource) == shard;
                let keys: Vec<_> = positions.iter().filter(is_here).cloned().collect();
                if keys.is_empty() {
                    continue;
                }
                let names = keys.iter().map(|key| key.resource.name.clone()).collect();
                let (client, events) = (Arc::clone(&self.client), Weak::clone(&self.events));
                let done = move |positions: Result<Vec<(HoldKey, Option<usize>)>, StoreError>| {
                    for (key, position) in positions.unwrap_or_default() {
                        if client.state().moved(&key, position) {
                            report(&events, |events| events.wake_waiter(&key));
                        }
                    }
                };
                self.request_to(shard, names, done, move |server| Ok(server.queue_heartbeat(keys)));
            }
        }
    }
}

async fn reject(mut rejects: Rejected) {
    while let Some(job) = rejects.recv().await {
        job.complete(Some(StoreError::NotSent(ServerError::Unavailable("not connected".into()))));
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

static PROFILE: Profile =
    Profile { engine: "sim", real_time: false, lacks: &[Feature::FencedWrite, Feature::List] };

/// `sim:NAME`, a server shared by all clients of the process that use the same name.
pub(crate) const SCHEME: Scheme = Scheme {
    names: &["sim", "sim-sessions", "sim-connections"],
    usage: "",
    profile: &PROFILE,
    server: |url| Some(url.to_owned()),
    open: |url, options| {
        if let Some(name) = url.strip_prefix("sim-sessions:") {
            return Ok(bound::open(Service::Sessions, name, &options));
        }
        if let Some(name) = url.strip_prefix("sim-connections:") {
            return Ok(bound::open(Service::Connections, name, &options));
        }
        let server = shared(url.trim_start_matches("sim:"));
        Ok(Box::pin(async move {
            let remote =
                Remote::embed(options.linger, options.lazy, |events| SimStore::new(&server, events)).await?;
            remote.inner.store.show_waiters(&remote.inner.queues);
            Ok(Arc::new(remote) as Arc<dyn Engine>)
        }))
    },
};

static TRAITS: Traits = Traits {
    profile: &PROFILE,
    lease: LeaseOf::Hold,
    counts: By::Server,
    owners: By::Server,
    ordered: true,
    takes_all: usize::MAX,
};

impl Store for SimStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn server(&self, _shard: Shard) -> String {
        "sim:".into()
    }

    fn wake(&self, kind: Kind) -> Wake {
        if kind == Kind::SetNx { Wake::Poll(UNPUBLISHED_POLL) } else { Wake::Message }
    }

    fn shard(&self, resource: &Resource) -> Shard {
        shard_of(&resource.name)
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let take = OwnedTake::new(take);
        if take.flags() {
            self.client.state().positions.insert(take.hold_key.clone(), None);
        }
        let (key, client) = (take.hold_key.clone(), Arc::clone(&self.client));
        let (queues, position) = (take.queues(), take.is_watched().then_some(0));
        let noted = move |taken: Result<Taken, StoreError>| {
            match &taken {
                Ok(Taken::Granted(_)) => drop(client.state().positions.remove(&key)),
                Ok(Taken::Busy(_)) if queues => drop(client.state().positions.entry(key).or_insert(position)),
                _ => {}
            }
            done.done(taken);
        };
        let resource = take.hold_key.resource.clone();
        self.request(&resource, noted, move |server| server.take(&take));
    }

    fn take_all(&self, takes: &[Take<'_>], done: impl Done<TakenAll>) {
        let shard = self.shard(&takes[0].hold_key.resource);
        let names = takes.iter().map(|take| take.hold_key.resource.name.clone()).collect();
        let takes: Vec<_> = takes.iter().map(OwnedTake::new).collect();
        self.request_to(shard, names, done, move |server| server.take_all(&takes));
    }

    fn give(&self, key: &HoldKey, from: u32, length: Duration, done: impl Done<Given>) {
        let of = key.clone();
        self.request(&key.resource, done, move |server| server.give(&of, from, length));
    }

    fn lower(&self, key: &HoldKey, to: u32, done: impl Done<Given>) {
        let of = key.clone();
        self.request(&key.resource, self.lowered(key, done), move |server| Ok(server.lower(&of, to)));
    }

    fn lower_first(&self, key: &HoldKey, to: u32, done: impl Done<Given>) -> bool {
        let link = self.client.state().links.get(&self.shard(&key.resource)).cloned();
        let of = key.clone();
        let run = move |server: &SimServer| Ok(server.lower(&of, to));
        let job = Request::new(vec![key.resource.name.clone()], self.lowered(key, done), run);
        link.is_some_and(|link| link.send(Box::new(job)).is_none())
    }

    fn abandon(&self, key: &HoldKey, rest: Duration, done: impl Done<bool>) {
        let of = key.clone();
        self.request(&key.resource, done, move |server| server.abandon(&of, rest));
    }

    fn renew(&self, _kind: Kind, holds: &[(&HoldKey, Duration)], done: impl Done<Vec<Verdict>>) {
        let Some((first, _)) = holds.first() else { return };
        let shard = self.shard(&first.resource);
        let holds: Vec<_> = holds.iter().map(|(key, length)| ((*key).clone(), *length)).collect();
        let names = holds.iter().map(|(key, _)| key.resource.name.clone()).collect();
        self.request_to(shard, names, done, move |server| {
            holds.iter().map(|(key, length)| server.renew(key, *length)).collect()
        });
    }

    fn doubt(&self, shard: Shard, _silence: Duration) {
        self.client.cut_shard(shard);
    }

    fn force(&self, resource: &Resource, done: impl Done<Forced>) {
        let of = resource.clone();
        self.request(resource, done, move |server| server.force(&of));
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        match *query {
            Query::Holder(resource, owner) => {
                let of = resource.clone();
                self.request(resource, done, move |server| server.holder(&of, owner));
            }
            Query::Token(resource) => {
                let of = resource.clone();
                self.request(resource, done, move |server| server.token(&of));
            }
            Query::Queue(resource) => {
                let of = resource.clone();
                self.request(resource, done, move |server| Ok(server.queue(&of)));
            }
            // Its clients are in one process, and the engine knows their waiters.
            Query::Client(resource, client) => {
                self.request(resource, done, move |_| Ok(QueryResult::of_process(client)));
            }
            Query::Waiters(resource) => self.request(resource, done, |_| Ok(QueryResult::default())),
            // Always old enough.
            Query::Uptime => drop(done),
        }
    }

    fn change(&self, resource: &Resource, change: &Change, done: impl Done<i64>) {
        let (of, change) = (resource.clone(), change.clone());
        self.request(resource, done, move |server| server.change(&of, &change));
    }

    fn forget_change(&self, resource: &Resource, change: &Change, done: impl Done<()>) {
        let change = change.clone();
        self.request(resource, done, move |server| {
            server.forget_change(&change);
            Ok(())
        });
    }

    fn watch(&self, topic: &Topic) -> Watch {
        let mut state = self.client.state();
        state.topics.insert(topic.clone(), false);
        if state.is_deaf {
            return Watch::Unavailable;
        }
        let _ = self.client.messages.send(Message::Watching(topic.clone()));
        Watch::Pending
    }

    fn unwatch(&self, topic: &Topic) {
        self.client.state().topics.remove(topic);
    }

    fn left(&self, key: &HoldKey) -> Option<Duration> {
        let is_left = matches!(key.resource.kind, Kind::Fair | Kind::Write)
            && self.client.state().positions.remove(key).is_some();
        if is_left && key.resource.kind == Kind::Write {
            // Without it the flag expires by itself, a little later.
            let of = key.clone();
            self.request(
                &key.resource,
                |_: Result<(), StoreError>| {},
                move |server| {
                    server.unflag(&of);
                    Ok(())
                },
            );
            return None;
        }
        is_left.then_some(POSITION_TTL)
    }

    fn detach(&self, key: &HoldKey, done: impl Done<()>) {
        let of = key.clone();
        self.request(&key.resource, done, move |server| {
            server.detach(&of);
            Ok(())
        });
    }

    fn shards(&self) -> Vec<Shard> {
        all_shards()
    }

    fn ping(&self, done: impl Done<()>) {
        self.request_to(Shard::ONLY, Vec::new(), done, |_| Ok(()));
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        if let Some(opened) = opened {
            if all_shards().into_iter().any(|shard| self.is_out(shard)) {
                return opened(Err(ServerError::Unavailable("a fault of the test".into())));
            }
            for shard in all_shards() {
                self.connect(shard);
            }
            opened(Ok(()));
        }
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((messages, rejects)) = begun else { return };
        tokio::select! {
            biased;
            () = self.closed.notified() => {}
            () = self.deliver(messages) => {}
            () = reject(rejects) => {}
            () = self.keep_connected(Shard(0)) => {}
            () = self.keep_connected(Shard(1)) => {}
            () = self.send_heartbeats() => {}
        }
        self.client.cut();
    }

    fn close(&self) {
        self.closed.notify_one();
    }
}
