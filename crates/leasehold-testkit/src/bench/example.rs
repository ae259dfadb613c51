//! The example of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Backend, LIST, MIN_HOLD, ONE_STEP, REMOVAL, Reply, VIEW};

/// A table of its own.
#[derive(Debug)]
pub struct Example {
    url: String,
}

impl Example {
    /// A new table, dropped with its last client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another table")]
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self { url: format!("example:{}", NUMBER.fetch_add(1, Ordering::Relaxed)) }
    }
}

impl Backend for Example {
    fn url(&self) -> &str {
        &self.url
    }

    fn remove<'a>(&'a self, _name: &'a str) -> Reply<'a, ()> {
        unreachable!("it lacks removal")
    }

    fn lacks(&self) -> &'static [&'static str] {
        &[
            "fair lock",
            "SET NX lock",
            "read-write lock",
            "group lock",
            "semaphore",
            "leased semaphore",
            "latch",
            "fencing token",
            "takeover (`steal`)",
            "`force_unlock`",
            LIST,
            MIN_HOLD,
            REMOVAL,
            VIEW,
            ONE_STEP,
        ]
    }
}
