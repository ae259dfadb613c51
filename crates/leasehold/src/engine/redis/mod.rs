//! Redis and Valkey: Redisson's keys, fields, channels and payloads.
//!
//! Two connections for each client, one for commands and one for messages. The state of a lock is a hash with one field, the
//! owner, whose value counts its entries; its time to live is the lease.

mod address;
mod commands;
mod keys;
mod listing;
mod net;
mod probe;
mod pubsub;
mod queue_heartbeat;
mod recent;
mod registration;
mod sentinel;

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

pub(crate) use self::address::Address;
use self::net::{Call, Node, OnReply, Reply, Settings, Value};
use self::pubsub::{Subscriber, Subscriptions};
use self::queue_heartbeat::QueueHeartbeat;
use self::recent::Recent;
use self::registration::Registration;
use super::remote::Remote;
use super::remote::store::{
    By, Done, Events, Forced, Given, LateNotice, LeaseOf, Shard, Store, StoreError, Take, Taken, TakenAll,
    Topic, Traits, UNPUBLISHED_POLL, Verdict, Wake, Watch,
};
use super::schemes::{Options, Scheme};
use super::{
    Change, Engine, HoldKey, Kind, ListStep, Listed, Probe, Probed, Profile, Query, QueryResult, Queueing,
    Resource, Shape,
};
use crate::error::ServerError;
use crate::mutex::Mutex;
use crate::name::Name;

pub(crate) const SCHEME: Scheme = Scheme {
    names: address::SCHEMES,
    usage: "`redis://[user:password@]host[:port][/db]` (Redis; `valkey://` is the same, `rediss://` with TLS), \
            `redis+sentinel://[user:password@]host[:port],…/NAME[/db]` (the primary that sentinels name), \
            `redis+unix:///path[?db=…&user=…&pass=…]` (its socket on this machine)",
    profile: &PROFILE,
    server: |url| Address::parse(url).ok().map(|address| address.server()),
    open: |url, options| {
        let address = Address::parse(url)?;
        address.permit_tls(options.allow_unverified)?;
        Ok(Box::pin(async { Ok(Arc::new(Redis::open(address, options).await?) as Arc<dyn Engine>) }))
    },
};

const PROFILE: Profile = Profile { engine: "redis", real_time: true, lacks: &[] };

/// The engine of a client on Redis or Valkey.
pub(crate) type Redis = Remote<RedisStore>;

impl Redis {
    pub(crate) async fn open(address: Address, options: Options) -> Result<Self, ServerError> {
        let (linger, lazy) = (options.linger, options.lazy);
        let settings = Settings::new(address, options, Handle::try_current().ok());
        if lazy {
            return Self::connect_lazily(linger, |events| RedisStore::new(settings, events));
        }
        Self::connect(linger, |events| RedisStore::new(settings, events)).await
    }
}

/// How long a waiter for a fair lock stays in the queue without a heartbeat.
const POSITION_TTL: Duration = Duration::from_secs(3);

/// The locks of one client on Redis or Valkey.
pub(crate) struct RedisStore {
    parts: Arc<Parts>,
    subscriber: Subscriber,
    registration: Registration,
    /// After which time without a token its counter may expire.
    token_retention: Option<Duration>,
}

/// The state that reply handlers update.
struct Parts {
    topology: Topology,
    heartbeat: QueueHeartbeat,
    /// Behind sentinels: what a failover may have undone.
    recent: Option<Arc<Recent>>,
    // Invariant: a writer is here from before its flag, which keeps new readers out, can be set until after it is removed.
    flagged: Mutex<HashSet<HoldKey>>,
    events: Weak<dyn Events>,
}

impl Parts {
    fn flagged(&self) -> MutexGuard<'_, HashSet<HoldKey>> {
        self.flagged.lock()
    }
}

/// The servers behind one URL. A closed set, so an enum.
enum Topology {
    /// One server has all locks.
    Single(Node),
}

impl Topology {
    /// The server of a resource.
    fn node(&self, _resource: &Resource) -> &Node {
        self.any()
    }

    /// Any of the servers.
    fn any(&self) -> &Node {
        let Self::Single(node) = self;
        node
    }
}

