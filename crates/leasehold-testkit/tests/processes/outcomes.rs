//! When every reply is lost once, all outcomes are unknown, and still every count is right in the end.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, Lock, Operation, Owner, ReleaseError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Dice, number};

/// So long that no orphaned hold expires before the check.
const LEASE: Duration = Duration::from_secs(120);
/// How long the rollback of operations with an unknown outcome may take.
const SETTLED: Duration = Duration::from_secs(15);
const RUNS: u64 = 24;
const NAMES: usize = 2;
/// How often a caller tries before it gives up.
const TRIES: u32 = 8;

/// Two clients with owners of their own, some names, and the expected holds.
struct Run {
    seed: u64,
    dice: Dice,
    clients: [Client; 2],
    /// A connection to the server itself, without a proxy.
    server: Connection,
    held: [Vec<Guard>; NAMES],
    done: Done,
    /// The steps of this sequence so far.
    story: Vec<String>,
}

/// How often each outcome occurred.
#[derive(Debug, Default)]
struct Done {
    sequences: u64,
    entered: u64,
    given_back: u64,
    unknown: u64,
    cut: u64,
}

impl Run {
    async fn new(seed: u64, server: &Server, proxy: &Proxy) -> Self {
        let namespace = format!("run {seed}:");
        let client = || async {
            Client::connect(proxy.url())
                .namespace(&namespace)
                .watchdog(LEASE)
                .response_timeout(Duration::from_millis(500))
                .anonymous()
                .await
                .expect("setting up a connection loses nothing")
        };
        Self {
            seed,
            dice: Dice::new(seed),
            clients: [client().await, client().await],
            server: server.connect(),
            held: [const { Vec::new() }; NAMES],
            done: Done::default(),
            story: Vec::new(),
        }
    }

    /// Some steps by new owners, so that their requests are new to the proxy.
    async fn sequence(&mut self) {
        self.story.clear();
        let owners =
            [(); 3].map(|()| Owner::number(u32::try_from(self.dice.roll(1 << 32)).expect("32 bits")));
        for _ in 0..6 + self.dice.roll(8) {
            let name = self.dice.index(NAMES);
            match self.dice.roll(10) {
                0..4 => self.acquire(name, &owners).await,
                4..6 => self.reenter(name).await,
                6..8 => self.release(name).await,
                _ => self.drop_one(name),
            }
            self.settled().await;
        }
        self.held.iter_mut().for_each(Vec::clear);
        self.story.push("drop everything".into());
        self.settled().await;
        self.done.sequences += 1;
    }

    /// The pause of a caller between two tries: sometimes shorter than the reconnection, sometimes longer.
    async fn breathe(&mut self) {
        sleep(self.dice.between(Duration::ZERO, Duration::from_millis(70))).await;
    }

