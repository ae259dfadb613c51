//! The queue heartbeat for fair locks: one request every 0.75 to 1.5 s for all waiters of a client.
//!
//! It shows the server that they are alive, so that dead waiters are removed from the queue long before Redisson's own time-out;
//! and its reply has the position of each in the queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::net::Value;
use super::{Parts, commands, decoded};
use crate::engine::remote::store::StoreError;
use crate::engine::{HoldKey, Queueing, Resource};
use crate::env::jittered;
use crate::error::ServerError;
use crate::mutex::Mutex;
use crate::owner::OwnerId;

/// The waiters of one client for fair locks.
#[derive(Debug, Default)]
pub(super) struct QueueHeartbeat {
    // Invariant: a waiter is here as long as it may be in a queue on the server.
    waiters: Mutex<HashMap<HoldKey, Waiter>>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    queueing: Queueing,
    /// Its position in the queue in the server's last reply.
    position: usize,
}

/// At most this long between two heartbeats, and at least half of it. A position lasts for 3 s without one: one may be lost.
const PERIOD: Duration = Duration::from_millis(1500);
/// How many waiters go into one request.
const BATCH: usize = 100;

/// A lock and some of its waiters, with how long they wait.
type Group = (Resource, Vec<(OwnerId, Duration)>);

impl QueueHeartbeat {
    /// A waiter is in the queue now, at this position.
    pub(super) fn add(&self, hold_key: &HoldKey, queueing: Queueing, position: usize) {
        let before = self.waiters.lock().insert(hold_key.clone(), Waiter { queueing, position });
        if before.is_none() {
            self.changed.notify_one();
        }
    }

    /// A waiter has stopped waiting; false if it was not queued.
    pub(super) fn remove(&self, hold_key: &HoldKey) -> bool {
        self.waiters.lock().remove(hold_key).is_some()
    }

    /// Sends heartbeats until the client is dropped.
    pub(super) async fn run(&self, parts: &Arc<Parts>) {
        loop {
            let changed = self.changed.notified();
            if self.waiters.lock().is_empty() {
                changed.await;
                continue;
            }
            tokio::time::sleep(jittered(PERIOD)).await;
            for batch in self.batches() {
                send_heartbeat(batch, parts);
            }
        }
    }

    /// All waiters, grouped by lock, in batches that fit into a request.
    fn batches(&self) -> Vec<Vec<Group>> {
        let mut groups: HashMap<Resource, Vec<(OwnerId, Duration)>> = HashMap::new();
        for (hold_key, waiter) in self.waiters.lock().iter() {
            groups.entry(hold_key.resource.clone()).or_default().push((hold_key.owner, waiter.queueing.wait));
        }
        let pieces = groups.into_iter().flat_map(|(resource, waiters)| {
            waiters.chunks(BATCH).map(|piece| (resource.clone(), piece.to_vec())).collect::<Vec<_>>()
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

    /// Stores a position, and returns whether its waiter has to be woken: it is not queued any more, or watches its position and
    /// that has changed. A waiter that is not queued gets no more heartbeats: it may have left before the reply to its attempt was
    /// read. Otherwise its next attempt queues it again.
    fn moved(&self, hold_key: &HoldKey, position: usize) -> bool {
        let mut waiters = self.waiters.lock();
        if position == 0 {
            return waiters.remove(hold_key).is_some();
        }
        let Some(waiter) = waiters.get_mut(hold_key) else { return false };
        let before = std::mem::replace(&mut waiter.position, position);
        waiter.queueing.watched && position != before
    }
}

/// Sends one heartbeat. Waiters whose position has changed are woken where the reply is read.
fn send_heartbeat(batch: Vec<Group>, parts: &Arc<Parts>) {
    let call = commands::heartbeat(&batch);
    let Some((resource, _)) = batch.first() else { return };
    let (node, effects) = (parts.topology.node(resource), Arc::clone(parts));
    let done = move |positions: Result<Vec<Value>, StoreError>| {
        let positions = match positions {
            Ok(positions) => positions,
            Err(error) => {
                return tracing::debug!(error = %ServerError::from(error), "a queue heartbeat failed");
            }
        };
        let hold_keys = batch.into_iter().flat_map(|(resource, waiters)| {
            waiters.into_iter().map(move |(owner, _)| HoldKey {
                resource: resource.clone(),
                owner,
                amount: 1,
            })
        });
        for (hold_key, position) in hold_keys.zip(positions) {
            let Value::Int(position) = position else { continue };
            let position = usize::try_from(position).unwrap_or_default();
            if effects.heartbeat.moved(&hold_key, position)
                && let Some(events) = effects.events.upgrade()
            {
                events.wake_waiter(&hold_key);
            }
        }
    };
    let decode = |reply| if let Value::Array(positions) = reply { Ok(positions) } else { Ok(Vec::new()) };
    node.send(call, decoded(done, decode));
}