impl RedisStore {
    fn new(settings: Settings, events: Weak<dyn Events>) -> Self {
        let subscriptions = Arc::<Subscriptions>::default();
        let subscriber =
            Subscriber { settings: settings.clone(), subscriptions, events: Weak::clone(&events) };
        let registration = Registration::new(settings.options.identity.clone());
        let token_retention = settings.options.token_retention;
        let recent = settings.has_sentinels().then(Arc::<Recent>::default);
        let again = recent.clone();
        let first = move || again.as_ref().map(|recent| recent.releases()).unwrap_or_default();
        let node = Node::new(settings, Shard::ONLY, Weak::clone(&events), Box::new(first));
        let (heartbeat, flagged) = Default::default();
        let topology = Topology::Single(node);
        Self {
            parts: Arc::new(Parts { topology, heartbeat, recent, flagged, events }),
            subscriber,
            registration,
            token_retention,
        }
    }

    /// A hold is released, or given up.
    fn released(&self, hold_key: &HoldKey, to: u32) {
        if let Some(recent) = self.parts.recent.as_ref().filter(|_| to == 0) {
            recent.released(hold_key);
        }
    }

    /// Sends a call about a resource.
    fn send<T: 'static>(
        &self,
        resource: &Resource,
        call: Call,
        done: impl Done<T>,
        decode: impl FnOnce(Value) -> Result<T, ServerError> + Send + 'static,
    ) {
        self.parts.topology.node(resource).send(call, decoded(done, decode));
    }
}

