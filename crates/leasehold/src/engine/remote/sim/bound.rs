//! A simulated service that binds holds to a session or to a connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::server::OwnedTake;
use super::sessions::{Service, TTL};
use super::store::{PAUSE, SimStore, all_shards};
use super::{SimServer, shared};
use crate::engine::remote::Remote;
use crate::engine::remote::store::{
    By, Done, Events, Given, LeaseOf, Shard, Store, StoreError, Take, Taken, Topic, Traits, Wake, Watch,
    report,
};
use crate::engine::schemes::{Opening, Options};
use crate::engine::{Engine, Feature, HoldKey, Kind, Profile, Query, QueryResult, Resource};
use crate::env::{self, Instant};
use crate::error::ServerError;
use crate::lease::margin;
use crate::loss::Loss;
use crate::session::Session;

/// Starts a client of the server that a URL names.
pub(super) fn open(service: Service, name: &str, options: &Options) -> Opening {
    let (server, linger, lazy) = (shared(name), options.linger, options.lazy);
    Box::pin(async move {
        let remote = Remote::embed(linger, lazy, |events| BoundStore::new(service, &server, events)).await?;
        remote.inner.store.base.show_waiters(&remote.inner.queues);
        Ok(Arc::new(remote) as Arc<dyn Engine>)
    })
}

/// The features that a service with only plain and spin locks lacks.
pub(super) const ALL_BUT_PLAIN: &[Feature] = &[
    Feature::Kind(Kind::Fair),
    Feature::Kind(Kind::SetNx),
    Feature::Kind(Kind::Read),
    Feature::Kind(Kind::Write),
    Feature::Kind(Kind::Group),
    Feature::Kind(Kind::Semaphore),
    Feature::Kind(Kind::LeasedSemaphore),
    Feature::Kind(Kind::Latch),
    Feature::Fenced,
    Feature::MinHold,
    Feature::Steal,
    Feature::ForceUnlock,
    Feature::Upgrade,
    Feature::FencedWrite,
    Feature::List,
];

static SESSIONS: Traits = Traits {
    profile: &Profile { engine: "sim-sessions", real_time: false, lacks: ALL_BUT_PLAIN },
    lease: LeaseOf::Session,
    counts: By::Client,
    owners: By::Server,
    ordered: false,
    takes_all: 0,
};

static CONNECTIONS: Traits = Traits {
    profile: &Profile { engine: "sim-connections", real_time: false, lacks: ALL_BUT_PLAIN },
    lease: LeaseOf::Session,
    counts: By::Client,
    owners: By::Client,
    ordered: true,
    takes_all: 0,
};

/// How long the server takes to notice that a connection is gone.
const UNNOTICED: std::time::Duration = std::time::Duration::from_secs(1);

/// The locks of one client.
struct BoundStore {
    base: SimStore,
    service: Service,
    sessions: Mutex<BTreeMap<Shard, (u64, Arc<Session>)>>,
}

impl BoundStore {
    fn new(service: Service, server: &Arc<SimServer>, events: Weak<dyn Events>) -> Self {
        Self { base: SimStore::new(server, events), service, sessions: Mutex::default() }
    }

    /// The session with a shard, if there is one that is not lost.
    fn session(&self, shard: Shard) -> Option<(u64, Arc<Session>)> {
        self.sessions().get(&shard).filter(|(_, session)| session.loss().is_none()).cloned()
    }

    fn begin(&self, shard: Shard) {
        let id = self.base.server.begin_session(self.service, &self.base.client);
        self.sessions().insert(shard, (id, Session::new(deadline(env::now()))));
    }

    /// Keeps the session with a shard alive, and begins another one when it is lost.
    async fn keep_session(&self, shard: Shard) {
        loop {
            let link = self.base.client.link(shard);
            let Some((id, session)) = self.session(shard) else {
                self.renew_session(shard).await;
                continue;
            };
            let is_bound = self.service == Service::Connections;
            match link {
                Some(link) if is_bound => drop(env::within(TTL / 3, link.broken()).await),
                None if is_bound => {}
                _ => env::sleep_for(TTL / 3).await,
            }
            if is_bound && self.base.client.link(shard).is_none_or(|link| link.is_broken()) {
                session.lose(Loss::Unreachable);
                let server = Arc::clone(&self.base.server);
                self.base.server.spawn(async move {
                    env::sleep_for(UNNOTICED).await;
                    server.end_session(id);
                });
                continue;
            }
            let begun = env::now();
            let done = move |outcome: Result<bool, StoreError>| match outcome {
                Ok(true) => session.set_deadline(deadline(begun)),
                Ok(false) => session.lose(Loss::Gone),
                Err(_) => {}
            };
            self.base.request_to(shard, Vec::new(), done, move |server| Ok(server.heartbeat(id)));
        }
    }

