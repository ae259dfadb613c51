//! Leases of their own, for keys that end at a time of theirs and not with their client.
//!
//! The server knows whole seconds. So it gets the time rounded up, and the client ends the lease at the exact moment; if the client
//! is gone by then, the server does that a moment later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{Sender, channel};

use super::link::Link;
use super::messages::{Grant, Granted, LeaseId, Revoked};
use super::{Cluster, calls};
use crate::engine::remote::store::StoreError;
use crate::env::{self, Instant};
use crate::mutex::Mutex;

/// The longest time to live that etcd grants, in seconds.
const LONGEST: i64 = 9_000_000_000;

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
        let granted: Granted = link.call(calls::GRANT, Grant { ttl: whole_seconds(length) }).await?;
        Ok(Unused { cluster: Arc::clone(self), id: granted.id, ends: begun + length, is_kept: false })
    }

    /// Ends leases that are of no use any more, with all keys that they still have. If that fails, they run out by themselves.
    pub(super) fn end_leases(self: &Arc<Self>, leases: impl IntoIterator<Item = i64>) {
        for id in leases {
            let timer = self.timers.0.lock().remove(&id);
            drop(timer);
            let Ok(link) = self.link() else { continue };
            self.spawn(async move {
                let revoked: Result<Option<Revoked>, _> =
                    link.call_beside(calls::REVOKE, LeaseId { id }).await;
                if let Err(error) = revoked {
                    tracing::debug!(?error, "a lease could not be revoked, and runs out by itself");
                }
            });
        }
    }
}

/// A length as etcd takes it.
pub(super) fn whole_seconds(length: Duration) -> i64 {
    let seconds = length.as_secs().saturating_add((length.subsec_nanos() > 0).into());
    i64::try_from(seconds).unwrap_or(LONGEST).clamp(1, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_to_what_etcd_grants() {
        let ms = |length| whole_seconds(Duration::from_millis(length));
        assert_eq!([1, 1000, 1001, 60_000].map(ms), [1, 1, 2, 60]);
        assert_eq!(whole_seconds(Duration::MAX), LONGEST);
    }
}