    /// Sometimes waits for an operation only as long as it takes to send it, or not even that.
    async fn perhaps_cut<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        if self.dice.roll(6) > 0 {
            return Some(work.await);
        }
        let limit = self.dice.between(Duration::ZERO, Duration::from_millis(3));
        let ended = timeout(limit, work).await.ok();
        if ended.is_none() {
            self.done.cut += 1;
            self.story.push(format!("cut after {limit:?}"));
        }
        ended
    }

    /// In every other run a name stands for two values of a group.
    fn lock(&self, client: usize, name: usize) -> Lock {
        let (client, name) = (&self.clients[client], name.to_string());
        if self.has_groups() { client.group_lock(name, ["a", "b"]) } else { client.lock(name) }
    }

    fn has_groups(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    async fn acquire(&mut self, name: usize, owners: &[Owner]) {
        let client = self.dice.index(2);
        let owner = self.dice.index(owners.len() + 1);
        let mut acquire = self.lock(client, name).acquire();
        acquire = acquire.wait(Duration::from_millis(self.dice.roll(60)));
        if self.dice.roll(2) == 0 {
            acquire = acquire.lease(LEASE);
        }
        if let Some(owner) = owners.get(owner) {
            acquire = acquire.as_owner(owner);
        }
        self.story.push(format!("{name}: acquire by client {client}, owner {:?}", owners.get(owner)));
        for _ in 0..TRIES {
            match self.perhaps_cut(acquire.clone().into_future()).await {
                Some(Ok(guard)) => {
                    self.story.push(format!("{name}: entered as {}", guard.owner()));
                    let stranger = self.held[name].iter().any(|held| held.owner() != guard.owner());
                    assert!(!stranger, "two owners hold one name: {}", self.told());
                    self.held[name].push(guard);
                    self.done.entered += 1;
                    return;
                }
                Some(Err(error)) => {
                    self.story.push(format!("{name}: {error}"));
                    self.done.unknown += u64::from(error.is_unavailable());
                    assert!(error.is_transient(), "{error}: {}", self.told());
                    if error.is_contended() {
                        return;
                    }
                }
                None => return,
            }
            self.breathe().await;
        }
    }

    async fn reenter(&mut self, name: usize) {
        if self.held[name].is_empty() {
            return;
        }
        let guard = self.dice.index(self.held[name].len());
        for _ in 0..TRIES {
            self.story.push(format!("{name}: reenter"));
            let reenter = self.held[name][guard].reenter();
            match self.perhaps_cut(reenter).await {
                Some(Ok(inner)) => {
                    self.story.push(format!("{name}: reentered"));
                    self.held[name].push(inner);
                    self.done.entered += 1;
                    return;
                }
                Some(Err(AcquireError::Server { cause: failure, .. })) => {
                    self.story.push(format!("{name}: {failure}"));
                    self.done.unknown += 1;
                }
                Some(Err(error)) => panic!("{error}: {}", self.told()),
                None => return,
            }
            self.breathe().await;
        }
    }

    async fn release(&mut self, name: usize) {
        if self.held[name].is_empty() {
            return;
        }
        let guard = self.dice.index(self.held[name].len());
        let left = self.held[name].len() - 1;
        self.story.push(format!("{name}: release, {left} should be left"));
        let release: Operation<_> = self.held[name].swap_remove(guard).release();
        match self.perhaps_cut(release).await {
            Some(Ok(released)) => assert_eq!(released.holds_left as usize, left, "{}", self.told()),
            Some(Err(ReleaseError::Unknown { cause: failure, .. })) => {
                self.story.push(format!("{name}: {failure}"));
                self.done.unknown += 1;
            }
            Some(Err(error)) => panic!("{error}: {}", self.told()),
            None => {}
        }
        self.done.given_back += 1;
    }

    fn drop_one(&mut self, name: usize) {
        if self.held[name].is_empty() {
            return;
        }
        let guard = self.dice.index(self.held[name].len());
        drop(self.held[name].swap_remove(guard));
        self.done.given_back += 1;
        self.story.push(format!("{name}: drop, {} should be left", self.held[name].len()));
    }

    /// Waits until the server has the expected holds, and checks that all guards are still held.
    async fn settled(&mut self) {
        let should: BTreeMap<_, _> = self
            .held
            .iter()
            .enumerate()
            .filter_map(|(name, guards)| Some((name, (guards.first()?.owner().to_string(), guards.len()))))
            .collect();
        self.becomes(&should).await;
        // Now and then long enough for requests in flight to do harm: a cancelled request may be executed only now, and has
        // to be rolled back; an undo must not be repeated.
        if self.dice.roll(4) == 0 {
            sleep(Duration::from_millis(150)).await;
            self.becomes(&should).await;
        }
        assert!(self.held.iter().flatten().all(Guard::is_held), "a guard is lost: {}", self.told());
    }

    async fn becomes(&mut self, should: &BTreeMap<usize, (String, usize)>) {
        let begun = Instant::now();
        loop {
            let is = self.on_the_server();
            if is == *should {
                return;
            }
            assert!(begun.elapsed() < SETTLED, "on the server {is:?}, should be {should:?}: {}", self.told());
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn on_the_server(&mut self) -> BTreeMap<usize, (String, usize)> {
        let mut holds = BTreeMap::new();
        for name in 0..NAMES {
            let key = format!("run {}:{name}", self.seed);
            let hold = self.server.call(&["HGETALL", &key]).expect("the server replies");
            let text: Vec<_> = hold.elements().iter().filter_map(|text| text.as_str()).collect();
            let counts = text.chunks(2).filter_map(|field| {
                // For each value of a group there are a count, an end and the owner: FIELD:OWNER:lock_count is the first.
                let of_value = field[0].strip_suffix(":lock_count").and_then(|name| name.split_once(':'));
                let owner = if self.has_groups() { of_value?.1 } else { field[0] };
                Some((owner.to_owned(), field[1].parse().expect("a count")))
            });
            let mut counts: Vec<(String, usize)> = counts.collect();
            let fields = if self.has_groups() { 2 * 3 } else { 1 };
            if let Some(hold) = counts.pop() {
                let one = text.len() == 2 * fields && counts.iter().all(|other| *other == hold);
                assert!(one, "two owners or a part: {text:?}: {}", self.told());
                holds.insert(name, hold);
            }
        }
        holds
    }

    fn told(&self) -> String {
        format!("seed {}, sequence {}:\n  {}", self.seed, self.done.sequences, self.story.join("\n  "))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_count_is_right_in_the_end_when_every_reply_is_lost_once() {
    let sequences = number("LEASEHOLD_SEQUENCES", 192);
    let seed = number("LEASEHOLD_SEED", 1);
    println!("outcomes: seeds {seed} to {}, {sequences} sequences", seed + RUNS - 1);
    let begun = Instant::now();
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let mut runs = Vec::new();
    for seed in seed..seed + RUNS {
        runs.push(Run::new(seed, &server, &proxy).await);
    }
    proxy.lose_each_reply_once(Which::All);
    let tasks: Vec<_> = runs
        .into_iter()
        .map(|mut run| {
            tokio::spawn(async move {
                for _ in 0..sequences.div_ceil(RUNS) {
                    run.sequence().await;
                }
                run.done
            })
        })
        .collect();
    let mut all = Done::default();
    for task in tasks {
        let done = task.await.unwrap();
        all.sequences += done.sequences;
        all.entered += done.entered;
        all.given_back += done.given_back;
        all.unknown += done.unknown;
        all.cut += done.cut;
    }
    println!("outcomes: {all:?}, {} replies lost, in {:.1?}", proxy.counts().replies_lost, begun.elapsed());
    assert!(all.entered > sequences / 4 && all.unknown > sequences, "too little happened");
    assert_eq!(server.cli(&["DBSIZE"]), 0);
}

/// The reply to an undo is lost, so it is sent again; meanwhile its owner has acquired the lock again.
#[tokio::test]
async fn a_repeated_undo_does_not_undo_a_later_acquire() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).await.unwrap();
    let lock = client.lock("a");
    let me = Owner::number(1);
    // The server has the scripts, so that only the relevant replies are lost.
    drop(lock.acquire().await.unwrap());
    lock.acquire().await.unwrap().release().await.unwrap();

    proxy.lose_each_reply_once(Which::Command);
    let guard = until_ok(|| lock.acquire().as_owner(&me).into_future()).await;
    let inner = until_ok(|| guard.reenter()).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(server.cli(&["HVALS", "a"]).elements().first(), Some(&"2".into()), "entered twice");
    assert!(guard.is_held() && inner.is_held());
}

async fn until_ok<T, E, F: Future<Output = Result<T, E>>>(mut work: impl FnMut() -> F) -> T {
    loop {
        if let Ok(done) = work().await {
            return done;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// A server that was just started has no script; each is sent to it when it is needed for the first time.
#[tokio::test]
async fn an_undo_whose_script_the_server_lacks_is_not_executed_after_the_next_acquire() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("a");
    let me = Owner::number(1);
    // From here on the server has the scripts to acquire and to release, but not the one to undo.
    lock.acquire().await.unwrap().release().await.unwrap();

    let other = lock.acquire().await.unwrap();
    drop(sent(lock.acquire().as_owner(&me).into_future()).await);
    let release = sent(other.release()).await;
    let mine = lock.acquire().as_owner(&me).await.unwrap();
    release.await.unwrap();
    sleep(Duration::from_millis(200)).await;
    assert!(mine.is_held());
    assert_eq!(
        server.cli(&["HVALS", "a"]).elements().first(),
        Some(&"1".into()),
        "the guard reports that it is held"
    );
}

/// An operation that has been polled once, which sends it.
async fn sent<T>(mut operation: Operation<T>) -> Operation<T> {
    let pending = std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut operation).poll(context).is_pending())
    });
    assert!(pending.await);
    operation
}
