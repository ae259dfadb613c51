//! The heartbeat of waiters for fair locks: one request a second or so for all of a client's.
//!
//! It tells the server that they live, so that waiters that do not can be thrown out of the queue long before Redisson's own
//! time is over; and it learns where in the queue each stands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::net::Value;
use super::{Parts, commands, decoded};
use crate::engine::remote::store::StoreError;
use crate::engine::{Queueing, Spot, Target};
use crate::env::jittered;
use crate::mutex::Mutex;
use crate::owner::OwnerId;

/// The waiters of one client for fair locks.
#[derive(Debug, Default)]
pub(super) struct QueueHeartbeat {
    // Invariant: a waiter is here as long as it may have a place in a queue on the server.
    waiters: Mutex<HashMap<Spot, Waiter>>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    queueing: Queueing,
    /// Its place in the queue when the server last told it.
    place: usize,
}

/// At most this long between two heartbeats, and at least half of it. A place lasts for 3 s: one may be lost.
const PERIOD: Duration = Duration::from_millis(1500);
/// How many waiters go into one request.
const BATCH: usize = 100;

/// A lock and some of its waiters, with how long they wait.
type Group = (Target, Vec<(OwnerId, Duration)>);

impl QueueHeartbeat {
    /// A waiter stands in the queue now, at this place.
    pub(super) fn add(&self, spot: &Spot, queueing: Queueing, place: usize) {
        let before = self.waiters.lock().insert(spot.clone(), Waiter { queueing, place });
        if before.is_none() {
            self.changed.notify_one();
        }
    }

    /// A waiter has stopped waiting; false if it had no place.
    pub(super) fn remove(&self, spot: &Spot) -> bool {
        self.waiters.lock().remove(spot).is_some()
    }

    /// Beats until the client is gone.
    pub(super) async fn run(&self, parts: &Arc<Parts>) {
        loop {
            let changed = self.changed.notified();
            if self.waiters.lock().is_empty() {
                changed.await;
                continue;
            }
            tokio::time::sleep(jittered(PERIOD)).await;
            for batch in self.batches() {
                beat(batch, parts);
            }
        }
    }

    /// All waiters, grouped by lock, in pieces that fit into a request.
    fn batches(&self) -> Vec<Vec<Group>> {
        let mut groups: HashMap<Target, Vec<(OwnerId, Duration)>> = HashMap::new();
        for (spot, waiter) in self.waiters.lock().iter() {
            groups.entry(spot.target.clone()).or_default().push((spot.owner, waiter.queueing.wait));
        }
        let pieces = groups.into_iter().flat_map(|(target, waiters)| {
            waiters.chunks(BATCH).map(|piece| (target.clone(), piece.to_vec())).collect::<Vec<_>>()
        });
        let mut batches: Vec<Vec<Group>> = Vec::new();
        let mut full = BATCH;
        for piece in pieces {
            full += piece.1.len();
            if full > BATCH {
                batches.push(Vec::new());
                full = piece.1.len();
            }
            batches.last_mut().expect("there is one now").push(piece);
        }
        batches
    }

    /// Notes a place, and tells whether its waiter has to look: it has none, or wants to know of every change. One that has
    /// none is not sent again: it may have gone before the reply to its try was read. Else it adds itself by its next try.
    fn moved(&self, spot: &Spot, place: usize) -> bool {
        let mut waiters = self.waiters.lock();
        if place == 0 {
            return waiters.remove(spot).is_some();
        }
        let Some(waiter) = waiters.get_mut(spot) else { return false };
        let before = std::mem::replace(&mut waiter.place, place);
        waiter.queueing.watched && place != before
    }
}

/// Sends one heartbeat. Waiters whose place has changed are woken where the reply is read.
fn beat(batch: Vec<Group>, parts: &Arc<Parts>) {
    let call = commands::heartbeat(&batch);
    let Some((target, _)) = batch.first() else { return };
    let (node, effects) = (parts.topology.node(target), Arc::clone(parts));
    let done = move |places: Result<Vec<Value>, StoreError>| {
        let places = match places {
            Ok(places) => places,
            Err(error) => return tracing::debug!(?error, "a heartbeat without a reply"),
        };
        let spots = batch.into_iter().flat_map(|(target, waiters)| {
            waiters.into_iter().map(move |(owner, _)| Spot { target: target.clone(), owner, amount: 1 })
        });
        for (spot, place) in spots.zip(places) {
            let Value::Int(place) = place else { continue };
            let place = usize::try_from(place).unwrap_or_default();
            if effects.heartbeat.moved(&spot, place)
                && let Some(events) = effects.events.upgrade()
            {
                events.look(&spot);
            }
        }
    };
    let decode = |reply| if let Value::Array(places) = reply { Ok(places) } else { Ok(Vec::new()) };
    node.send(call, decoded(done, decode));
}
