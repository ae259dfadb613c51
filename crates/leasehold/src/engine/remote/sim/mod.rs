//! A simulated lock service: a server inside the process, with latency and faults on demand, for tests without any server.
//!
//! Everything above the [`Store`](super::store::Store) is the code that runs on a real server: queues, renewal, undo, retry
//! and hand-over. The state of the locks is kept by the embedded engine, which is the reference for what they mean. Under
//! tokio's paused clock a simulation takes no time.

mod faults;
mod link;
mod messages;
mod server;
mod store;

pub(crate) use self::faults::SimFaults;
pub(crate) use self::server::{SimServer, shared};
pub(crate) use self::store::{SimStore, all_shards, shard_of};
