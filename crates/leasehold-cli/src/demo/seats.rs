//! The count that everybody fights for.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many seats of the gathering are taken, as the engine's store keeps it. For `memory:` a value in memory.
///
/// It can be read and it can be written, and nothing more: what happens between the two is for the lock to
/// protect.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: AtomicU32,
}

impl Seats {
    // Relaxed, because the lock has to order these, and nothing here may help it.

    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn set_taken(&self, taken: u32) {
        self.taken.store(taken, Ordering::Relaxed);
    }
}