impl RedisStore {
    /// The same for what need not be known: a refusal of the server counts as an empty reply.
    fn send_if_allowed(
        &self,
        resource: &Resource,
        call: Call,
        done: impl Done<QueryResult>,
        decode: impl FnOnce(Value) -> QueryResult + Send + 'static,
    ) {
        let complete = completed(done, |done, reply: Reply| match reply {
            Err(StoreError::Refused(ServerError::Denied(_))) => done.done(Ok(QueryResult::default())),
            reply => done.done(reply.map(decode)),
        });
        self.parts.topology.node(resource).send(call, complete);
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

const TRAITS: Traits = Traits {
    profile: &PROFILE,
    lease: LeaseOf::Hold,
    counts: By::Server,
    owners: By::Server,
    ordered: true,
    takes_all: usize::MAX,
};

impl Store for RedisStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn server(&self, _shard: Shard) -> String {
        self.parts.topology.any().server()
    }

    fn wake(&self, kind: Kind) -> Wake {
        // Other libraries release such a lock without a message.
        if kind == Kind::SetNx { Wake::Poll(UNPUBLISHED_POLL) } else { Wake::Message }
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let node = self.parts.topology.node(&take.hold_key.resource);
        node.send(
            commands::take(take, self.token_retention),
            Taking::new(&self.parts, take).completing(done),
        );
    }

    fn take_all(&self, takes: &[Take<'_>], done: impl Done<TakenAll>) {
        let Take { hold_key: HoldKey { resource, owner, .. }, fenced, .. } = &takes[0];
        let (owner, fenced, locks) = (*owner, *fenced, takes.len());
        let decode = move |reply: Value| commands::taken_all(&reply, owner, locks, fenced);
        self.send(resource, commands::take_all(takes, self.token_retention), done, decode);
    }

    fn give(&self, hold_key: &HoldKey, from: u32, length: Duration, done: impl Done<Given>) {
        let kind = hold_key.resource.kind;
        self.released(hold_key, from.saturating_sub(1));
        let call = commands::give(hold_key, from, length);
        self.send(&hold_key.resource, call, done, move |reply| commands::given(reply, kind));
    }

    fn lower(&self, hold_key: &HoldKey, to: u32, done: impl Done<Given>) {
        self.released(hold_key, to);
        let (kind, of) =
            (hold_key.resource.kind, (hold_key.resource.kind == Kind::Fair).then(|| hold_key.clone()));
        let parts = Arc::clone(&self.parts);
        self.send(&hold_key.resource, commands::lower(hold_key, to), done, move |reply| {
            if let Some(hold_key) = of {
                // It has left the queue. The reply to its last attempt may have been read after its waiter had left.
                parts.heartbeat.remove(&hold_key);
            }
            commands::given(reply, kind)
        });
    }

    fn lower_first(&self, hold_key: &HoldKey, to: u32, done: impl Done<Given>) -> bool {
        self.released(hold_key, to);
        let kind = hold_key.resource.kind;
        let on_reply = decoded(done, move |reply| commands::given(reply, kind));
        self.parts.topology.node(&hold_key.resource).send_source(commands::lower(hold_key, to), on_reply)
    }

    fn abandon(&self, hold_key: &HoldKey, rest: Duration, done: impl Done<bool>) {
        self.registration.leaves_hold();
        let call = commands::abandon(hold_key, rest);
        self.send(&hold_key.resource, call, done, |reply| Ok(commands::number(reply)? == 1));
    }

    fn renew(&self, kind: Kind, holds: &[(&HoldKey, Duration)], done: impl Done<Vec<Verdict>>) {
        if let Some((HoldKey { resource, .. }, _)) = holds.first() {
            self.send(resource, commands::renew(kind, holds), done, commands::verdicts);
        }
    }

    fn doubt(&self, _shard: Shard, silence: Duration) {
        self.parts.topology.any().doubt(silence);
    }

    fn force(&self, resource: &Resource, done: impl Done<Forced>) {
        self.send(resource, commands::force(resource), done, commands::forced);
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        match *query {
            Query::Holder(resource, owner) => {
                let foreign = resource.kind == Kind::SetNx;
                let decode = move |reply: Value| commands::decode_holder(&reply, foreign);
                self.send(resource, commands::query(resource, owner), done, decode);
            }
            Query::Token(resource) => self.send(resource, commands::token(resource), done, |reply| {
                Ok(QueryResult { token: commands::last_token(reply)?, ..QueryResult::default() })
            }),
            Query::Queue(resource) => self.send(resource, commands::queue(resource), done, |reply| {
                Ok(QueryResult { queue: commands::owners(&reply)?, ..QueryResult::default() })
            }),
            Query::Waiters(resource) => {
                self.send_if_allowed(resource, commands::subscribers_of(resource), done, |reply| {
                    QueryResult { waiters: commands::subscribed(&reply), ..QueryResult::default() }
                });
            }
            Query::Client(resource, client) => {
                self.send_if_allowed(resource, commands::client(client), done, |reply| QueryResult {
                    client: commands::client_info(&reply).map(Box::new),
                    ..QueryResult::default()
                });
            }
            Query::Uptime => {
                let decode = |reply: Value| {
                    Ok(QueryResult { uptime: Some(commands::seconds_up(&reply)?), ..QueryResult::default() })
                };
                self.parts.topology.any().send(commands::uptime(), decoded(done, decode));
            }
        }
    }

    fn list(&self, step: &ListStep, done: impl Done<Listed>) {
        match step {
            ListStep::Page(pattern, cursor) => {
                let (call, pattern, cursor) =
                    (commands::scan(pattern, cursor), Arc::clone(pattern), cursor.clone());
                let decode = move |reply: Value| commands::scanned(&reply, &pattern, &cursor);
                self.parts.topology.any().send(call, decoded(done, decode));
            }
            ListStep::Key(name, Shape::Hash) => listing::hash(&self.parts, name.clone(), false, done),
            ListStep::Key(name, Shape::String) => listing::string(&self.parts, name.clone(), false, done),
            ListStep::Name(name) => listing::hash(&self.parts, name.clone(), true, done),
        }
    }

    fn change(&self, resource: &Resource, change: &Change, done: impl Done<i64>) {
        self.send(resource, commands::change(resource, change), done, commands::number);
    }

    fn forget_change(&self, resource: &Resource, change: &Change, done: impl Done<()>) {
        self.send(resource, commands::forget_change(resource, change), done, |_| Ok(()));
    }

    fn write_fenced(&self, key: &Name, token: u64, value: &[u8], done: impl Done<Option<u64>>) {
        let call = commands::fenced_write(key, token, value);
        self.parts.topology.any().send(call, decoded(done, commands::write_refused));
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.subscriber.subscriptions.add(topic)
    }

    fn unwatch(&self, topic: &Topic) {
        self.subscriber.subscriptions.remove(topic);
    }

    fn left(&self, hold_key: &HoldKey) -> Option<Duration> {
        if hold_key.resource.kind == Kind::Write && self.parts.flagged().remove(hold_key) {
            // Without it the flag expires by itself, a little later.
            self.parts.topology.node(&hold_key.resource).post(commands::unflag(hold_key));
        }
        (hold_key.resource.kind == Kind::Fair && self.parts.heartbeat.remove(hold_key))
            .then_some(POSITION_TTL)
    }

    fn detach(&self, hold_key: &HoldKey, done: impl Done<()>) {
        self.registration.leaves_hold();
        if hold_key.resource.kind == Kind::Semaphore {
            self.send(&hold_key.resource, commands::forget_permits(hold_key), done, |_| Ok(()));
        }
    }

    fn ping(&self, done: impl Done<()>) {
        self.parts.topology.any().send(commands::ping(), decoded(done, |_| Ok(())));
    }

    fn probe(&self, probe: Probe, done: impl Done<Probed>) {
        let call = probe::call(&probe);
        self.parts.topology.any().send(call, decoded(done, move |reply| probe::reply(&probe, &reply)));
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let node = self.parts.topology.any();
        let messages = async {
            // Before that there is no message, and a refusal would be logged twice.
            node.connected().await;
            self.subscriber.run().await;
        };
        tokio::select! {
            biased;
            () = self.subscriber.settings.keep_locating() => {}
            () = node.run(opened) => {}
            () = messages => {}
            () = self.parts.heartbeat.run(&self.parts) => {}
            () = self.registration.keep(node) => {}
        }
    }

    fn close(&self) {
        let node = self.parts.topology.any();
        self.registration.end(node);
        node.close();
    }
}

/// A request, and how it is completed when its reply is read.
struct Completed<T, D, F> {
    done: D,
    complete: F,
    means: PhantomData<fn() -> T>,
}

impl<T, D, F> OnReply for Completed<T, D, F>
where
    D: Done<T>,
    F: FnOnce(D, Reply) + Send,
{
    fn is_awaited(&self) -> bool {
        self.done.is_awaited()
    }

    fn is_wanted(&self) -> bool {
        self.done.is_wanted()
    }

    fn late(&mut self) -> Option<LateNotice> {
        self.done.late()
    }

    fn replied(self: Box<Self>, reply: Reply) {
        (self.complete)(self.done, reply);
    }
}

fn completed<T: 'static, D: Done<T>>(
    done: D,
    complete: impl FnOnce(D, Reply) + Send + 'static,
) -> Box<dyn OnReply> {
    Box::new(Completed { done, complete, means: PhantomData })
}

/// Completes a request with the reply as decoded by `decode`.
fn decoded<T: 'static>(
    done: impl Done<T>,
    decode: impl FnOnce(Value) -> Result<T, ServerError> + Send + 'static,
) -> Box<dyn OnReply> {
    completed(done, |done, reply: Reply| {
        done.done(reply.and_then(|reply| decode(reply).map_err(StoreError::Refused)));
    })
}