    /// Reports that a session is lost, and begins another one as soon as there is a connection.
    async fn renew_session(&self, shard: Shard) {
        let lost = self.sessions().remove(&shard);
        if let Some((_, session)) = lost {
            let loss = session.loss().unwrap_or(Loss::Unreachable);
            report(&self.base.events, |events| events.session_lost(&session, loss));
        }
        while self.base.client.link(shard).is_none_or(|link| link.is_broken()) {
            env::sleep_for(PAUSE).await;
        }
        self.begin(shard);
    }

    fn lowered(&self, key: &HoldKey, to: u32, done: impl Done<Given>) {
        // A blocked call of a waiter that has left may have returned with the lock, which no owner here has then.
        let to = if self.service == Service::Connections { 0 } else { to };
        let Some((id, _)) = self.session(self.shard(&key.resource)) else {
            // The hold has ended with its session.
            let nothing = Given { left: None, subscribers: None };
            return self.base.server.spawn(async move { done.done(Ok(nothing)) });
        };
        let of = key.clone();
        self.base.request(&key.resource, done, move |server| server.give_bound(&of, id, to));
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Shard, (u64, Arc<Session>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until when a session may be trusted that the server has seen alive after this moment.
fn deadline(begun: Instant) -> Instant {
    begun + TTL - margin(TTL)
}

impl fmt::Debug for BoundStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.fmt(f)
    }
}

impl Store for BoundStore {
    fn traits(&self) -> &'static Traits {
        if self.service == Service::Sessions { &SESSIONS } else { &CONNECTIONS }
    }

    fn wake(&self, _kind: Kind) -> Wake {
        Wake::Message
    }

    fn shard(&self, resource: &Resource) -> Shard {
        self.base.shard(resource)
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let Some((id, session)) = self.session(self.shard(&take.hold_key.resource)) else {
            return self.base.reject(done);
        };
        let take = OwnedTake::new(take);
        if take.waits {
            self.base.client.add_position(&take.hold_key);
        }
        let resource = take.hold_key.resource.clone();
        let client = Arc::clone(&self.base.client);
        self.base.request(&resource, done, move |server| {
            let taken = server.take_bound(&take, id, session)?;
            if let Taken::Bound(..) = taken {
                // It has left the queue.
                client.remove_position(&take.hold_key);
            }
            Ok(taken)
        });
    }

    fn give(&self, key: &HoldKey, _from: u32, _length: std::time::Duration, done: impl Done<Given>) {
        self.lowered(key, 0, done);
    }

    fn lower(&self, key: &HoldKey, to: u32, done: impl Done<Given>) {
        self.lowered(key, to, done);
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        self.base.inspect(query, done);
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.base.watch(topic)
    }

    fn unwatch(&self, topic: &Topic) {
        self.base.unwatch(topic);
    }

    fn left(&self, key: &HoldKey) -> Option<std::time::Duration> {
        self.base.client.remove_position(key).then_some(TTL)
    }

    fn shards(&self) -> Vec<Shard> {
        self.base.shards()
    }

    fn ping(&self, done: impl Done<()>) {
        self.base.ping(done);
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let begun = opened.map(|opened| {
            |outcome: Result<(), ServerError>| {
                if outcome.is_ok() {
                    for shard in all_shards() {
                        self.begin(shard);
                    }
                }
                opened(outcome);
            }
        });
        tokio::select! {
            biased;
            () = self.base.run(begun) => {}
            () = self.keep_session(Shard(0)) => {}
            () = self.keep_session(Shard(1)) => {}
        }
        for (id, _) in std::mem::take(&mut *self.sessions()).into_values() {
            self.base.server.end_session(id);
        }
    }

    fn close(&self) {
        self.base.close();
    }
}
