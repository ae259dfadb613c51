//! Which shards are reachable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::store::Shard;
use crate::engine::Connection;
use crate::env::{self, Instant};
use crate::error::{Rounded, ServerError};
use crate::mutex::Mutex;

/// The shards that are not reachable now, and why.
#[derive(Debug)]
pub(super) struct Shards {
    // Invariant: `count` is the number of entries of `down`, which every request reads without the mutex: mostly none.
    down: Mutex<HashMap<Shard, Outage>>,
    count: AtomicUsize,
    /// When the last of them was connected.
    connected: Mutex<Instant>,
}

impl Default for Shards {
    fn default() -> Self {
        Self { down: Mutex::default(), count: AtomicUsize::default(), connected: Mutex::new(env::now()) }
    }
}

/// The outage of one shard.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// There was no connection before it.
    is_first: bool,
    /// Why it could not be reached at the last attempt.
    reason: Option<ServerError>,
}

impl Shards {
    /// An outage of this shard has begun.
    pub(super) fn down(&self, shard: Shard) {
        self.insert(shard, false);
    }

    /// This shard is not connected yet.
    pub(super) fn not_yet(&self, shard: Shard) {
        self.insert(shard, true);
    }

    fn insert(&self, shard: Shard, is_first: bool) {
        let mut down = self.down.lock();
        down.insert(shard, Outage { since: env::now(), is_first, reason: None });
        self.count.store(down.len(), Ordering::SeqCst);
    }

    /// This shard is connected: the outage is over, if there was one. Returns how long it lasted; not of a first connection.
    pub(super) fn up(&self, shard: Shard) -> Option<Duration> {
        let mut down = self.down.lock();
        let outage = down.remove(&shard);
        let now = env::now();
        *self.connected.lock() = now;
        self.count.store(down.len(), Ordering::SeqCst);
        outage.filter(|outage| !outage.is_first).map(|outage| now.saturating_duration_since(outage.since))
    }

    /// The shard could not be reached again, for this reason; false if the reason is the same as before.
    pub(super) fn because(&self, shard: Shard, reason: ServerError) -> bool {
        let mut down = self.down.lock();
        let Some(outage) = down.get_mut(&shard) else { return false };
        let is_new = outage.reason.as_ref() != Some(&reason);
        outage.reason = Some(reason);
        is_new
    }

    /// Whether a request to this shard can be sent now.
    pub(super) fn is_up(&self, shard: Shard) -> bool {
        self.count.load(Ordering::SeqCst) == 0 || !self.down.lock().contains_key(&shard)
    }

    /// The error of a request to this shard now, if it is not reachable.
    pub(super) fn check(&self, shard: Shard) -> Result<(), ServerError> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let down = self.down.lock();
        let Some(Outage { since, is_first, reason }) = down.get(&shard) else { return Ok(()) };
        let state = if *is_first {
            "not connected yet".to_owned()
        } else {
            let lasts = Rounded(env::now().saturating_duration_since(*since));
            format!("not connected for {lasts}, reconnecting")
        };
        Err(match reason {
            None => ServerError::Unavailable(state),
            Some(ServerError::Unavailable(text)) => ServerError::Unavailable(format!("{state}: {text}")),
            Some(ServerError::Denied(text)) => ServerError::Denied(format!("{state}: {text}")),
            Some(other) => other.clone(),
        })
    }

    /// Whether all shards are reachable, since when, and if not, why not.
    pub(super) fn connection(&self) -> Connection {
        let down = self.down.lock();
        let Some(outage) = down.values().min_by_key(|outage| outage.since) else {
            return Connection { is_up: true, since: *self.connected.lock(), error: None };
        };
        Connection { is_up: false, since: outage.since, error: outage.reason.clone() }
    }
}
