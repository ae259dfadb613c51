//! Leases of their own, for keys that end at a time of theirs and not with their client.
//!
//! The server knows whole seconds. So it gets the time rounded up, and the client ends the lease at the exact moment; if the client
//! is gone by then, the server does that a moment later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{Sender, channel};

use super::Cluster;
use super::link::Link;
use crate::engine::remote::store::StoreError;
use crate::env::{self, Instant};
use crate::mutex::Mutex;

/// The leases that this client ends.
#[derive(Debug, Default)]
pub(super) struct Timers(Mutex<HashMap<i64, Timer>>);

#[derive(Debug)]
struct Timer {
    ends: Instant,
    /// Dropping it stops the task of the timer.
    _stop: Sender<()>,
}

impl Timers {
    /// When this client ends a lease, if it does.
    pub(super) fn ends(&self, lease: i64) -> Option<Instant> {
        self.0.lock().get(&lease).map(|timer| timer.ends)
    }
}

/// A lease that no key has yet. It is revoked unless it is [kept](Unused::keep).
pub(super) struct Unused {
    cluster: Arc<Cluster>,
    id: i64,
    ends: Instant,
    is_kept: bool,
}

impl Unused {
    pub(super) fn id(&self) -> i64 {
        self.id
    }

    /// Keys have the lease: it lasts until its time is over.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
        let (cluster, id, ends) = (Arc::downgrade(&self.cluster), self.id, self.ends);
        let (stop, mut stopped) = channel(());
        self.cluster.timers.0.lock().insert(id, Timer { ends, _stop: stop });
        self.cluster.spawn(async move {
            tokio::select! {
                biased;
                _ = stopped.changed() => return,
                () = env::sleep_until(ends) => {}
            }
            if let Some(cluster) = cluster.upgrade() {
                cluster.end_leases([id]);
            }
        });
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if !self.is_kept {
            self.cluster.end_leases([self.id]);
        }
    }
}

impl Cluster {
    /// Grants a lease that ends so long after `begun`.
    pub(super) async fn grant(
        self: &Arc<Self>,
        link: &Link,
        begun: Instant,
        length: Duration,
    ) -> Result<Unused, StoreError> {
        let (id, _) = link.grant(length).await?;
        Ok(Unused { cluster: Arc::clone(self), id, ends: begun + length, is_kept: false })
    }

    /// Ends leases that are of no use any more, with all keys that they still have. If that fails, they run out by themselves.
    pub(super) fn end_leases(self: &Arc<Self>, leases: impl IntoIterator<Item = i64>) {
        for id in leases {
            let timer = self.timers.0.lock().remove(&id);
            drop(timer);
            let Ok(link) = self.link() else { continue };
            self.spawn(async move {
                link.revoke(id).await;
            });
        }
    }
}
