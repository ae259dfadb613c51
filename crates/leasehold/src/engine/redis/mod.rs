//! Redis and Valkey: Redisson's keys, fields, channels and payloads.
//!
//! Two connections for each client, one for commands and one for messages. The state of a lock is a hash with one field, the
//! owner, whose value counts its entries; its time to live is the lease.

mod address;
mod commands;
mod keys;
mod net;
mod on_reply;
mod pubsub;
mod queue_heartbeat;
mod script;
mod topology;
mod waiting_writers;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

pub(crate) use self::address::Address;
use self::net::Settings;
use self::net::resp::Value;
use self::on_reply::{Taking, decoded};
use self::pubsub::{Subscriber, Subscriptions};
use self::queue_heartbeat::QueueHeartbeat;
use self::script::Call;
use self::topology::Topology;
use self::waiting_writers::WaitingWriters;
use super::remote::Remote;
use super::remote::store::{
    By, Done, Events, Forced, Given, LeaseOf, Shard, Store, Take, Taken, TakenAll, Topic, Traits, Verdict,
    Wake, Watch,
};
use super::schemes::{Options, Scheme};
use super::{Change, Engine, Facts, Kind, Profile, Question, Spot, Target};
use crate::error::Failure;
use crate::name::Name;

pub(crate) const SCHEME: Scheme = Scheme {
    names: &["redis", "valkey", "redis+unix", "valkey+unix"],
    usage: "`redis://[user:password@]host[:port][/db]` (Redis; `valkey://` is the same), \
            `redis+unix:///path[?db=…&user=…&pass=…]` (its socket on this machine)",
    profile: &PROFILE,
    open: |url, options| {
        let address = Address::parse(url)?;
        Ok(Box::pin(async { Ok(Arc::new(Redis::open(address, options).await?) as Arc<dyn Engine>) }))
    },
};

const PROFILE: Profile = Profile { engine: "redis", lacks: &[] };

/// The engine of a client on Redis or Valkey.
pub(crate) type Redis = Remote<RedisStore>;

impl Redis {
    pub(crate) async fn open(address: Address, options: Options) -> Result<Self, Failure> {
        let Options { label, connect_timeout, response_timeout, linger } = options;
        let callers = Handle::try_current().ok();
        let demotions = Arc::default();
        let settings = Settings { address, label, connect_timeout, response_timeout, callers, demotions };
        Self::connect(linger, |events| RedisStore::new(settings, events)).await
    }
}

/// How long a waiter for a fair lock stands in its queue without a heartbeat.
const PLACE: Duration = Duration::from_secs(3);

/// The locks of one client on Redis or Valkey.
pub(crate) struct RedisStore {
    parts: Arc<Parts>,
    subscriber: Subscriber,
}

/// What replies are noted in.
struct Parts {
    topology: Topology,
    heartbeat: QueueHeartbeat,
    waiting_writers: WaitingWriters,
    events: Weak<dyn Events>,
}

impl RedisStore {
    fn new(settings: Settings, events: Weak<dyn Events>) -> Self {
        let subscriptions = Arc::<Subscriptions>::default();
        let subscriber =
            Subscriber { settings: settings.clone(), subscriptions, events: Weak::clone(&events) };
        let parts = Parts {
            topology: Topology::single(settings, Weak::clone(&events)),
            heartbeat: QueueHeartbeat::default(),
            waiting_writers: WaitingWriters::default(),
            events,
        };
        Self { parts: Arc::new(parts), subscriber }
    }

    /// Sends a call about a target. Nothing is sent for what its kind does not have.
    fn send<T: 'static>(
        &self,
        target: &Target,
        call: Option<Call>,
        done: impl Done<T>,
        decode: impl FnOnce(Value) -> Result<T, Failure> + Send + 'static,
    ) {
        let lane = self.parts.topology.lane(target);
        match call {
            Some(call) => lane.send(call, decoded(done, decode)),
            None => lane.reject(decoded(done, decode)),
        }
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
    takes_all: true,
};

