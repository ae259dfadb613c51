//! Locks that are taken away from their holder on purpose.
//!
//! One transaction deletes the key of the holder and writes that of the new owner, at the end of the queue: older waiters
//! come first. It also writes a note about each deleted key, so that the client of the old holder learns what has happened; the
//! note is deleted after a while, or with the lease of the client that has written it.

use std::sync::Arc;
use std::time::Duration;

use super::keys::Span;
use super::link::Link;
use super::messages::{KeyValue, Ranged, Transaction};
use super::places::Place;
use super::transaction::{created, delete, oldest, put, transact};
use super::{Cluster, calls, decide, keys};
use crate::engine::remote::store::{StoreError, report};
use crate::engine::{HoldKey, Kind};
use crate::env;
use crate::loss::Loss;

/// How many readers one transaction deletes: etcd allows 128 operations in it.
const AT_ONCE: usize = 60;
/// For how long a client can learn that a lock was taken over from it.
const READ_BY_THEN: Duration = Duration::from_secs(30);

impl Cluster {
    /// Deletes the keys that keep an owner out, and writes its own. False if they have changed meanwhile, or are more than
    /// fit into one transaction.
    pub(super) async fn evict(
        self: &Arc<Self>,
        link: &Arc<Link>,
        hold_key: &HoldKey,
        key: &[u8],
    ) -> Result<bool, StoreError> {
        let resource = &hold_key.resource;
        let queue: Ranged = link.call(calls::RANGE, oldest(&keys::all(resource), 0)).await?;
        let holders = victims(hold_key, &queue.found);
        if holders.is_empty() {
            return Ok(true);
        }
        let (is_last, holders) = (holders.len() <= AT_ONCE, &holders[..holders.len().min(AT_ONCE)]);
        let own: Vec<_> =
            holders.iter().filter_map(|one| self.decide_fate(&one.key, Some(Loss::TakenOver))).collect();
        let is_there = |one: &KeyValue| created(&Span::only(one.key.clone()), one.create_revision);
        let compare = holders.iter().map(is_there).collect();
        let notes: Vec<_> = holders.iter().map(|one| keys::taken(&one.key, one.create_revision)).collect();
        let mut then: Vec<_> = holders.iter().map(|one| delete(&one.key)).collect();
        then.extend(is_last.then(|| put(key, Vec::new(), link.client.lease)));
        then.extend(notes.iter().map(|note| put(note, Vec::new(), link.client.lease)));
        then.extend(self.record(link, hold_key.owner.client));
        let done = transact(link, Transaction { compare, then, otherwise: Vec::new() }).await;
        let is_done = matches!(&done, Ok(done) if done.held);
        if !is_done {
            for one in holders {
                self.decide_fate(&one.key, None);
            }
        }
        let done = done?;
        if is_done {
            if is_last {
                self.waits(link, hold_key, done.revision);
                if let Some(place) = self.places.lock().get(hold_key) {
                    place.has_taken_over = true;
                }
            }
            self.delete_later(notes);
            for own in own {
                self.lost(link, &own);
                report(&self.events, |events| events.revoked_one(&own, Loss::TakenOver));
            }
        }
        Ok(is_done && is_last)
    }

    /// Deletes notes when they are read.
    pub(super) fn delete_later(self: &Arc<Self>, notes: Vec<Vec<u8>>) {
        let cluster = Arc::downgrade(self);
        self.spawn(async move {
            env::sleep_for(READ_BY_THEN).await;
            if let Some(link) = cluster.upgrade().and_then(|cluster| cluster.link().ok()) {
                let then = notes.iter().map(|note| delete(note)).collect();
                // If that fails, they are deleted with the lease.
                let _ = transact(&link, Transaction { then, ..Transaction::default() }).await;
            }
        });
    }
}

/// The keys that hold what keeps this owner out.
fn victims<'a>(hold_key: &HoldKey, queue: &'a [KeyValue]) -> &'a [KeyValue] {
    let resource = &hold_key.resource;
    match resource.kind {
        Kind::Read => decide::holders(&resource.of_kind(Kind::Write), queue),
        _ => match decide::holders(&resource.of_kind(Kind::Read), queue) {
            [] => &queue[..queue.len().min(1)],
            readers => readers,
        },
    }
}

/// Why the key of a holder was deleted.
pub(super) async fn reason(link: &Link, place: &Place) -> Loss {
    let note = Span::only(keys::taken(&place.key, place.created));
    let found: Result<Ranged, _> = link.call(calls::RANGE, oldest(&note, 1)).await;
    if found.is_ok_and(|note| !note.found.is_empty()) { Loss::TakenOver } else { Loss::Gone }
}
