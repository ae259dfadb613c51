//! Which writers of this client may have left a flag that keeps new readers out.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::Spot;

#[derive(Debug, Default)]
pub(super) struct WaitingWriters {
    // Invariant: a spot is here from before its flag can be left until after it is gone.
    spots: Mutex<HashSet<Spot>>,
}

impl WaitingWriters {
    /// A flag is about to be left.
    pub(super) fn add(&self, spot: &Spot) {
        self.spots().insert(spot.clone());
    }

    /// Whether there may be a flag, which the caller takes care of.
    pub(super) fn take(&self, spot: &Spot) -> bool {
        self.spots().remove(spot)
    }

    fn spots(&self) -> MutexGuard<'_, HashSet<Spot>> {
        self.spots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