/// A request for a lock, and the state that it leaves on the server if it is not granted.
struct Taking {
    hold_key: HoldKey,
    fenced: bool,
    /// How the owner is queued at a fair lock.
    queue: Option<Queueing>,
    /// Whether a waiting-writer flag is set.
    flags: bool,
    /// `SET … NX` does not return the holder when it is refused: only then a second request queries it.
    queries_holder: bool,
    parts: Arc<Parts>,
}

impl Taking {
    fn new(parts: &Arc<Parts>, take: &Take<'_>) -> Self {
        let kind = take.hold_key.resource.kind;
        let flags = kind == Kind::Write && commands::flags_writer(take);
        if flags {
            parts.flagged().insert(take.hold_key.clone());
        }
        let (hold_key, fenced, queue, parts) =
            (take.hold_key.clone(), take.fenced, take.queue, Arc::clone(parts));
        Self { hold_key, fenced, queue, flags, queries_holder: kind == Kind::SetNx, parts }
    }

    /// Notes the state that the request has left on the server.
    fn note(&self, taken: &mut Taken) {
        if let (Taken::Granted(_), Some(recent)) = (&*taken, &self.parts.recent) {
            recent.granted(&self.hold_key);
        }
        match taken {
            Taken::Granted(_) if self.hold_key.resource.kind == Kind::Fair => {
                self.parts.heartbeat.remove(&self.hold_key);
            }
            // The script removed the flag.
            Taken::Granted(_) if self.flags => drop(self.parts.flagged().remove(&self.hold_key)),
            Taken::Busy(busy) => {
                if let (Some(position), Some(queue)) = (busy.position, self.queue) {
                    self.parts.heartbeat.add(&self.hold_key, queue, position);
                }
                if self.flags {
                    busy.keep_blocking_readers();
                }
            }
            Taken::Granted(_) | Taken::Bound(..) | Taken::CountDiffers | Taken::WouldDeadlock => {}
        }
    }

