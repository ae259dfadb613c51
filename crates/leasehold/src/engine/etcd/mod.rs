//! The engine on etcd, in the dialect of `etcdctl lock` and of Go's packages `concurrency` and `recipes`.
//!
//! A client has one lease, its session, and one stream of heartbeats for it. A lock is a queue of keys below its name: the owner of
//! the oldest key holds the lock, and every other owner watches the key before its own, and its own. A release deletes the key.
//! All keys of a client are bound to its lease, so the server deletes them when the client is gone; but for those of holds with a
//! fixed lease, which the server grants for each of them. See [`keys`] and [`leases`].

mod address;
mod calls;
mod changes;
mod connection;
mod counted;
mod decide;
mod group;
mod held;
mod keys;
mod leased;
mod leases;
mod link;
mod listing;
mod locks;
mod messages;
mod numbers;
mod order;
mod permits;
mod places;
#[cfg(feature = "tls")]
mod secured;
mod state;
mod survey;
mod takeover;
mod timed;
mod together;
mod topics;
mod transaction;
mod transport;
mod view;
mod watches;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch::Sender;

use self::address::{Address, Member};
use self::changes::Memory;
use self::connection::Account;
use self::link::{ClientSession, Fall, Limits, Link, Streams, whole_seconds};
use self::locks::Entry;
use self::messages::{Range, Ranged, WatchReply};
use self::order::Order;
use self::places::{Place, Places, State};
use self::timed::Timers;
use self::topics::Topics;
use self::watches::{Watched, Watches};
use super::remote::Remote;
use super::remote::store::{
    By, Done, Events, Forced, Given, LeaseOf, Shard, Store, StoreError, Take, Taken, TakenAll, Topic, Traits,
    Verdict, Wake, Watch, report,
};
use super::schemes::{Options, Scheme};
use super::{
    Change, Engine, Feature, HoldKey, Kind, ListStep, Listed, Profile, Query, QueryResult, Resource, Survey,
};
use crate::env::{self, Tasks, jittered};
use crate::error::ServerError;
use crate::identity::Identity;
use crate::loss::Loss;
use crate::mutex::Mutex;

/// `etcd://[user:password@]host[:port],…`, and `etcds:` with TLS.
pub(crate) const SCHEME: Scheme = Scheme {
    names: &[address::PLAIN, address::SECURE],
    usage: "`etcd://[user:password@]host[:port],…` (etcd; `etcds://` with TLS)",
    profile: &PROFILE,
    server: |url| Address::parse(url).ok().map(|address| address.server()),
    open: |url, options| {
        let address = Address::parse(url)?;
        address.permit_tls(options.allow_unverified)?;
        Ok(Box::pin(async move {
            let (linger, lazy) = (options.linger, options.lazy);
            let store = |events| EtcdStore(Arc::new(Cluster::new(address, &options, events)));
            let remote = if lazy {
                Remote::connect_lazily(linger, store)?
            } else {
                Remote::connect(linger, store).await?
            };
            Ok(Arc::new(remote) as Arc<dyn Engine>)
        }))
    },
};

static PROFILE: Profile = Profile {
    engine: "etcd",
    real_time: true,
    lacks: &[Feature::Kind(Kind::SetNx), Feature::Upgrade, Feature::FencedWrite, Feature::LastToken],
};

static TRAITS: Traits = Traits {
    profile: &PROFILE,
    lease: LeaseOf::SessionOrHold,
    counts: By::Client,
    owners: By::Server,
    ordered: false,
    takes_all: together::MOST,
};

/// A hold that is released sooner than this is never watched.
const YOUNG: Duration = Duration::from_millis(20);
/// How long the server keeps a lock for a waiter whose turn it is. A waiter that is not polled loses its place then.
const TURN: Duration = Duration::from_secs(2);
/// How often a waiter looks without a message: a message reduces the delay, and none is relied on. A look writes nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// The pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The locks of one client.
struct EtcdStore(Arc<Cluster>);

