//! The engine on Redis: a real server, in real time.

use std::future::poll_fn;
use std::time::Duration;

use leasehold_servers::resp::Connection;
use leasehold_servers::server::{Flavour, Server};
use tokio::runtime::{Builder, Runtime};

use super::engine_pair::{ServerEngine, name};
use super::op::CLIENTS;
use crate::client_id::ClientId;
use crate::engine::redis::{Address, Redis};
use crate::engine::schemes::Options;
use crate::engine::{Attempt, Claim, Engine, HoldKey, Kind, Query, Reply, Resource, RwOptions, Ticket};
use crate::env::{self, Instant};
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::term::Term;

/// How many steps there have to be.
const OPERATIONS: u64 = 100_000;

#[test]
fn both_engines_give_the_same_results() {
    super::compare(OPERATIONS, || Box::new(OnRedis::start()));
}

/// A server, and a client for each of the model. A script moves the expiry times on the server, while the clocks of the
/// clients continue by themselves.
struct OnRedis {
    live: Runtime,
    clients: [Redis; CLIENTS],
    /// A waiter for each client that shows that all messages up to a certain one have arrived.
    fences: [(HoldKey, Ticket); CLIENTS],
    connection: Connection,
    begun: Instant,
    // Dropped last.
    _server: Server,
}

/// Lowers every time to live by `d` ms and makes every end that is stored as a point in time earlier by as much.
///
/// Waiters for a fair lock send a heartbeat every second. So the two keys with the times when they are presumed dead stay as
/// they are. No queued waiter is dead here: inside a process no waiter dies alone, so the memory engine has no such case.
/// The tests of the fair lock cover how a server treats silent waiters.
const ADVANCE: &str = "
local d = tonumber(ARGV[1])
for _, key in ipairs(redis.call('keys', '*')) do
    local left = redis.call('pttl', key)
    if left >= 0 and left <= d then
        redis.call('del', key)
    elseif left >= 0 then
        redis.call('pexpire', key, left - d)
    end
    local kind = redis.call('type', key).ok
    if kind == 'zset' and string.sub(key, -8) == ':timeout' then
        local permits = redis.call('zrange', key, 0, -1, 'withscores')
        for i = 1, #permits, 2 do
            if tonumber(permits[i + 1]) < 922337203685477 then
                redis.call('zincrby', key, -d, permits[i])
            end
        end
    elseif kind == 'hash' then
        for _, field in ipairs(redis.call('hkeys', key)) do
            if string.sub(field, -12) == ':expire_time' then
                redis.call('hincrby', key, field, -d)
            end
        end
    end
end
";

impl OnRedis {
    fn start() -> Self {
        let live = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = Server::start(Flavour::Redis);
        let address = Address::parse(&server.url()).expect("a good address");
        let clients: [Redis; CLIENTS] = std::array::from_fn(|_| {
            let options = Options {
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(5),
                linger: Duration::from_secs(1),
                ..Options::default()
            };
            live.block_on(Redis::open(address.clone(), options)).expect("the server is there")
        });
        let fences = std::array::from_fn(|client| {
            // All waiters for a latch are woken at once, so none of them is late when it does nothing.
            let fence = key(Resource::new(Kind::Latch, name(&format!("fence {client}"))), 1);
            let ticket = clients[client].enqueue(&fence, false);
            live.block_on(clients[client].subscribed(&fence)).expect("the server lets us subscribe");
            (fence, ticket)
        });
        let begun = live.block_on(async { env::now() });
        let redis = Self { connection: server.connect(), live, clients, fences, begun, _server: server };
        redis.load_scripts();
        redis
    }

