//! Holds by keys that are not those of a lock: they are watched, and lost if they are deleted.

use std::sync::Arc;

use super::Cluster;
use super::leases::OwnLease;
use super::link::Link;
use super::places::Place;
use crate::engine::remote::store::{Given, StoreError};
use crate::engine::{HoldKey, Kind};
use crate::session::Session;

impl Cluster {
    /// Releases permits or values of a group, once.
    pub(super) async fn give_other(self: &Arc<Self>, hold_key: &HoldKey) -> Result<Given, StoreError> {
        match hold_key.resource.kind {
            Kind::Semaphore => self.give_counted(hold_key).await,
            Kind::LeasedSemaphore => self.give_permits(hold_key).await,
            _ => self.give_set(hold_key).await,
        }
    }

    /// An owner holds something by this key, which was created at this revision, under this lease of its own if there is one. If it
    /// still does a moment later, that is watched. Returns what the hold lasts as long as.
    pub(super) fn holds(
        self: &Arc<Self>,
        link: &Link,
        hold_key: &HoldKey,
        (key, created): (Vec<u8>, i64),
        lease: Option<Arc<OwnLease>>,
    ) -> Arc<Session> {
        self.holds_no_more(link, hold_key);
        let mut places = self.places.lock();
        let place = places.hold(hold_key, link.client.lease, key, created);
        if let Some(lease) = lease {
            place.bind(lease);
        }
        let session = Arc::clone(place.session.as_ref().unwrap_or(&link.client.session));
        drop(places);
        self.watch_later(hold_key, created);
        session
    }

    /// It is about to release that, or has lost it. Returns its place, which keeps leases of its own alive.
    pub(super) fn holds_no_more(&self, link: &Link, hold_key: &HoldKey) -> Option<Place> {
        let mut before = self.places.lock().remove(hold_key)?;
        before.take_watches().iter().flatten().for_each(|id| self.watches.end(&link.watches, *id));
        Some(before)
    }
}
