//! The engine on etcd: its keys, the programs that it shares locks with, and the faults that it survives.
//!
//! Every test has a server of its own, so it may stop and inspect it.
//!
//! Some tests run a part of themselves in a process of its own, which is this binary once more. Such parts are tests; run
//! without their parent, they do nothing.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod beside;
mod counters;
mod deadlines;
mod diagnosis;
mod disk;
mod faults;
mod group;
mod leases;
mod listing;
mod opponents;
mod permits;
mod places;
mod queue;
mod record;
mod removal;
mod takeover;
mod tls;
mod together;
mod users;
mod wire;

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, sleep};

/// After this time an event counts as never.
const PATIENCE: Duration = Duration::from_secs(20);

async fn client(server: &Etcd) -> Client {
    Client::connect(server.url()).await.expect("the server takes clients")
}

/// Waits until a condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// How often the server has done this.
fn calls(server: &Etcd, method: &str) -> u64 {
    let labels = format!("grpc_method=\"{method}\"");
    let metrics = server.metrics();
    let is_it = |line: &&str| line.starts_with("grpc_server_handled_total") && line.contains(&labels);
    metrics.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
