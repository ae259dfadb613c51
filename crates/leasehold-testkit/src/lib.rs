//! What Leasehold's tests share: the conformance suite that every engine must pass.
//!
//! A behaviour is written once, in [`mod@conformance`], and runs on every engine that says so in one line:
//!
//! ```
//! leasehold_testkit::conformance! { memory, paused, leasehold_testkit::bench::Memory::new() }
//! ```
//!
//! What an engine has to offer for that is a [`bench::Backend`].

pub mod bench;
pub mod conformance;
pub mod dice;
pub mod jvm;
pub mod peer;
pub mod primitive;
pub mod proxy;
pub mod search;
pub mod tally;

use leasehold_servers::port;
pub use leasehold_servers::{resp, server};
