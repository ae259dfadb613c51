//! The integration tests of the library, in one binary.

mod bad_input;
mod bounds;
mod cancellation;
mod conformance;
mod exclusion;
mod line;
mod outage;
mod runtimes;
