//! Real servers for tests, and a plain way to talk to them.
//!
//! It does not depend on Leasehold, so that the unit tests of the library can use it and still be built without features.

pub mod certificates;
pub mod port;
pub mod resp;
pub mod server;
pub mod watched;