impl Store for RedisStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn wake(&self, kind: Kind) -> Wake {
        // Other libraries release such a lock without a message.
        if kind == Kind::SetNx { Wake::Poll } else { Wake::Message }
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let lane = self.parts.topology.lane(&take.spot.target);
        let taking = Taking::new(&self.parts, take).completing(done);
        match commands::take(take) {
            Some(call) => lane.send(call, taking),
            None => lane.reject(taking),
        }
    }

    fn take_all(&self, takes: &[Take<'_>], done: impl Done<TakenAll>) {
        let Take { spot: Spot { target, owner, .. }, fenced, .. } = &takes[0];
        let (owner, fenced, locks) = (*owner, *fenced, takes.len());
        let decode = move |reply: Value| commands::tokens(&reply, owner, locks, fenced);
        self.send(target, Some(commands::take_all(takes)), done, decode);
    }

    fn give(&self, spot: &Spot, from: u32, length: Duration, done: impl Done<Given>) {
        let kind = spot.target.kind;
        let call = commands::give(spot, from, length);
        self.send(&spot.target, call, done, move |reply| commands::given(reply, kind));
    }

    fn lower(&self, spot: &Spot, to: u32, done: impl Done<Given>) {
        let (kind, of) = (spot.target.kind, (spot.target.kind == Kind::Fair).then(|| spot.clone()));
        let parts = Arc::clone(&self.parts);
        self.send(&spot.target, commands::lower(spot, to), done, move |reply| {
            if let Some(spot) = of {
                // It has left the queue. The reply to its last try may have been read after its waiter had gone.
                parts.heartbeat.remove(&spot);
            }
            commands::given(reply, kind)
        });
    }

    fn lower_first(&self, spot: &Spot, to: u32, done: impl Done<Given>) -> bool {
        let kind = spot.target.kind;
        let on_reply = decoded(done, move |reply| commands::given(reply, kind));
        let lane = self.parts.topology.lane(&spot.target);
        commands::lower(spot, to).is_none_or(|call| lane.send_source(call, on_reply))
    }

    fn renew(&self, kind: Kind, holds: &[(&Spot, Duration)], done: impl Done<Vec<Verdict>>) {
        if let Some((Spot { target, .. }, _)) = holds.first() {
            self.send(target, commands::renew(kind, holds), done, commands::verdicts);
        }
    }

    fn doubt(&self, shard: Shard, silence: Duration) {
        self.parts.topology.lane_of(shard).doubt(silence);
    }

    fn force(&self, target: &Target, done: impl Done<Forced>) {
        self.send(target, commands::force(target), done, commands::forced);
    }

    fn inspect(&self, question: &Question<'_>, done: impl Done<Facts>) {
        match *question {
            Question::Holder(target, owner) => {
                let foreign = target.kind == Kind::SetNx;
                let decode = move |reply: Value| commands::facts_of_holder(&reply, foreign);
                self.send(target, commands::query(target, owner), done, decode);
            }
            Question::Token(target) => self.send(target, Some(commands::token(target)), done, |reply| {
                Ok(Facts { token: commands::last_token(reply)?, ..Facts::default() })
            }),
            Question::Queue(target) => self.send(target, Some(commands::queue(target)), done, |reply| {
                Ok(Facts { queue: commands::owners(&reply)?, ..Facts::default() })
            }),
            Question::Uptime => {
                let decode = |reply: Value| {
                    Ok(Facts { uptime: Some(commands::seconds_up(&reply)?), ..Facts::default() })
                };
                self.parts.topology.any().send(commands::uptime(), decoded(done, decode));
            }
        }
    }

    fn change(&self, target: &Target, change: &Change, done: impl Done<i64>) {
        self.send(target, commands::change(target, change), done, commands::number);
    }

    fn forget_change(&self, target: &Target, change: &Change, done: impl Done<()>) {
        self.send(target, Some(commands::forget_change(target, change)), done, |_| Ok(()));
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

    fn left(&self, spot: &Spot) -> Option<Duration> {
        if spot.target.kind == Kind::Write && self.parts.waiting_writers.take(spot) {
            // Without it the flag goes by itself, a little later.
            self.parts.topology.lane(&spot.target).post(commands::unflag(spot));
        }
        self.parts.heartbeat.remove(spot).then_some(PLACE)
    }

    fn detach(&self, spot: &Spot, done: impl Done<()>) {
        if spot.target.kind == Kind::Semaphore {
            self.send(&spot.target, Some(commands::forget_permits(spot)), done, |_| Ok(()));
        }
    }

    async fn open(&self) -> Result<(), Failure> {
        self.parts.topology.open().await
    }

    async fn run(&self) {
        tokio::select! {
            biased;
            () = self.parts.topology.run() => {}
            () = self.subscriber.run() => {}
            () = self.parts.heartbeat.run(&self.parts) => {}
        }
    }

    fn close(&self) {
        self.parts.topology.close();
    }
}

#[cfg(test)]
mod tests {
    use leasehold_servers::server::{Flavour, Server};
    use tokio::sync::oneshot;

    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::remote::store::StoreError;
    use crate::owner::OwnerId;

    /// Records are renewed a few times a day: too seldom for a test that waits for it.
    #[tokio::test]
    async fn a_record_of_permits_that_is_overwritten_is_no_matter_of_the_others() {
        const SHORT: Duration = Duration::from_secs(30);
        const LONG: Duration = Duration::from_secs(60);
        for flavour in Flavour::ALL {
            let server = Server::start(flavour);
            let options = Options {
                label: String::new(),
                connect_timeout: SHORT,
                response_timeout: SHORT,
                linger: SHORT,
            };
            let redis = Redis::open(Address::parse(&server.url()).unwrap(), options).await.unwrap();
            let client = ClientId::random();
            let spots = ["kept", "overwritten", "deleted", "ends soon", "kept, too"].map(|name| {
                let target = Target::new(Kind::Semaphore, Name::new("", name).unwrap());
                server.cli(&["SET", name, "3"]);
                let owner = OwnerId::fresh(client, 1);
                server.cli(&["HSET", &keys::record(&target), &owner.to_string(), "1"]);
                Spot { target, owner, amount: 1 }
            });
            let [kept, overwritten, deleted, ends_soon, _] = &spots;
            server.cli(&["SET", &keys::record(&overwritten.target), "something else"]);
            server.cli(&["DEL", deleted.target.name.as_str()]);
            server.cli(&["PEXPIRE", ends_soon.target.name.as_str(), "20000"]);

            let (told, verdicts) = oneshot::channel();
            let holds: Vec<_> = spots.iter().map(|spot| (spot, LONG)).collect();
            let done = move |outcome: Result<Vec<Verdict>, StoreError>| drop(told.send(outcome));
            redis.store().renew(Kind::Semaphore, &holds, done);
            let verdicts = verdicts.await.unwrap().unwrap();
            let [held, gone] = [Verdict::Held, Verdict::Gone];
            assert_eq!(verdicts, [held, gone, gone, held, held], "{flavour:?}");
            let left = |spot: &Spot| match server.cli(&["PTTL", &keys::record(&spot.target)]) {
                leasehold_servers::resp::Value::Int(left) => left,
                other => panic!("{other:?}"),
            };
            assert!((50_000..=60_000).contains(&left(kept)));
            assert!((10_000..=20_000).contains(&left(ends_soon)), "no longer than its semaphore");
        }
    }
}
