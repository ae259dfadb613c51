//! A simulated server inside the process.

use leasehold::test::Simulation;

use super::{Backend, LEASES, ONE_STEP, Reply, VIEW};

/// A simulated server of its own.
#[derive(Debug)]
pub struct Sim {
    simulation: Simulation,
    url: String,
    lacks: &'static [&'static str],
}

impl Sim {
    /// A new server, gone with its last client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another server")]
    pub fn new() -> Self {
        let simulation = Simulation::new();
        // It has two shards.
        Self { url: simulation.url().to_owned(), simulation, lacks: &[ONE_STEP] }
    }

    /// One that binds holds to sessions, as `ZooKeeper` does.
    #[must_use]
    pub fn sessions() -> Self {
        Self::bound("sim-sessions:")
    }

    /// One that binds holds to connections, as `MySQL` does.
    #[must_use]
    pub fn connections() -> Self {
        Self::bound("sim-connections:")
    }

    fn bound(scheme: &str) -> Self {
        let sim = Self::new();
        Self { url: sim.url.replace("sim:", scheme), lacks: BOUND, ..sim }
    }
}

/// What a service lacks that binds holds to something.
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
    LEASES,
    VIEW,
    ONE_STEP,
];

impl Backend for Sim {
    fn url(&self) -> &str {
        &self.url
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
