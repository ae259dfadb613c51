//! A simulated lock service: a server inside the process, with latency and faults on demand, for tests without any server.
//!
//! Everything above the [`Store`](super::store::Store) is the code that runs on a real server: queues, renewal, undo, retry
//! and hand-over. The state of the locks is kept by the embedded engine, which is the reference for what they mean. Under
//! tokio's paused clock a simulation takes no time.

mod embedded;
mod faults;
mod link;
mod server;
mod simulation;
mod store;
mod takeover;

use std::time::Duration;

pub use self::embedded::Embedded;
use self::faults::SimFaults;
use self::server::SimServer;
pub use self::simulation::Simulation;
pub(crate) use self::store::SimStore;
pub use self::takeover::Takeover;
use super::Remote;
use crate::error::Failure;

/// A client of the simulated server of this name.
pub(crate) async fn open(name: &str, linger: Duration) -> Result<Remote<SimStore>, Failure> {
    let server = server::shared(name);
    let remote = Remote::embed(linger, |events| SimStore::new(&server, events)).await?;
    remote.inner.store.show_waiters(&remote.inner.queues);
    Ok(remote)
}
