//! The engine inside the process.

use leasehold::test::Embedded;

use super::{Backend, Reply};

/// A memory engine of its own.
#[derive(Debug)]
pub struct Memory {
    engine: Embedded,
}

impl Memory {
    /// A new engine, dropped with its last client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another engine")]
    pub fn new() -> Self {
        Self { engine: Embedded::new() }
    }
}

impl Backend for Memory {
    fn url(&self) -> &str {
        self.engine.url()
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        Box::pin(async move {
            self.engine.lose_hold(name);
        })
    }

    fn left_behind<'a>(&'a self, _prefix: &'a str) -> Reply<'a, Option<usize>> {
        Box::pin(async { Some(self.engine.names()) })
    }
}
