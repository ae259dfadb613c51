//! The file engine beside other processes, `flock(1)`, and people who remove its files.
//!
//! Some tests run a part of themselves in a process of its own, which is this binary once more. Such parts are tests; run
//! without their parent, they do nothing.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]
#![cfg(target_os = "linux")]

mod descriptors;
mod disk;
mod driver;
mod flock;
mod holder;
mod listing;
mod replaced;
mod shared_file;
mod stopped;
mod support;
mod turns;
mod waiters;
mod wake_up;
