//! A simulated lock service: a server inside the process, with latency and faults on demand, for tests without any server.
//!
//! Everything above the [`Store`](super::store::Store) is the code that runs on a real server: queues, renewal, undo, retry
//! and hand-over. The state of the locks is kept by the embedded engine, which is the reference for what they mean. Under
//! tokio's paused clock a simulation takes no time.

mod bound;
pub(crate) mod example;
mod faults;
mod link;
mod server;
mod sessions;
mod store;

pub(crate) use self::faults::SimFaults;
pub(crate) use self::server::{SimServer, shared};
#[cfg(test)]
pub(crate) use self::store::SimStore;
pub(crate) use self::store::{SCHEME, all_shards, shard_of};
