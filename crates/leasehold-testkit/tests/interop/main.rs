//! Leasehold beside the real Redisson: processes of both languages at one server.
//!
//! `cargo xtask interop` builds the Java side and runs this. A test that is told by lines what to do is the Rust side,
//! in a process of its own; run without its parent, it does nothing.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod counters;
mod driver;
mod exclusion;
mod fair;
mod fenced;
mod leases;
#[path = "../redis/published.rs"]
mod published;
mod rw;
mod share;
mod state;
mod wake;
mod watchdog;
mod world;
