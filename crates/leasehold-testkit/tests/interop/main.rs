//! Leasehold beside the real Redisson and its port to Node.js: processes of several languages on one server.
//!
//! `cargo xtask interop` builds the other sides and runs this. One of the tests is the Rust side, which runs in a process of
//! its own and is controlled by lines of input; run without its parent, it does nothing.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod counters;
mod driver;
mod exclusion;
mod fair;
mod fenced;
mod leases;
mod node;
#[path = "../redis/published.rs"]
mod published;
mod rw;
mod sentinel;
mod setup;
mod share;
mod state;
mod wake;
mod watchdog;
