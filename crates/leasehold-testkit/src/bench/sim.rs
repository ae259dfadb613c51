//! A simulated server inside the process.

use leasehold::test::Simulation;

use super::{Backend, ONE_STEP, Reply};

/// A simulated server of its own.
#[derive(Debug)]
pub struct Sim {
    simulation: Simulation,
}

impl Sim {
    /// A new server, gone with its last client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another server")]
    pub fn new() -> Self {
        Self { simulation: Simulation::new() }
    }
}

impl Backend for Sim {
    fn url(&self) -> &str {
        self.simulation.url()
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        Box::pin(async move {
            self.simulation.lose_hold(name);
        })
    }

    /// It has two shards.
    fn lacks(&self) -> &'static [&'static str] {
        &[ONE_STEP]
    }

    fn left_behind<'a>(&'a self, _prefix: &'a str) -> Reply<'a, Option<usize>> {
        Box::pin(async { Some(self.simulation.names()) })
    }
}
