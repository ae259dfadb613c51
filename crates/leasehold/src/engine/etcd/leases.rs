//! Leases of their own, for holds that end at a time of their own, whatever becomes of their client.
//!
//! Such a hold does not depend on the session of its client: the server keeps its key for as long as it has granted. It counts in
//! whole seconds, and grants no less than its smallest time to live, so the client deletes the key at the exact moment, and the
//! server does if the client cannot.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::keys::Span;
use super::link::Link;
use super::messages::Transaction;
use super::transaction::{created, put_again, transact_under};
use super::{Cluster, LONGEST_PAUSE};
use crate::engine::HoldKey;
use crate::engine::remote::store::StoreError;
use crate::env::{self, Instant};

/// A lease for one hold, or for those that one request has acquired. It is revoked when no place has it any more.
#[derive(Debug)]
pub(super) struct OwnLease {
    pub(super) id: i64,
    /// Until when it may be trusted.
    pub(super) until: Instant,
    cluster: Weak<Cluster>,
}

impl Drop for OwnLease {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.revoke_later(self.id, self.until);
        }
    }
}

impl Cluster {
    /// Requests a lease of this length, rounded up to what the server grants.
    pub(super) async fn own_lease(
        self: &Arc<Self>,
        link: &Link,
        length: Duration,
    ) -> Result<Arc<OwnLease>, StoreError> {
        let granted = link.grant(length).await.map_err(|error| match error {
            // It may be there without a key, and runs out.
            StoreError::Unknown(reason) => StoreError::Refused(reason),
            other => other,
        });
        let (id, until) = granted?;
        Ok(Arc::new(OwnLease { id, until, cluster: Arc::downgrade(self) }))
    }

    /// Binds the key of an owner, which was created at this revision, to a lease of its own, in place of any before. The key stays
    /// where it is in the queue. Returns the revision, or `None` if the key is gone.
    pub(super) async fn bind(
        self: &Arc<Self>,
        link: &Link,
        hold_key: &HoldKey,
        (key, revision): (&[u8], i64),
        length: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let lease = self.own_lease(link, length).await?;
        let compare = vec![created(&Span::only(key.to_vec()), revision)];
        let then = vec![put_again(key, lease.id), self.own_record(lease.id, hold_key.owner.client)];
        let transaction = Transaction { compare, then, otherwise: Vec::new() };
        let done = transact_under(link, lease.id, transaction).await;
        let mut places = self.places.lock();
        let place = places.get(hold_key).filter(|place| place.created == revision);
        match (&done, place) {
            (Ok(done), Some(place)) if done.held => place.bind(lease),
            // The key may be bound to this one or to the one before.
            (Err(StoreError::Unknown(_)), Some(place)) => place.leases.push(lease),
            _ => {}
        }
        let done = done?;
        Ok(done.held.then_some(done.revision))
    }

    /// Revokes a lease that no place has any more; retried until it has run out.
    fn revoke_later(self: &Arc<Self>, lease: i64, until: Instant) {
        self.spent.lock().insert(lease);
        let cluster = Arc::downgrade(self);
        self.spawn(async move {
            while let Some(cluster) = cluster.upgrade() {
                if env::now() >= until || cluster.revoke(lease).await {
                    cluster.spent.lock().remove(&lease);
                    return;
                }
                drop(cluster);
                env::sleep_for(LONGEST_PAUSE).await;
            }
        });
    }

    async fn revoke(&self, lease: i64) -> bool {
        let Ok(link) = self.link() else { return false };
        link.revoke(lease).await
    }

    /// Revokes the leases that are still to be revoked, before the client is gone.
    pub(super) async fn revoke_spent(&self, link: &Link) {
        let spent = std::mem::take(&mut *self.spent.lock());
        for lease in spent {
            if !link.revoke(lease).await {
                return;
            }
        }
    }
}
