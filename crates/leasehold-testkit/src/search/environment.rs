//! The environment of a round: real servers or files and real time, or a simulated server and virtual time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::files::LockFiles;
use super::resource::Kind;
use super::servers::Servers;
use super::simulated::SimulatedNetwork;

/// What the clients of a round run on.
#[derive(Clone, Debug)]
pub(super) enum Environment {
    /// A real server behind proxies.
    Servers(Arc<Servers>),
    /// Files in one directory.
    Files(Arc<LockFiles>),
    /// A simulated server and a separate machine for each client.
    Simulated(Arc<SimulatedNetwork>),
}

impl Environment {
    /// Runs a task of a client, where that client runs.
    pub(super) fn spawn(&self, client: usize, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Servers(_) | Self::Files(_) => drop(tokio::spawn(work)),
            Self::Simulated(network) => network.spawn(client, work),
        }
    }

    /// Runs a query by the clock of a client.
    pub(super) fn by_clock_of<T>(&self, client: usize, query: impl FnOnce() -> T) -> T {
        match self {
            Self::Servers(_) | Self::Files(_) => query(),
            Self::Simulated(network) => network.by_clock_of(client, query),
        }
    }

    /// For how long the machine of a client was stopped since then.
    pub(super) fn stopped(&self, client: usize, since: Instant) -> Duration {
        match self {
            Self::Servers(_) | Self::Files(_) => Duration::ZERO,
            Self::Simulated(network) => network.stopped(client, since),
        }
    }

    /// Whether the engine has this feature, in the words of [`Backend::lacks`](crate::bench::Backend::lacks).
    pub(super) fn has(&self, feature: &str) -> bool {
        match self {
            Self::Servers(_) | Self::Simulated(_) => true,
            Self::Files(files) => files.has(feature),
        }
    }

    /// Whether the engine has this primitive.
    pub(super) fn has_kind(&self, kind: Kind) -> bool {
        match kind {
            Kind::Fair => self.has("fair lock"),
            Kind::SetNx => self.has("SET NX lock"),
            _ => true,
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        match self {
            Self::Servers(servers) => servers.heal(),
            // A file that was replaced stays replaced.
            Self::Files(_) => {}
            Self::Simulated(network) => network.heal(),
        }
    }

    /// The state that is left, as the server reports it.
    pub(super) fn left(&self) -> Vec<String> {
        match self {
            Self::Servers(servers) => servers.left(),
            Self::Files(files) => files.left(),
            Self::Simulated(network) => network.left(),
        }
    }
}
