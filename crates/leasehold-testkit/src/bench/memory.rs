//! The engine inside the process.

use leasehold::test::Faults;

use super::{Backend, Reply};

/// A memory engine of its own.
#[derive(Debug)]
pub struct Memory {
    faults: Faults,
}

impl Memory {
    /// A new engine, gone with its last client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another engine")]
    pub fn new() -> Self {
        Self { faults: leasehold::test::memory().1 }
    }
}

impl Backend for Memory {
    fn url(&self) -> &str {
        self.faults.url()
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        Box::pin(async move {
            self.faults.lose_hold(name);
        })
    }

    fn left_behind<'a>(&'a self, _prefix: &'a str) -> Reply<'a, Option<usize>> {
        Box::pin(async { Some(self.faults.names()) })
    }
}
