//! A simulated lock service: a server inside the process, with latency and faults on demand, for tests without any server.
//!
//! Everything above the [`Store`](super::store::Store) is the code that runs on a real server: queues, renewal, undo, retry
//! and hand-over. The state of the locks is kept by the memory engine, which is the reference for what they mean. Under
//! tokio's paused clock a simulation takes no time.

mod bound;
mod embedded;
pub(crate) mod example;
mod faults;
mod link;
mod messages;
mod server;
mod sessions;
mod simulation;
mod store;
mod takeover;

pub use self::embedded::Embedded;
use self::faults::SimFaults;
pub(crate) use self::server::SimServer;
use self::server::shared;
pub use self::simulation::Simulation;
pub(crate) use self::store::SCHEME;
#[cfg(test)]
pub(crate) use self::store::SimStore;
pub use self::takeover::Takeover;
