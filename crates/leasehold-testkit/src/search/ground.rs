//! The environment of a round: real servers and real time, or a simulated server and virtual time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::servers::Servers;
use super::simulated::Field;

/// What the clients of a round run on.
#[derive(Clone, Debug)]
pub(super) enum Ground {
    /// A real server behind proxies.
    Servers(Arc<Servers>),
    /// A simulated server and a separate machine for each client.
    Simulated(Arc<Field>),
}

impl Ground {
    /// Runs a task of a client, where that client runs.
    pub(super) fn spawn(&self, client: usize, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Servers(_) => drop(tokio::spawn(work)),
            Self::Simulated(field) => field.spawn(client, work),
        }
    }

    /// Runs a query by the clock of a client.
    pub(super) fn by_clock_of<T>(&self, client: usize, ask: impl FnOnce() -> T) -> T {
        match self {
            Self::Servers(_) => ask(),
            Self::Simulated(field) => field.by_clock_of(client, ask),
        }
    }

    /// For how long the machine of a client was stopped since then.
    pub(super) fn stopped(&self, client: usize, since: Instant) -> Duration {
        match self {
            Self::Servers(_) => Duration::ZERO,
            Self::Simulated(field) => field.stopped(client, since),
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        match self {
            Self::Servers(servers) => servers.heal(),
            Self::Simulated(field) => field.heal(),
        }
    }

    /// The state that is left, as the server reports it.
    pub(super) fn left(&self) -> Vec<String> {
        match self {
            Self::Servers(servers) => servers.left(),
            Self::Simulated(field) => field.left(),
        }
    }
}
