//! The integration tests of the library, in one binary.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod any_lock;
mod bad_input;
mod bounds;
mod conformance;
mod differences;
mod errors;
mod exclusion;
mod file;
mod must_use;
mod outage;
mod quorum;
mod readiness;
mod run;
mod runtimes;
mod sim;
mod token_retention;
mod wait_queue;
