//! The common part of the drivers in Rust: the protocol between harness and driver, and the jobs.
//!
//! A driver is a small program for one contender. It is started with words of the form `key=value`, connects, warms up, and
//! prints `ready`. At the line `go` it does its job and prints one line of JSON, the [`Outcome`]. It runs until its input is
//! closed, so that the harness can still read its processor time and memory.
//!
//! The drivers in other languages use the same protocol.

mod args;
mod blocking;
mod contender;
mod driver;
mod histogram;
mod jobs;
mod outcome;
pub mod wire;
mod witness;

pub use args::{Args, Error};
pub use blocking::{BlockingContender, drive_blocking};
pub use contender::Contender;
pub use driver::{Conversation, drive};
pub use histogram::{Histogram, Recorder};
pub use outcome::Outcome;
pub use witness::{RECORD, Witness, unix_nanos};
