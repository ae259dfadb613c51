//! The environment of a round: real servers and real time, or a simulated server and virtual time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::servers::Servers;
use super::simulated::SimulatedNetwork;

/// What the clients of a round run on.
#[derive(Clone, Debug)]
pub(super) enum Environment {
    /// A real server behind proxies.
    Servers(Arc<Servers>),
    /// A simulated server and a separate machine for each client.
    Simulated(Arc<SimulatedNetwork>),
}

impl Environment {
    /// Runs a task of a client, where that client runs.
    pub(super) fn spawn(&self, client: usize, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Servers(_) => drop(tokio::spawn(work)),
            Self::Simulated(network) => network.spawn(client, work),
        }
    }

    /// Runs a query by the clock of a client.
    pub(super) fn by_clock_of<T>(&self, client: usize, query: impl FnOnce() -> T) -> T {
        match self {
            Self::Servers(_) => query(),
            Self::Simulated(network) => network.by_clock_of(client, query),
        }
    }

    /// For how long the machine of a client was stopped since then.
    pub(super) fn stopped(&self, client: usize, since: Instant) -> Duration {
        match self {
            Self::Servers(_) => Duration::ZERO,
            Self::Simulated(network) => network.stopped(client, since),
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        match self {
            Self::Servers(servers) => servers.heal(),
            Self::Simulated(network) => network.heal(),
        }
    }

    /// The state that is left, as the server reports it.
    pub(super) fn left(&self) -> Vec<String> {
        match self {
            Self::Servers(servers) => servers.left(),
            Self::Simulated(network) => network.left(),
        }
    }
}
