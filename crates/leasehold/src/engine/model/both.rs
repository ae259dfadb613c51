//! The two engines side by side, and how their time passes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_servers::resp::Connection;
use leasehold_servers::server::{Flavour, Server};
use tokio::runtime::{Builder, Runtime};

use super::op::CLIENTS;
use crate::client_id::ClientId;
use crate::engine::memory::Memory;
use crate::engine::redis::{Address, Redis};
use crate::engine::schemes::Options;
use crate::engine::{Attempt, Claim, Engine, Kind, Question, Reply, RwOptions, Spot, Target, Ticket};
use crate::env::{self, Instant};
use crate::lease::Lease;
use crate::name::Name;
use crate::owner::OwnerId;
use crate::term::Term;

/// Both engines. The memory engine lives by a clock that stands still, the one on Redis by the real one.
pub(super) struct Both {
    paused: Runtime,
    live: Runtime,
    memory: Arc<Memory>,
    redis: [Redis; CLIENTS],
    /// A place in a line for each client by which one sees that all messages up to a certain one have come.
    fences: [(Spot, Ticket); CLIENTS],
    connection: Connection,
    /// When the case began, and how much of the time since then the clock that stands still has been told.
    begun: Instant,
    told: Duration,
    // Goes last.
    _server: Server,
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Memory = 0,
    Redis = 1,
}

/// Something that an engine is asked.
pub(super) type Answer<T> = Pin<Box<dyn Future<Output = T>>>;

/// Lowers every time to live by `d` ms and moves every end so much nearer that is written as a moment.
///
/// Those who wait for a fair lock say every second that they live. So the two keys that say when they are presumed dead
/// stay as they are. Nobody here stands in a queue and is dead: inside a process nobody dies alone, so the memory engine
/// has no word for it. What a server does about silent waiters is left to the tests of the fair lock.
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

impl Both {
    pub(super) fn start() -> Self {
        let runtime = |paused| {
            Builder::new_current_thread().enable_all().start_paused(paused).build().expect("a runtime")
        };
        let (paused, live) = (runtime(true), runtime(false));
        let server = Server::start(Flavour::Redis);
        let address = Address::parse(&server.url()).expect("a good address");
        let redis: [Redis; CLIENTS] = std::array::from_fn(|_| {
            let options = Options {
                label: String::new(),
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(5),
                linger: Duration::from_secs(1),
            };
            live.block_on(Redis::open(address.clone(), options)).expect("the server is there")
        });
        let fences = std::array::from_fn(|client| {
            // All waiters for a latch are told at once, so none of them is late when it does nothing.
            let fence = spot(Target::new(Kind::Latch, name(&format!("fence {client}"))), 1);
            let ticket = redis[client].listen(&fence, false);
            live.block_on(redis[client].listening(&fence)).expect("the server lets us subscribe");
            (fence, ticket)
        });
        let begun = live.block_on(async { env::now() });
        let both = Self {
            connection: server.connect(),
            memory: Memory::new(),
            told: Duration::ZERO,
            paused,
            live,
            redis,
            fences,
            begun,
            _server: server,
        };
        both.teach();
        both
    }

    /// Lets the server learn the scripts that nobody waits for: what it does not know comes later than it should.
    fn teach(&self) {
        for kind in [Kind::SetNx, Kind::Write, Kind::Semaphore, Kind::Permits] {
            let spot = spot(Target::new(kind, name("taught")), 1);
            self.ask_redis(0, |redis| redis.release(&spot, 1, TAUGHT));
        }
        let group = spot(Target::group(name("taught"), ["a"]).expect("a good group"), 1);
        self.ask_redis(0, |redis| redis.release(&group, 1, TAUGHT));
        for kind in [Kind::Lock, Kind::Fair] {
            let spot = spot(Target::new(kind, name("taught")), 1);
            self.teach_attempt(&spot, None);
            self.redis[0].abandon(&spot, 0, TAUGHT.into());
            while self
                .ask_redis(0, |redis| redis.inspect(&Question::Holder(&spot.target, None)))
                .holding
                .is_some()
            {}
        }
        // A writer that waits, bars readers, and leaves.
        let target = |kind| Target::new(kind, name("taught two"));
        let (reader, writer, late) = (spot(target(Kind::Read), 1), spot(target(Kind::Write), 2), 3);
        self.teach_attempt(&reader, None);
        let ticket = self.redis[0].listen(&writer, false);
        self.teach_attempt(&writer, Some(ticket));
        self.redis[0].leave(&writer, ticket);
        let late = Spot { owner: OwnerId { number: late, ..reader.owner }, ..reader };
        while !matches!(self.teach_attempt(&late, None), Attempt::Granted(..)) {}
    }

    fn teach_attempt(&self, spot: &Spot, turn: Option<Ticket>) -> Attempt {
        let claim = Claim {
            spot,
            held: 0,
            lease: TAUGHT,
            limit: None,
            steal: false,
            fenced: false,
            queue: None,
            rw: RwOptions { upgrade: false, prefer_writers: true },
            term: &Term::new(std::sync::Weak::new()),
        };
        self.ask_redis(0, |redis| redis.attempt(&claim, turn))
    }

    /// Begins a case: nothing is held anywhere.
    pub(super) fn begin(&mut self) {
        for redis in &self.redis {
            redis.retire(self.fences[0].0.owner.client);
        }
        self.connection.call(&["FLUSHALL"]).expect("the server answers");
        self.memory = Memory::new();
        self.begun = self.live.block_on(async { env::now() });
        self.told = Duration::ZERO;
    }