/// The cluster as one client sees it.
struct Cluster {
    address: Address,
    account: Account,
    limits: Limits,
    events: Weak<dyn Events>,
    /// None if the client is anonymous.
    identity: Option<Arc<Identity>>,
    /// The I/O thread.
    io: OnceLock<Tasks>,
    link: Mutex<Option<Arc<Link>>>,
    places: Mutex<Places>,
    /// The leases of holds that are over, as long as they may still be on the server.
    spent: Mutex<BTreeSet<i64>>,
    watches: Watches,
    topics: Topics,
    timers: Timers,
    /// Where the results of changes are kept, once there were any.
    memory: Mutex<Option<Memory>>,
    order: Order,
    /// Attempts at permits and at values of groups.
    attempts: Order,
    /// Questions why the key of a holder was deleted.
    reasons: Order,
    /// Whether the client is closed.
    closed: Sender<bool>,
}

impl Cluster {
    fn new(address: Address, options: &Options, events: Weak<dyn Events>) -> Self {
        let Options { connect_timeout: connect, response_timeout: reply, watchdog, .. } = *options;
        let ttl = whole_seconds(watchdog);
        let account = Account { login: address.login.clone(), provider: options.credentials.clone() };
        Self {
            address,
            account,
            limits: Limits { connect, reply, ttl },
            events,
            identity: options.identity.clone(),
            io: OnceLock::new(),
            link: Mutex::default(),
            places: Mutex::default(),
            spent: Mutex::default(),
            watches: Watches::default(),
            topics: Topics::default(),
            timers: Timers::default(),
            memory: Mutex::default(),
            order: Order::default(),
            attempts: Order::default(),
            reasons: Order::default(),
            closed: Sender::new(false),
        }
    }

    /// The connection, if there is one and the session lives.
    fn link(&self) -> Result<Arc<Link>, StoreError> {
        let link = self.link.lock().clone().filter(|link| link.client.session.loss().is_none());
        link.ok_or_else(|| StoreError::NotSent(ServerError::Unavailable("not connected".into())))
    }

