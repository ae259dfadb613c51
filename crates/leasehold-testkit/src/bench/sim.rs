//! A simulated server inside the process.

use leasehold::test::Simulation;

use super::{Backend, LEASES, LIST, MIN_HOLD, ONE_STEP, Reply, VIEW};

/// A simulated server of its own.
#[derive(Debug)]
pub struct Sim {
    simulation: Simulation,
    lacks: &'static [&'static str],
}

impl Sim {
    /// A new server, which ends with its last client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another server")]
    pub fn new() -> Self {
        // It has two shards.
        Self { simulation: Simulation::new(), lacks: &[LIST, ONE_STEP] }
    }

    /// One that binds holds to sessions, as `ZooKeeper` does.
    #[must_use]
    pub fn sessions() -> Self {
        Self { simulation: Simulation::sessions(), lacks: BOUND }
    }

    /// One that binds holds to connections, as `MySQL` does.
    #[must_use]
    pub fn connections() -> Self {
        Self { simulation: Simulation::connections(), lacks: BOUND }
    }
}

/// The features that a service lacks that binds holds to a session or connection.
const BOUND: &[&str] = &[
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
    MIN_HOLD,
    LEASES,
    LIST,
    VIEW,
    ONE_STEP,
];

impl Backend for Sim {
    fn url(&self) -> &str {
        self.simulation.url()
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        Box::pin(async move {
            self.simulation.lose_hold(name);
        })
    }

    fn lacks(&self) -> &'static [&'static str] {
        self.lacks
    }

    fn left_behind<'a>(&'a self, _prefix: &'a str) -> Reply<'a, Option<usize>> {
        Box::pin(async { Some(self.simulation.names()) })
    }
}