    /// How long the case has taken.
    pub(super) fn elapsed(&self) -> Duration {
        let _entered = self.live.enter();
        env::now().saturating_duration_since(self.begun)
    }

    /// Lets the clock that stands still know how long the case has taken.
    pub(super) fn tick(&mut self) {
        let elapsed = self.elapsed();
        let more = elapsed.saturating_sub(self.told);
        self.told = elapsed;
        self.paused.block_on(tokio::time::advance(more));
    }

    pub(super) fn advance(&mut self, length: Duration) {
        self.tick();
        self.paused.block_on(tokio::time::advance(length));
        let ms = length.as_millis().to_string();
        let done = self.connection.call(&["EVAL", ADVANCE, "0", &ms]).expect("the server answers");
        assert!(!format!("{done:?}").contains("rror"), "{done:?}");
    }

    /// Asks both engines: first the memory engine, then the one of `client`.
    pub(super) fn ask<T: Unpin>(
        &self,
        client: usize,
        mut verb: impl FnMut(&dyn Engine) -> Reply<T>,
    ) -> [T; 2] {
        [self.ask_memory(&mut verb), self.ask_redis(client, verb)]
    }

    pub(super) fn ask_side<T: Unpin>(
        &self,
        side: Side,
        client: usize,
        verb: impl FnOnce(&dyn Engine) -> Reply<T>,
    ) -> T {
        match side {
            Side::Memory => self.ask_memory(verb),
            Side::Redis => self.ask_redis(client, verb),
        }
    }

    pub(super) fn ask_memory<T: Unpin>(&self, verb: impl FnOnce(&dyn Engine) -> Reply<T>) -> T {
        let answer = self.paused.block_on(async { verb(self.memory.as_ref()).await });
        answer.expect("the memory engine always answers")
    }

    pub(super) fn ask_redis<T: Unpin>(&self, client: usize, verb: impl FnOnce(&dyn Engine) -> Reply<T>) -> T {
        self.live.block_on(async { verb(&self.redis[client]).await }).expect("the server answers")
    }

    /// Asks both engines all of this, which makes one way to the server and back.
    pub(super) fn ask_all<T>(
        &self,
        client: usize,
        questions: impl Fn(&dyn Engine) -> Vec<Answer<T>>,
    ) -> [Vec<T>; 2] {
        let all = async |engine: &dyn Engine| {
            let mut answers = Vec::new();
            for answer in questions(engine) {
                answers.push(answer.await);
            }
            answers
        };
        [self.paused.block_on(all(self.memory.as_ref())), self.live.block_on(all(&self.redis[client]))]
    }

    /// Renews all of these on the server, where each client has some.
    pub(super) fn renew<'a>(&self, holds: impl IntoIterator<Item = (usize, &'a Spot)>, length: Duration) {
        self.live.block_on(async {
            let renewals: Vec<_> =
                holds.into_iter().map(|(client, spot)| self.redis[client].renew(spot, length)).collect();
            for renewal in renewals {
                renewal.await.expect("the server answers");
            }
        });
    }

    /// Tells both engines something that has no answer.
    pub(super) fn tell<T>(&self, client: usize, mut verb: impl FnMut(&dyn Engine, Side) -> T) -> [T; 2] {
        let memory = {
            let _entered = self.paused.enter();
            verb(self.memory.as_ref(), Side::Memory)
        };
        let _entered = self.live.enter();
        [memory, verb(&self.redis[client], Side::Redis)]
    }

    /// Which of both has hinted.
    pub(super) fn hinted(&self, client: usize, spot: &Spot, tickets: [Ticket; 2]) -> [bool; 2] {
        let mut context = Context::from_waker(Waker::noop());
        self.tell(client, |engine, side| {
            engine.poll_hint(spot, tickets[side as usize], &mut context).is_ready()
        })
    }

    /// Waits until all is done that `client` has sent.
    pub(super) fn finish(&self, client: usize) {
        self.ask_redis(client, |redis| redis.inspect(&Question::Token(&self.fences[client].0.target)));
    }

    /// Waits until these clients have got every message that was published.
    pub(super) fn settle(&mut self, clients: &[usize]) {
        for client in clients {
            let channel = format!("redisson_countdownlatch__channel__{{fence {client}}}");
            self.connection.send(&["PUBLISH", &channel, "0"]).expect("the server is there");
        }
        for client in clients {
            assert_eq!(self.connection.receive().expect("the server answers"), 1);
            let (fence, ticket) = &self.fences[*client];
            let come = poll_fn(|context| self.redis[*client].poll_hint(fence, *ticket, context));
            let limit = Duration::from_secs(5);
            self.live.block_on(async { tokio::time::timeout(limit, come).await }).expect("a message arrives");
        }
    }
}

/// The lease of what the server learns by.
const TAUGHT: Lease = Lease::Fixed(Duration::from_secs(30));

pub(super) fn name(name: &str) -> Name {
    Name::new("", name).expect("a good name")
}

fn spot(target: Target, number: u64) -> Spot {
    Spot { target, owner: OwnerId { client: ClientId::random(), number }, amount: 1 }
}

/// A term for each engine, which lives by its clock.
pub(super) fn terms() -> [Arc<Term>; 2] {
    std::array::from_fn(|_| Term::new(std::sync::Weak::new()))
}
