//! The engine on named locks of MySQL and MariaDB: its names, the sessions that it shares locks with, its lanes, and the faults that
//! it survives.
//!
//! Every test has a server of its own, so it may stop and inspect it.

mod beside;
mod faults;
mod lanes;
mod server;

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::server::Mysql;
use tokio::time::{Instant, sleep};

/// After this time an event counts as never.
const PATIENCE: Duration = Duration::from_secs(20);

async fn client(server: &Mysql) -> Client {
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

/// Waits until so many connections wait for locks.
async fn until_waiting(server: &Mysql, count: usize) {
    until("connections wait", || waiting(server).len() == count).await;
}

/// The ids of the connections that wait for locks.
fn waiting(server: &Mysql) -> Vec<u32> {
    let rows = server.sql(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app' AND INFO LIKE 'SELECT GET\\_LOCK%31536000%'",
    );
    rows.iter().map(|row| row.parse().expect("an id is a number")).collect()
}

/// Which connection holds a name.
fn holder(server: &Mysql, name: &str) -> Option<u32> {
    server.locks().into_iter().find(|(held, _)| held == name).map(|(_, id)| id)
}
