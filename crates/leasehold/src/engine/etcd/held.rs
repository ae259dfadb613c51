//! Holds by keys that are not those of a lock: they are watched, and lost if they are deleted.

use std::sync::Arc;

use super::Cluster;
use super::link::Link;
use crate::engine::remote::store::{Given, StoreError};
use crate::engine::{HoldKey, Kind};

impl Cluster {
    /// Releases permits or values of a group, once.
    pub(super) async fn give_other(self: &Arc<Self>, hold_key: &HoldKey) -> Result<Given, StoreError> {
        match hold_key.resource.kind {
            Kind::Semaphore => self.give_counted(hold_key).await,
            Kind::LeasedSemaphore => self.give_permits(hold_key).await,
            _ => self.give_set(hold_key).await,
        }
    }

    /// An owner holds something by this key, which was created at this revision. If it still does a moment later, that is watched.
    pub(super) fn holds(self: &Arc<Self>, link: &Link, hold_key: &HoldKey, key: Vec<u8>, created: i64) {
        self.holds_no_more(link, hold_key);
        self.places.lock().hold(hold_key, link.client.lease, key, created);
        self.watch_later(hold_key, created);
    }

    /// It is about to release that, or has lost it.
    pub(super) fn holds_no_more(&self, link: &Link, hold_key: &HoldKey) {
        let before = self.places.lock().remove(hold_key);
        before.and_then(|place| place.watch).inspect(|id| self.watches.end(&link.watches, *id));
    }
}