    /// Completes the request with the outcome in its reply.
    fn completing(self, done: impl Done<Taken>) -> Box<dyn OnReply> {
        completed(done, |done, reply| self.replied(done, reply))
    }

    fn replied(mut self, done: impl Done<Taken>, reply: Reply) {
        if let (true, Ok(Value::Nil)) = (self.queries_holder && done.is_awaited(), &reply) {
            self.queries_holder = false;
            let (parts, resource) = (Arc::clone(&self.parts), self.hold_key.resource.clone());
            let call = commands::query(&resource, None);
            return parts.topology.node(&resource).send(call, self.completing(done));
        }
        let taken = reply.and_then(|reply| {
            let mut taken =
                commands::taken(&reply, &self.hold_key, self.fenced).map_err(StoreError::Refused)?;
            self.note(&mut taken);
            Ok(taken)
        });
        done.done(taken);
    }
}

#[cfg(test)]
mod tests {
    use leasehold_servers::server::{Flavour, Server};
    use tokio::sync::oneshot;

    use super::*;
    use crate::client_id::ClientId;
    use crate::owner::OwnerId;

    /// Records are renewed a few times a day: too seldom for a test that waits for it.
    #[tokio::test]
    async fn an_overwritten_permit_record_does_not_affect_other_records_of_the_batch() {
        const SHORT: Duration = Duration::from_secs(30);
        const LONG: Duration = Duration::from_secs(60);
        for flavour in Flavour::ALL {
            let server = Server::start(flavour);
            let options = Options {
                connect_timeout: SHORT,
                response_timeout: SHORT,
                linger: SHORT,
                ..Options::default()
            };
            let redis = Redis::open(Address::parse(&server.url()).unwrap(), options).await.unwrap();
            let client = ClientId::random();
            let hold_keys = ["kept", "overwritten", "deleted", "ends soon", "kept, too"].map(|name| {
                let resource = Resource::new(Kind::Semaphore, Name::new("", name).unwrap());
                server.cli(&["SET", name, "3"]);
                let owner = OwnerId::fresh(client, 1);
                server.cli(&["HSET", &keys::record(&resource), &owner.to_string(), "1"]);
                HoldKey { resource, owner, amount: 1 }
            });
            let [kept, overwritten, deleted, ends_soon, _] = &hold_keys;
            server.cli(&["SET", &keys::record(&overwritten.resource), "something else"]);
            server.cli(&["DEL", deleted.resource.name.as_str()]);
            server.cli(&["PEXPIRE", ends_soon.resource.name.as_str(), "20000"]);

            let (sender, verdicts) = oneshot::channel();
            let holds: Vec<_> = hold_keys.iter().map(|hold_key| (hold_key, LONG)).collect();
            let done = move |outcome: Result<Vec<Verdict>, StoreError>| drop(sender.send(outcome));
            redis.store().renew(Kind::Semaphore, &holds, done);
            let verdicts = verdicts.await.unwrap().unwrap();
            let [held, gone] = [Verdict::Held, Verdict::Gone];
            assert_eq!(verdicts, [held, gone, gone, held, held], "{flavour:?}");
            let left = |hold_key: &HoldKey| match server.cli(&["PTTL", &keys::record(&hold_key.resource)]) {
                leasehold_servers::resp::Value::Int(left) => left,
                other => panic!("{other:?}"),
            };
            assert!((50_000..=60_000).contains(&left(kept)));
            assert!((10_000..=20_000).contains(&left(ends_soon)), "no longer than its semaphore");
        }
    }
}
