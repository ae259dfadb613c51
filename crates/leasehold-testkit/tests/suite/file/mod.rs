//! The file engine in one process.

mod cancellation;
mod claims;
