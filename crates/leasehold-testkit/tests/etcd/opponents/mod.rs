//! Beside the locks that other programs have on etcd: those of `etcdctl`, and of Go's packages `concurrency` and `recipes`.
//!
//! `LEASEHOLD_TURNS` is the number of turns of each side.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod killed;
mod pair;
mod record;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Lock;
use leasehold_testkit::golang;
use leasehold_testkit::peer::Pending;
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::pair::Pair;
use crate::client;

/// How many of ours take turns at once, and how many loops of `etcdctl`.
const OURS: u32 = 4;
/// A Go waiter is told of a release at the next beat of the server, of 100 ms: so there are many.
const GO: u32 = 10;

/// How many turns each side takes: its workers have equal shares.
fn turns() -> u32 {
    let turns: u32 =
        env::var("LEASEHOLD_TURNS").map_or(200, |text| text.parse().expect("LEASEHOLD_TURNS is a number"));
    turns.next_multiple_of(OURS * GO)
}

/// Long enough for a slow machine.
fn limit() -> Duration {
    Duration::from_secs(60) + Duration::from_millis(300) * turns()
}

/// The turns of all sides around one pair of numbers.
struct Turns {
    server: Arc<Etcd>,
    pair: Arc<Pair>,
    tasks: JoinSet<()>,
}

impl Turns {
    fn begin() -> Self {
        let server = Arc::new(Etcd::start());
        let pair = Arc::new(Pair::new(server.port()));
        Self { server, pair, tasks: JoinSet::new() }
    }

    /// Writers or readers of ours, each with its share of the turns.
    fn ours(&mut self, lock: &Lock, workers: u32, is_reader: bool) {
        for _ in 0..workers {
            let (lock, pair) = (lock.clone(), Arc::clone(&self.pair));
            self.tasks.spawn(async move {
                for _ in 0..turns() / OURS {
                    let guard = lock.acquire().wait(limit()).fenced().await.unwrap();
                    if is_reader {
                        pair.look().await;
                    } else {
                        pair.raise("leasehold", guard.token()).await;
                    }
                    guard.release().await.unwrap();
                }
            });
        }
    }

    fn etcdctl(&mut self) {
        for _ in 0..OURS {
            let (server, raise) = (Arc::clone(&self.server), self.pair.raise_in_a_shell("etcdctl"));
            self.tasks.spawn(async move {
                let turn = || {
                    for _ in 0..turns() / OURS {
                        let _ = server.ctl(&["lock", "n", "--", "sh", "-c", &raise]);
                    }
                };
                tokio::task::block_in_place(turn);
            });
        }
    }

    fn go(&mut self, pending: Pending) {
        self.tasks.spawn(async move { drop(pending.within(limit()).ok().await) });
    }

    /// Waits for all, and checks the numbers: each of these has taken its turns.
    async fn end(mut self, writers: &[&str], have_tokens: bool) {
        let ended = timeout(limit(), async {
            while let Some(done) = self.tasks.join_next().await {
                done.unwrap();
            }
        });
        ended.await.expect("no contender waits for ever");
        self.pair.check(writers, turns() as usize, have_tokens);
        assert_eq!(self.server.keys("n/"), [""; 0]);
    }
}

/// The words of a loop of Go's locks of this kind.
fn go_loop(kind: &str, pair: &Pair) -> String {
    format!("loop {kind} n {} {GO} {}", pair.path(), turns() / GO)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn own_505_no_increment_is_lost_beside_loops_of_etcdctl_lock() {
    let mut turns = Turns::begin();
    turns.etcdctl();
    plain_and_fair(&mut turns).await;
    turns.end(&["etcdctl", "leasehold"], true).await;
}

#[tokio::test]
async fn own_640_no_increment_is_lost_beside_the_mutex_of_go() {
    let mut turns = Turns::begin();
    let go = golang::start("go", &turns.server);
    turns.go(go.tell("mutex", &go_loop("plain", &turns.pair)));
    plain_and_fair(&mut turns).await;
    turns.end(&["go", "leasehold"], true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn own_641_tokens_rise_over_all_holds_of_etcdctl_and_go_and_this_library() {
    let mut turns = Turns::begin();
    let go = golang::start("go", &turns.server);
    turns.go(go.tell("mutex", &go_loop("plain", &turns.pair)));
    turns.etcdctl();
    plain_and_fair(&mut turns).await;
    turns.end(&["etcdctl", "go", "leasehold"], true).await;
}

#[tokio::test]
async fn own_642_no_reader_finds_a_torn_pair_and_no_increment_is_lost_beside_the_read_write_mutex_of_go() {
    let mut turns = Turns::begin();
    let go = golang::start("go", &turns.server);
    turns.go(go.tell("read", &go_loop("read", &turns.pair)));
    turns.go(go.tell("write", &go_loop("write", &turns.pair)));
    // Two owners of each of two clients.
    for _ in 0..2 {
        let lock = client(&turns.server).await.rw_lock("n");
        turns.ours(&lock.read().into(), OURS / 2, true);
        turns.ours(&lock.write().into(), OURS / 2, false);
    }
    turns.end(&["go", "leasehold"], false).await;
}

/// Two owners of one client, and two of another that have keys of their own in the queue.
async fn plain_and_fair(turns: &mut Turns) {
    let plain = client(&turns.server).await.lock("n");
    turns.ours(&plain, OURS / 2, false);
    let fair = client(&turns.server).await.fair_lock("n");
    turns.ours(&fair.into(), OURS / 2, false);
}
