//! The Redis engine behind sentinels: it follows the primary, and never uses another server.
//!
//! Every test has a primary, two replicas and three sentinels of its own, and tests take turns.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

/// Runs every case on both servers.
macro_rules! on_both {
    ($($case:ident)+) => {
        mod redis {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(super::Flavour::Redis).await;
            })+
        }
        mod valkey {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(super::Flavour::Valkey).await;
            })+
        }
    };
}

mod crash;
mod crowd;
mod epochs;
mod errors;
mod lazy;
mod load;
mod planned;

use std::future::Future;
use std::time::Duration;

use leasehold_testkit::server::Server;
use leasehold_testkit::watched::Watched;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// How long any step may take that has no duration of its own.
const LONG: Duration = Duration::from_secs(30);

/// The turn of a test: each has six servers, and its bounds are disturbed by others.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

/// Polls until it has happened.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for a result, but not for ever.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}

/// How many connections of Leasehold a server has.
fn connections(server: &Server) -> usize {
    // A server that is made a replica just now cuts the connection.
    let list = server.try_cli(&["CLIENT", "LIST"]).unwrap_or_else(|_| server.cli(&["CLIENT", "LIST"]));
    // Redis 7.0 does not list the library; the clients of these tests have a label.
    list.as_str().unwrap_or_default().lines().filter(|line| line.contains(&format!("name={LABEL}"))).count()
}

/// The label of the clients whose connections are counted.
const LABEL: &str = "counted";

/// Waits until the replicas have all data of the primary.
async fn in_step(watched: &Watched) {
    let offset = |server: &Server, field: &str| {
        let info = server.cli(&["INFO", "replication"]);
        let text = info.as_str().unwrap_or_default().to_owned();
        text.lines().find_map(|line| line.strip_prefix(field).map(str::to_owned))
    };
    let primary = watched.primary();
    until("the replicas have everything", || {
        let wanted = offset(&watched.servers[primary], "master_repl_offset:");
        let mut replicas = watched.servers.iter().enumerate().filter(|(index, _)| *index != primary);
        replicas.all(|(_, replica)| offset(replica, "slave_repl_offset:") == wanted)
    })
    .await;
}
