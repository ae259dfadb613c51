//! What Leasehold's tests share: the conformance suite that every engine must pass.
//!
//! A behaviour is written once, in [`mod@conformance`], and runs on every engine that opts in with one line:
//!
//! ```
//! leasehold_testkit::conformance! { memory, paused, leasehold_testkit::bench::Memory::new() }
//! ```
//!
//! An engine provides a [`bench::Backend`] for that.

pub mod bench;
pub mod conformance;
pub mod cut;
pub mod dice;
pub mod driver;
pub mod golang;
pub mod healthy;
pub mod jvm;
pub mod node;
pub mod peer;
pub mod primitive;
pub mod proxy;
pub mod search;
pub mod tally;
pub mod waits;

pub use leasehold_servers::{certificates, port, resp, server, watched};
