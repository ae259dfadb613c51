//! The registry of holds by owner.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::client::Shared;
use crate::engine::{HoldKey, Kind, Resource};
use crate::env::{self, Instant};
use crate::error::InvalidRequestError;
use crate::hold::Hold;
use crate::mutex::Mutex;
use crate::name::Name;
use crate::owner::OwnerId;

/// The holds that more than one caller can request: those of owners that callers name, and all holds of groups. Others
/// belong to their guards alone.
///
/// An engine counts an owner for each value of a group by itself, and a hold counts for all of its values at once. Both agree
/// only if two holds of one owner have no value in common.
#[derive(Debug, Default)]
pub(crate) struct HoldRegistry {
    // Invariant: at most one hold for each resource of an owner. A hold that is upgraded here is dropped when the mutex is free
    // again: it may be the last reference, and then leaves the registry.
    holds: Mutex<HashMap<(Name, OwnerId), Vec<Entry>>>,
    /// Until when locks stay taken that have no guard any more, if a caller has their owners.
    abandoned: Mutex<HashMap<HoldKey, Instant>>,
}

#[derive(Debug)]
struct Entry {
    resource: Resource,
    hold: Weak<Hold>,
}

impl HoldRegistry {
    /// The hold of an owner, the same for all callers that request it while one of them has it.
    ///
    /// # Errors
    ///
    /// [`InvalidRequestError::SetsOverlap`] if the owner uses another set with some of the same values of a group.
    pub(crate) fn hold(&self, shared: &Arc<Shared>, key: HoldKey) -> Result<Arc<Hold>, InvalidRequestError> {
        let resource = key.of_hold().resource;
        let mut holds = self.holds.lock();
        let entries = holds.entry((resource.name.clone(), key.owner)).or_default();
        let mut known = None;
        for entry in entries.iter().filter(|entry| entry.concerns(&resource)) {
            // A hold that is just being dropped must still be released.
            match entry.hold.upgrade() {
                Some(hold) if entry.resource == resource => known = Some(hold),
                Some(hold) => {
                    drop(holds);
                    drop(hold);
                    return Err(InvalidRequestError::SetsOverlap);
                }
                None => {}
            }
        }
        if let Some(hold) = known {
            return Ok(hold);
        }
        let hold = Arc::new(Hold::named(Arc::clone(shared), key));
        entries.push(Entry { resource, hold: Arc::downgrade(&hold) });
        Ok(hold)
    }

    /// A lock without a guard stays taken for `rest`.
    pub(crate) fn abandoned(&self, key: &HoldKey, rest: Duration) {
        let (now, mut abandoned) = (env::now(), self.abandoned.lock());
        abandoned.retain(|_, until| *until > now);
        abandoned.insert(key.of_hold(), now + rest);
    }

    /// How long a lock of this owner stays taken although it has no guard, if it does.
    pub(crate) fn abandoned_for(&self, key: &HoldKey) -> Option<Duration> {
        let until = *self.abandoned.lock().get(&key.of_hold())?;
        Some(until.saturating_duration_since(env::now())).filter(|left| !left.is_zero())
    }

    /// Removes the holds of an owner under a name that no caller has any more.
    pub(crate) fn forget(&self, key: &HoldKey) {
        let mut holds = self.holds.lock();
        let entry_key = (key.resource.name.clone(), key.owner);
        if let Some(entries) = holds.get_mut(&entry_key) {
            entries.retain(|entry| entry.hold.strong_count() > 0);
            if entries.is_empty() {
                holds.remove(&entry_key);
            }
        }
    }
}

impl Entry {
    /// Whether it is the same hold, or one that must not exist beside it.
    fn concerns(&self, resource: &Resource) -> bool {
        self.resource == *resource || (resource.kind == Kind::Group && self.resource.overlaps(resource))
    }
}