    /// Loads the scripts that no caller waits for into the server: an unknown script runs later than it should.
    fn load_scripts(&self) {
        for kind in [Kind::SetNx, Kind::Write, Kind::Semaphore, Kind::LeasedSemaphore] {
            let key = key(Resource::new(kind, name("taught")), 1);
            self.call(0, |redis| redis.release(&key, 1, LOADING_LEASE));
        }
        let group = key(Resource::group(name("taught"), ["a"]).expect("a good group"), 1);
        self.call(0, |redis| redis.release(&group, 1, LOADING_LEASE));
        for kind in [Kind::Lock, Kind::Fair] {
            let key = key(Resource::new(kind, name("taught")), 1);
            self.load_by_attempt(&key, None);
            self.clients[0].undo(&key, 0, LOADING_LEASE.into());
            while self.call(0, |redis| redis.inspect(&Query::Holder(&key.resource, None))).holding.is_some() {
            }
        }
        // A writer that waits, blocks readers, and leaves.
        let resource = |kind| Resource::new(kind, name("taught two"));
        let (reader, writer, late) = (key(resource(Kind::Read), 1), key(resource(Kind::Write), 2), 3);
        self.load_by_attempt(&reader, None);
        let ticket = self.clients[0].enqueue(&writer, false);
        self.load_by_attempt(&writer, Some(ticket));
        self.clients[0].leave(&writer, ticket);
        let late = HoldKey { owner: OwnerId { number: late, ..reader.owner }, ..reader };
        while !matches!(self.load_by_attempt(&late, None), Attempt::Granted(..)) {}
    }

    fn load_by_attempt(&self, key: &HoldKey, turn: Option<Ticket>) -> Attempt {
        let claim = Claim {
            key,
            held: 0,
            lease: LOADING_LEASE,
            limit: None,
            steal: false,
            fenced: false,
            queue: None,
            rw: RwOptions { upgrade: false, prefer_writers: true },
            fresh: false,
            term: &Term::new(std::sync::Weak::new()),
        };
        self.call(0, |redis| redis.attempt(&claim, turn))
    }

    fn call<T: Unpin>(&self, client: usize, operation: impl FnOnce(&dyn Engine) -> Reply<T>) -> T {
        self.live.block_on(async { operation(&self.clients[client]).await }).expect("the server replies")
    }
}

impl ServerEngine for OnRedis {
    fn name(&self) -> &'static str {
        "Redis"
    }

    fn runtime(&self) -> &Runtime {
        &self.live
    }

    fn engine(&self, client: usize) -> &dyn Engine {
        &self.clients[client]
    }

    fn begin(&mut self) {
        for redis in &self.clients {
            redis.retire(self.fences[0].0.owner.client);
        }
        self.connection.call(&["FLUSHALL"]).expect("the server replies");
        self.begun = self.live.block_on(async { env::now() });
    }

    fn elapsed(&self) -> Duration {
        let _entered = self.live.enter();
        env::now().saturating_duration_since(self.begun)
    }

    fn advance(&mut self, length: Duration) {
        let ms = length.as_millis().to_string();
        let done = self.connection.call(&["EVAL", ADVANCE, "0", &ms]).expect("the server replies");
        assert!(!format!("{done:?}").contains("rror"), "{done:?}");
    }

    fn finish(&self, client: usize) {
        self.call(client, |redis| redis.inspect(&Query::Token(&self.fences[client].0.resource)));
    }

    fn settle(&mut self, clients: &[usize]) {
        for client in clients {
            let channel = format!("redisson_countdownlatch__channel__{{fence {client}}}");
            self.connection.send(&["PUBLISH", &channel, "0"]).expect("the server is there");
        }
        for client in clients {
            assert_eq!(self.connection.receive().expect("the server replies"), 1);
            let (fence, ticket) = &self.fences[*client];
            let come = poll_fn(|context| self.clients[*client].poll_wake_up(fence, *ticket, context));
            let limit = Duration::from_secs(5);
            self.live.block_on(async { tokio::time::timeout(limit, come).await }).expect("a message arrives");
        }
    }
}

/// The lease of the holds that load the scripts.
const LOADING_LEASE: Lease = Lease::Fixed(Duration::from_secs(30));

fn key(resource: Resource, number: u64) -> HoldKey {
    HoldKey { resource, owner: OwnerId { client: ClientId::random(), number }, amount: 1 }
}
