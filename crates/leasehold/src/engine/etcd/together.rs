//! Several locks in one transaction: all of them or none.
//!
//! A waiter for several locks has no key while it waits. It watches the holder of one that is busy, and tries all of them again
//! when that is gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::keys::{self, Span};
use super::link::Link;
use super::locks::Entry;
use super::messages::{KeyValue, Transaction};
use super::transaction::{created, oldest, put, read, transact};
use super::watches::Watched;
use super::{Cluster, LOOK_AGAIN};
use crate::engine::remote::store::{StoreError, TakenAll};
use crate::engine::{Busy, HoldKey};

/// How many locks one transaction takes: etcd allows 128 operations in it, and one may tell who the client is.
pub(super) const MOST: usize = 127;

/// What came of it.
enum Found {
    /// All keys were created at this revision.
    Held(i64),
    /// Nothing was written, because of this lock, whose oldest key is this one.
    Busy(usize, KeyValue),
}

impl Cluster {
    /// Acquires plain locks of one owner that holds none of them, all or none.
    pub(super) async fn take_all(self: &Arc<Self>, entries: &[Entry]) -> Result<TakenAll, StoreError> {
        let link = self.link()?;
        let found = self.put_all(&link, entries).await;
        match found {
            Ok(Found::Held(revision)) => {
                for entry in entries {
                    self.held(&link, &entry.hold_key, revision);
                }
                let token = |entry: &Entry| entry.fenced.then(|| revision.unsigned_abs());
                Ok(TakenAll::Bound(entries.iter().map(token).collect(), Arc::clone(&link.client.session)))
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
    async fn put_all(&self, link: &Link, entries: &[Entry]) -> Result<Found, StoreError> {
        let spans: Vec<_> = entries.iter().map(|entry| keys::all(&entry.hold_key.resource)).collect();
        let mut then: Vec<_> = {
            let (mut places, lease) = (self.places.lock(), link.client.lease);
            let key = |entry: &Entry| put(&places.enter(&entry.hold_key, lease).key, Vec::new(), lease);
            entries.iter().map(key).collect()
        };
        then.extend(self.record(link, entries[0].hold_key.owner.client));
        let compare = spans.iter().map(|span| created(span, 0)).collect();
        let otherwise = spans.iter().map(|span| read(oldest(span, 1))).collect();
        let done = transact(link, Transaction { compare, then, otherwise }).await?;
        if done.held {
            link.client.is_recorded.store(true, Ordering::Relaxed);
            return Ok(Found::Held(done.revision));
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
        let (span, created_until) = (Span::only(first.key.clone()), first.create_revision);
        let watched = Watched { hold_key: hold_key.clone(), span, created_until, found: 1 };
        self.watches.begin_of_name(&link.watches, &hold_key.resource, watched);
    }
}
