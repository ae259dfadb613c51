//! Which values of a group each owner has to do with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::client::Shared;
use crate::engine::{Spot, Target};
use crate::error::Invalid;
use crate::hold::Hold;
use crate::name::Name;
use crate::owner::OwnerId;

/// The holds of all groups, by owner.
///
/// An engine counts an owner for each value by itself, and a hold counts for all of its values at once. Both agree only
/// if two holds of one owner have no value in common.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    holds: Mutex<HashMap<(Name, OwnerId), Vec<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    hold: Weak<Hold>,
}

impl Sets {
    /// The hold of an owner, the same for all who ask for it while anybody has it.
    pub(crate) fn hold(&self, shared: &Arc<Shared>, spot: Spot) -> Result<Arc<Hold>, Invalid> {
        let mut holds = self.holds();
        let entries = holds.entry((spot.target.name.clone(), spot.owner)).or_default();
        let mut known = None;
        for entry in entries.iter().filter(|entry| entry.target.overlaps(&spot.target)) {
            // One that is just being dropped still has to give back what it holds.
            match entry.hold.upgrade() {
                Some(hold) if entry.target == spot.target => known = Some(hold),
                Some(hold) => {
                    // Not under the mutex: it may be the last to go.
                    drop(holds);
                    drop(hold);
                    return Err(Invalid::SetsOverlap);
                }
                None => {}
            }
        }
        if let Some(hold) = known {
            return Ok(hold);
        }
        let target = spot.target.clone();
        let hold = Arc::new(Hold::named(Arc::clone(shared), spot));
        entries.push(Entry { target, hold: Arc::downgrade(&hold) });
        Ok(hold)
    }

    /// Forgets the holds of an owner that nobody has any more.
    pub(crate) fn forget(&self, spot: &Spot) {
        let mut holds = self.holds();
        let key = (spot.target.name.clone(), spot.owner);
        if let Some(entries) = holds.get_mut(&key) {
            entries.retain(|entry| entry.hold.strong_count() > 0);
            if entries.is_empty() {
                holds.remove(&key);
            }
        }
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<(Name, OwnerId), Vec<Entry>>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
