//! Several locks in one transaction: all of them or none.
//!
//! A waiter for several locks has no key while it waits. It watches the holder of one that is busy, and tries all of them again
//! when that is gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::keys;
use super::leases::OwnLease;
use super::link::Link;
use super::locks::Entry;
use super::messages::{KeyValue, Transaction};
use super::transaction::{created, oldest, put, read, transact_under};
use super::watches::Watched;
use super::{Cluster, LOOK_AGAIN};
use crate::engine::remote::store::{StoreError, TakenAll};
use crate::engine::{Busy, HoldKey};

/// How many locks one transaction takes: etcd allows 128 operations in it, and one may tell who the client is.
pub(super) const MOST: usize = 127;

/// What came of it.
enum Found {
    /// All keys were created at this revision, and are bound to this lease if the holds have a fixed one.
    Held(i64, Option<Arc<OwnLease>>),
    /// Nothing was written, because of this lock, whose oldest key is this one.
    Busy(usize, KeyValue),
}

impl Cluster {
    /// Acquires plain locks of one owner that holds none of them, all or none.
    pub(super) async fn take_all(self: &Arc<Self>, entries: &[Entry]) -> Result<TakenAll, StoreError> {
        let link = self.link()?;
        let found = self.put_all(&link, entries).await;
        match found {
            Ok(Found::Held(revision, lease)) => {
                let grant = |entry: &Entry| {
                    let session = self.held(&link, &entry.hold_key, revision, lease.clone());
                    (entry.fenced.then(|| revision.unsigned_abs()), session)
                };
                Ok(TakenAll::Bound(entries.iter().map(grant).collect()))
            }
            Ok(Found::Busy(number, first)) => {
                for entry in entries {
                    self.places.lock().remove(&entry.hold_key);
                }
                let hold_key = &entries[number].hold_key;
                let holder = self.owner_of(&hold_key.resource, &first);
                self.watch_holder(hold_key, &first);
                Ok(TakenAll::Busy(number, Busy { retry_in: Some(LOOK_AGAIN), holder, ..Busy::default() }))
            }
            Err(error) => {
                for entry in entries {
                    self.failed(&entry.hold_key, &error);
                }
                Err(error)
            }
        }
    }

    /// Writes a key for each, if there is none below any of the names.
    async fn put_all(self: &Arc<Self>, link: &Link, entries: &[Entry]) -> Result<Found, StoreError> {
        let own = match entries.iter().filter_map(|entry| entry.length).max() {
            Some(length) => Some(self.own_lease(link, length).await?),
            None => None,
        };
        let under = own.as_ref().map_or(link.client.lease, |own| own.id);
        let spans: Vec<_> = entries.iter().map(|entry| keys::all(&entry.hold_key.resource)).collect();
        let mut then: Vec<_> = {
            let (mut places, lease) = (self.places.lock(), link.client.lease);
            let key = |entry: &Entry| put(&places.enter(&entry.hold_key, lease).key, Vec::new(), under);
            entries.iter().map(key).collect()
        };
        let client = entries[0].hold_key.owner.client;
        then.extend(match &own {
            Some(own) => Some(self.own_record(own.id, client)),
            None => self.record(link, client),
        });
        let compare = spans.iter().map(|span| created(span, 0)).collect();
        let otherwise = spans.iter().map(|span| read(oldest(span, 1))).collect();
        let done = transact_under(link, under, Transaction { compare, then, otherwise }).await?;
        if done.held {
            link.client.is_recorded.fetch_or(own.is_none(), Ordering::Relaxed);
            return Ok(Found::Held(done.revision, own));
        }
        let busy =
            done.found().enumerate().find_map(|(number, found)| Some((number, found.first()?.clone())));
        let (number, first) = busy.unwrap_or_default();
        Ok(Found::Busy(number, first))
    }

    /// Wakes the waiters for a name when the key of its holder is deleted.
    fn watch_holder(&self, hold_key: &HoldKey, first: &KeyValue) {
        // There may be another connection by now, on which watches report.
        let Ok(link) = self.link() else { return };
        let watched = Watched::only(hold_key, first.key.clone(), first.create_revision);
        self.watches.begin_of_name(&link.watches, &hold_key.resource, watched);
    }
}
