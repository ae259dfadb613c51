//! One request for a hold, with its options.

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::{Acquire, AcquireError, Client, Owner};

use super::held::{Boxed, Held};
use super::resource::{Kind, Resource};

/// A request. A wait of zero is one try.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What it acquires.
    pub(super) resource: Resource,
    /// How long to wait.
    pub(super) wait: Option<Duration>,
    /// For how long to hold it.
    pub(super) lease: Option<Duration>,
    /// How long to hold it at most.
    pub(super) max_hold: Option<Duration>,
    /// The owner.
    pub(super) owner: Option<Owner>,
    /// Whether to take it over.
    pub(super) steal: bool,
}

impl Request {
    /// A request that waits so long.
    #[must_use]
    pub(super) fn new(resource: Resource, wait: Duration) -> Self {
        Self { resource, wait: Some(wait), lease: None, max_hold: None, owner: None, steal: false }
    }

    /// The future of the request.
    #[must_use]
    pub(super) fn of(&self, client: &Client) -> Boxed<Result<Held, AcquireError>> {
        let (resource, name) = (self.resource, self.resource.name());
        match resource.kind {
            Kind::Plain => self.begin(client.lock(name).acquire(), Held::Lock),
            Kind::Spin => self.begin(client.spin_lock(name).acquire(), Held::Lock),
            Kind::Fair => self.begin(client.fair_lock(name).acquire(), Held::Lock),
            Kind::SetNx => self.begin(client.setnx_lock(name).acquire(), Held::Lock),
            Kind::Group => self.begin(client.group_lock(name, resource.values()).acquire(), Held::Lock),
            Kind::Fenced => self.begin(client.fenced_lock(name).acquire(), Held::Fenced),
            Kind::Read => self.begin(client.rw_lock(name).read().acquire(), Held::Read),
            Kind::Write => self.begin(client.rw_lock(name).write().acquire(), Held::Write),
            Kind::Multi => {
                let mut all = client.multi_lock(resource.names()).acquire();
                all = if let Some(wait) = self.wait { all.wait(wait) } else { all };
                all = if let Some(lease) = self.lease { all.lease(lease) } else { all };
                all = if let Some(most) = self.max_hold { all.max_hold(most) } else { all };
                all = if let Some(owner) = &self.owner { all.as_owner(owner) } else { all };
                let all = all.into_future();
                Box::pin(async { all.await.map(Held::Multi) })
            }
            Kind::Quorum => unreachable!("a quorum is asked for by several clients"),
            Kind::Semaphore => {
                let permits = client.semaphore(name).acquire(resource.permits);
                let permits = if let Some(wait) = self.wait { permits.wait(wait) } else { permits };
                let permits = permits.into_future();
                Box::pin(async { permits.await.map(Held::Permits) })
            }
            Kind::Leased => {
                let permits = client.leased_semaphore(name).acquire(resource.permits);
                let permits = if let Some(wait) = self.wait { permits.wait(wait) } else { permits };
                let permits = if let Some(lease) = self.lease { permits.lease(lease) } else { permits };
                let permits = permits.into_future();
                Box::pin(async { permits.await.map(Held::Leased) })
            }
        }
    }

    fn begin<G: Send + 'static>(
        &self,
        mut acquire: Acquire<G>,
        held: fn(G) -> Held,
    ) -> Boxed<Result<Held, AcquireError>>
    where
        Acquire<G>: IntoFuture<Output = Result<G, AcquireError>, IntoFuture: Send>,
    {
        acquire = if let Some(wait) = self.wait { acquire.wait(wait) } else { acquire };
        acquire = if let Some(lease) = self.lease { acquire.lease(lease) } else { acquire };
        acquire = if let Some(most) = self.max_hold { acquire.max_hold(most) } else { acquire };
        acquire = if let Some(owner) = &self.owner { acquire.as_owner(owner) } else { acquire };
        acquire = if self.steal { acquire.steal() } else { acquire };
        let future = acquire.into_future();
        Box::pin(async move { future.await.map(held) })
    }
}