    /// Runs on the I/O thread, if that has begun.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(io) = self.io.get() {
            io.spawn(task);
        }
    }

    /// Serves until this is dropped.
    async fn serve(self: &Arc<Self>, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let (mut member, mut client) = (0, None);
        let mut streams = if let Some(opened) = opened {
            let first = self.connect_once(&mut member, &mut client).await;
            opened(first.as_ref().map(|_| ()).map_err(Clone::clone));
            let Ok(streams) = first else { return };
            streams
        } else {
            let streams = self.connect(&mut member, &mut client, None).await;
            report(&self.events, |events| events.up(Shard::ONLY, false));
            streams
        };
        loop {
            let Some(link) = self.link.lock().clone() else { return };
            let fall = link.serve(streams, |reply| self.watched(&link, &reply)).await;
            *self.link.lock() = None;
            self.watches.clear();
            self.topics_are_not_watched();
            match fall {
                Fall::Session => {
                    streams = self.connect(&mut member, &mut client, None).await;
                    report(&self.events, |events| events.rewatched());
                }
                Fall::Broken(reason) => {
                    report(&self.events, |events| events.down(Shard::ONLY));
                    link.give_up(&reason).await;
                    member += 1;
                    streams = self.connect(&mut member, &mut client, Some(reason)).await;
                    report(&self.events, |events| events.up(Shard::ONLY, true));
                }
            }
            if let Ok(link) = self.link() {
                self.watch_again(&link);
            }
        }
    }

    /// A connection has replaced another one: holders are watched again, and waiters have to retry.
    fn watch_again(self: &Arc<Self>, link: &Arc<Link>) {
        let all = self.places.lock().unwatched();
        for (hold_key, place) in all {
            match place.state {
                State::Held => self.watch_hold(link, &hold_key, place.created),
                State::Waiting => self.expect_retry(link, &hold_key),
                State::New | State::Removed | State::Leaving | State::Abandoned => {}
            }
        }
    }

    /// Connects to one member after the other until one serves.
    async fn connect(
        self: &Arc<Self>,
        member: &mut usize,
        client: &mut Option<ClientSession>,
        reason: Option<ServerError>,
    ) -> Streams {
        let mut pause = FIRST_PAUSE;
        reason.inspect(|reason| self.still_down(reason));
        loop {
            match self.connect_once(member, client).await {
                Ok(streams) => return streams,
                Err(reason) => self.still_down(&reason),
            }
            env::sleep_for(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn still_down(&self, reason: &ServerError) {
        report(&self.events, |events| events.still_down(Shard::ONLY, reason.clone()));
    }

    /// Tries each member once.
    async fn connect_once(
        self: &Arc<Self>,
        member: &mut usize,
        client: &mut Option<ClientSession>,
    ) -> Result<Streams, ServerError> {
        let mut last = ServerError::Unavailable("the URL names no member".into());
        for _ in &self.address.members {
            self.tell_lost(client.as_ref());
            let Address { members, tls, .. } = &self.address;
            let at = &members[*member % members.len()];
            match Link::open(at, tls.as_ref(), self.account.clone(), self.limits, client.as_ref()).await {
                Ok((link, streams)) => {
                    let is_same = client.as_ref().is_some_and(|before| before.lease == link.client.lease);
                    if !is_same {
                        self.tell_lost(client.as_ref());
                        self.places.lock().end_session();
                    }
                    *client = Some(link.client.clone());
                    let link = Arc::new(link);
                    *self.link.lock() = Some(Arc::clone(&link));
                    self.watch_topics_again(&link);
                    return Ok(streams);
                }
                Err(error) if members.len() == 1 => last = error,
                Err(error) => last = of_member(at, error),
            }
            *member += 1;
        }
        Err(last)
    }

    /// Reports a session that is lost.
    fn tell_lost(&self, client: Option<&ClientSession>) {
        if let Some(ClientSession { session, .. }) = client
            && let Some(loss) = session.loss()
        {
            report(&self.events, |events| events.session_lost(session, loss));
        }
    }

    /// The stream of watches says something.
    fn watched(self: &Arc<Self>, link: &Arc<Link>, reply: &WatchReply) {
        let is_wanted = || self.watches.get(reply.id).is_some() || self.topics.of(reply.id).is_some();
        if reply.canceled && (reply.created || is_wanted()) {
            // The token of the stream is not known any more, or the stream was too slow: on another connection all watches begin anew.
            let link = Arc::clone(link);
            return self.spawn(async move {
                env::sleep_for(LONGEST_PAUSE).await;
                link.break_off(ServerError::Unavailable("the server has ended a watch".into()));
            });
        }
        if self.watched_topic(reply) {
            return;
        }
        if !reply.events.is_empty() {
            self.changed(link, reply.id);
        } else if reply.created
            && let Some(watched) = self.watches.get(reply.id)
        {
            let (cluster, link, id) = (Arc::clone(self), Arc::clone(link), reply.id);
            self.spawn(async move { cluster.look(&link, id, watched).await });
        }
    }

    /// A watch has begun: reads whether anything has changed before.
    async fn look(self: &Arc<Self>, link: &Arc<Link>, id: i64, watched: Watched) {
        let Watched { span, created_until, found, .. } = watched;
        let now: Result<Ranged, _> =
            link.call(calls::RANGE, transaction::newest(&span, created_until, 0)).await;
        if now.is_ok_and(|now| now.found.len() != found) {
            self.changed(link, id);
        }
    }

    /// What is watched has changed: a waiter retries, and a holder has lost its lock.
    fn changed(self: &Arc<Self>, link: &Arc<Link>, id: i64) {
        let Some(Watched { hold_key, .. }) = self.watches.get(id) else { return };
        self.watches.end(&link.watches, id);
        if self.watches.is_of_name(&hold_key.resource, id) {
            return report(&self.events, |events| events.freed(&(hold_key.resource, None)));
        }
        let mut places = self.places.lock();
        let Some(place) = places.get(&hold_key) else { return };
        if place.watch == Some(id) {
            place.watch = None;
            drop(places);
            self.expect_retry(link, &hold_key);
            let resource = hold_key.resource;
            let owner = (resource.kind == Kind::Fair).then_some(hold_key.owner);
            return report(&self.events, |events| events.freed(&(resource, owner)));
        }
        if place.own_watch != Some(id) {
            return;
        }
        place.own_watch = None;
        // Perhaps the whole lease was revoked.
        link.doubt_session();
        match place.state {
            State::Held => {
                let (fate, place) = (place.fate, place.clone());
                drop(places);
                self.lost(link, &hold_key);
                self.taken_away(link, hold_key, place, fate);
            }
            State::Abandoned => drop(places.remove(&hold_key)),
            State::Waiting => {
                place.state = State::Removed;
                let before = place.watch.take();
                drop(places);
                before.inspect(|id| self.watches.end(&link.watches, *id));
                report(&self.events, |events| events.wake_waiter(&hold_key));
            }
            State::New | State::Removed | State::Leaving => {}
        }
    }

    /// The key of a holder was deleted: it loses its lock, for this reason or for one that has to be looked up.
    fn taken_away(self: &Arc<Self>, link: &Arc<Link>, hold_key: HoldKey, place: Place, fate: Option<Loss>) {
        if let Some(loss) = fate {
            return report(&self.events, |events| events.revoked_one(&hold_key, loss));
        }
        let (cluster, link) = (Arc::clone(self), Arc::clone(link));
        let question = self.reasons.begin(&hold_key.resource.name);
        self.spawn(async move {
            let loss = takeover::reason(&link, &place).await;
            report(&cluster.events, |events| events.revoked_one(&hold_key, loss));
            drop(question);
        });
    }
}

/// The failure of one of several members.
fn of_member(member: &Member, error: ServerError) -> ServerError {
    match error {
        ServerError::Unavailable(text) => ServerError::Unavailable(format!("{member}: {text}")),
        ServerError::Denied(text) => ServerError::Denied(format!("{member}: {text}")),
        error @ ServerError::NotALock => error,
    }
}

impl EtcdStore {
    /// Carries a request out on the I/O thread. A client that is not connected yet has nothing to be carried out.
    fn request<T: Send + 'static>(
        &self,
        done: impl Done<T>,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        if !*self.0.closed.borrow() {
            self.0.spawn(async move { done.done(work.await) });
        }
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Etcd").field(&self.0.address.server()).finish()
    }
}

impl Store for EtcdStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn wake(&self, kind: Kind) -> Wake {
        if keys::is_lock(kind) { Wake::Message } else { Wake::Poll(LOOK_AGAIN) }
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let (cluster, entry, lease) = (Arc::clone(&self.0), Entry::new(take), take.lease);
        let name = &take.hold_key.resource.name;
        let before = cluster.order.before(name);
        let attempt = (!keys::is_lock(take.hold_key.resource.kind)).then(|| cluster.attempts.begin(name));
        // If the caller is gone, the release is requested before the attempt is over.
        let done = move |taken| {
            done.done(taken);
            drop(attempt);
        };
        self.request(done, async move {
            before.over().await;
            let taken = match entry.hold_key.resource.kind {
                Kind::Semaphore => cluster.take_counted(&entry.hold_key).await,
                Kind::LeasedSemaphore => cluster.take_permits(&entry.hold_key, lease).await,
                Kind::Group => cluster.take_set(&entry).await,
                _ => cluster.take(&entry).await,
            };
            if let Ok(Taken::Bound(..)) = taken {
                // An earlier holder of this client is told first, and why.
                cluster.reasons.before(&entry.hold_key.resource.name).over().await;
            }
            taken
        });
    }

    fn take_all(&self, takes: &[Take<'_>], done: impl Done<TakenAll>) {
        let cluster = Arc::clone(&self.0);
        let entries: Vec<_> = takes.iter().map(Entry::new).collect();
        let before: Vec<_> =
            takes.iter().map(|take| cluster.order.before(&take.hold_key.resource.name)).collect();
        self.request(done, async move {
            for deletions in before {
                deletions.over().await;
            }
            cluster.take_all(&entries).await
        });
    }

    fn give(&self, key: &HoldKey, _from: u32, _length: Duration, done: impl Done<Given>) {
        let (cluster, key) = (Arc::clone(&self.0), key.clone());
        let deletion = cluster.order.begin(&key.resource.name);
        self.request(done, async move {
            let given = match key.resource.kind {
                kind if keys::is_lock(kind) => cluster.give(&key).await,
                _ => cluster.give_other(&key).await,
            };
            drop(deletion);
            given
        });
    }

    fn lower(&self, key: &HoldKey, to: u32, done: impl Done<Given>) {
        let (cluster, key) = (Arc::clone(&self.0), key.clone());
        let deletion = cluster.order.begin(&key.resource.name);
        self.request(done, async move {
            let given = match key.resource.kind {
                kind if keys::is_lock(kind) => cluster.lower(&key, to).await,
                _ if to > 0 => Ok(Given { left: Some(to), subscribers: Some(0) }),
                _ => cluster.give_other(&key).await,
            };
            drop(deletion);
            given
        });
    }

    /// Only counted permits, and those with a fixed lease, have no session.
    fn renew(&self, _kind: Kind, holds: &[(&HoldKey, Duration)], done: impl Done<Vec<Verdict>>) {
        let cluster = Arc::clone(&self.0);
        let holds: Vec<_> = holds.iter().map(|(key, length)| ((*key).clone(), *length)).collect();
        self.request(done, async move {
            let mut verdicts = Vec::with_capacity(holds.len());
            for (key, length) in &holds {
                verdicts.push(match key.resource.kind {
                    Kind::Semaphore => cluster.has_counted(key).await?,
                    _ => cluster.renew_permits(key, *length).await?,
                });
            }
            Ok(verdicts)
        });
    }

    fn is_there(&self, key: &HoldKey, length: Option<Duration>, done: impl Done<bool>) {
        let (cluster, key) = (Arc::clone(&self.0), key.clone());
        self.request(done, async move { cluster.is_there(&key, length).await });
    }

    fn abandon(&self, key: &HoldKey, rest: Duration, done: impl Done<bool>) {
        let (cluster, key, end) = (Arc::clone(&self.0), key.clone(), env::now() + rest);
        self.request(done, async move {
            let are_permits = key.resource.kind == Kind::LeasedSemaphore;
            if are_permits {
                cluster.abandon_permits(&key, rest).await
            } else {
                cluster.abandon(&key, rest, end).await
            }
        });
    }

    fn force(&self, resource: &Resource, done: impl Done<Forced>) {
        let (cluster, resource) = (Arc::clone(&self.0), resource.clone());
        self.request(done, async move {
            let is_group = resource.kind == Kind::Group;
            if is_group { cluster.force_set(&resource).await } else { cluster.force(&resource).await }
        });
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        let cluster = Arc::clone(&self.0);
        match *query {
            Query::Holder(resource, owner) => {
                let resource = resource.clone();
                self.request(done, async move {
                    let holding = if resource.kind == Kind::Group {
                        cluster.holder_of_set(&resource, owner).await?
                    } else {
                        cluster.holder(&resource, owner).await?
                    };
                    Ok(QueryResult { holding, ..QueryResult::default() })
                });
            }
            Query::Queue(resource) | Query::Waiters(resource) if keys::is_lock(resource.kind) => {
                let resource = resource.clone();
                self.request(done, async move { cluster.waiting(&resource).await });
            }
            Query::Client(resource, client) => {
                let resource = resource.clone();
                self.request(done, async move { cluster.client(&resource, client).await });
            }
            // The server has no queue for numbers, permits and values.
            Query::Queue(_) | Query::Waiters(_) | Query::Token(_) | Query::Uptime => {
                self.request(done, async { Ok(QueryResult::default()) });
            }
        }
    }

    fn list(&self, step: &ListStep, done: impl Done<Listed>) {
        let (cluster, step) = (Arc::clone(&self.0), step.clone());
        self.request(done, async move { cluster.list(&step).await });
    }

    fn change(&self, resource: &Resource, change: &Change, done: impl Done<i64>) {
        let (cluster, resource, change) = (Arc::clone(&self.0), resource.clone(), change.clone());
        let before = [cluster.attempts.before(&resource.name), cluster.order.before(&resource.name)];
        self.request(done, async move {
            for earlier in before {
                earlier.over().await;
            }
            // Of an attempt whose caller is gone.
            cluster.order.before(&resource.name).over().await;
            cluster.change(&resource, &change).await
        });
    }

    fn forget_change(&self, _resource: &Resource, change: &Change, done: impl Done<()>) {
        let (cluster, change) = (Arc::clone(&self.0), change.clone());
        self.request(done, async move { cluster.forget_change(&change).await });
    }

    fn detach(&self, key: &HoldKey, done: impl Done<()>) {
        let (cluster, key) = (Arc::clone(&self.0), key.clone());
        self.request(done, async move {
            loop {
                let detached = match key.resource.kind {
                    Kind::Semaphore => cluster.forget_counted(&key).await,
                    Kind::LeasedSemaphore => cluster.detach_permits(&key).await,
                    _ => Ok(()),
                };
                match detached {
                    Ok(()) | Err(StoreError::Refused(ServerError::Denied(_) | ServerError::NotALock)) => {
                        break detached;
                    }
                    // Permits would last as long as the client, and the key of counted ones for ever.
                    Err(_) => env::sleep_for(LONGEST_PAUSE).await,
                }
            }
        });
    }

    /// A waiter for a lock watches the key before its own, as soon as it has one.
    fn watch(&self, (resource, _): &Topic) -> Watch {
        if keys::is_lock(resource.kind) { Watch::Active } else { self.0.watch_topic(resource) }
    }

    fn unwatch(&self, (resource, _): &Topic) {
        if !keys::is_lock(resource.kind) {
            return self.0.unwatch_topic(resource);
        }
        if let Some(link) = &*self.0.link.lock() {
            self.0.watches.end_of_name(&link.watches, resource);
        }
    }

    fn left(&self, key: &HoldKey) -> Option<Duration> {
        let is_waiting = |place: &mut Place| matches!(place.state, State::Waiting | State::Removed);
        let mut places = self.0.places.lock();
        places.get(key).is_some_and(is_waiting).then(|| Duration::from_secs(self.0.limits.ttl.unsigned_abs()))
    }

    fn server(&self, _shard: Shard) -> String {
        let link = self.0.link.lock();
        link.as_ref().map_or_else(|| self.0.address.server(), |link| self.0.address.url_of(&link.member))
    }

    fn ping(&self, done: impl Done<()>) {
        let cluster = Arc::clone(&self.0);
        self.request(done, async move {
            let range = Range { key: keys::client(0), ..Range::default() };
            let _: Ranged = cluster.link()?.call(calls::RANGE, range).await?;
            Ok(())
        });
    }

    fn survey(&self, done: impl Done<Survey>) {
        let cluster = Arc::clone(&self.0);
        self.request(done, async move { cluster.survey().await });
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let cluster = &self.0;
        cluster.io.get_or_init(Tasks::here);
        let mut closed = cluster.closed.subscribe();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => {}
            () = cluster.serve(opened) => {}
        }
        let last = cluster.link.lock().take();
        if let Some(link) = last {
            cluster.revoke_spent(&link).await;
            link.end_session().await;
        }
    }

    fn close(&self) {
        self.0.closed.send_replace(true);
    }
}
