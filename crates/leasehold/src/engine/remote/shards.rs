//! Which shards are reachable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::store::Shard;
use crate::env::{self, Instant};
use crate::error::{Rounded, ServerError};
use crate::mutex::Mutex;

/// The shards that are not reachable now, and why.
#[derive(Debug, Default)]
pub(super) struct Shards {
    // Invariant: `count` is the number of entries of `down`, which every request reads without the mutex: mostly none.
    down: Mutex<HashMap<Shard, Outage>>,
    count: AtomicUsize,
}

/// The outage of one shard.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// Why it could not be reached at the last attempt.
    reason: Option<ServerError>,
}

impl Shards {
    /// An outage of this shard has begun, or is over.
    pub(super) fn set(&self, shard: Shard, is_down: bool) {
        let mut down = self.down.lock();
        if is_down {
            down.insert(shard, Outage { since: env::now(), reason: None });
        } else {
            down.remove(&shard);
        }
        self.count.store(down.len(), Ordering::SeqCst);
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
        let Some(Outage { since, reason }) = down.get(&shard) else { return Ok(()) };
        let lasts = Rounded(env::now().saturating_duration_since(*since));
        Err(match reason {
            None => ServerError::Unavailable(format!("not connected for {lasts}, reconnecting")),
            Some(ServerError::Unavailable(text)) => {
                ServerError::Unavailable(format!("not connected for {lasts}, reconnecting: {text}"))
            }
            Some(ServerError::Denied(text)) => {
                ServerError::Denied(format!("not connected for {lasts}, reconnecting: {text}"))
            }
            Some(other) => other.clone(),
        })
    }
}
