//! A count that detects when two owners hold a lock at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// A count kept by reading, waiting and writing: two concurrent additions lose an increment.
#[derive(Debug, Default)]
pub struct Tally {
    /// Atomic only because Rust requires it: it is never changed in one step.
    count: AtomicU64,
}

impl Tally {
    /// Adds one, slowly enough that a concurrent addition would interfere.
    ///
    /// # Panics
    ///
    /// If one did.
    pub async fn add(&self) {
        let seen = self.count();
        sleep(MEANWHILE).await;
        self.write(seen);
    }

    /// Adds one from a plain thread.
    ///
    /// # Panics
    ///
    /// As for [`add`](Tally::add).
    pub fn add_on_thread(&self) {
        let seen = self.count();
        std::thread::sleep(MEANWHILE);
        self.write(seen);
    }

    fn write(&self, seen: u64) {
        assert_eq!(self.count(), seen, "two held the lock at once");
        self.count.store(seen + 1, Ordering::SeqCst);
    }

    /// How often one was added.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

const MEANWHILE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "two held the lock at once")]
    async fn the_tally_panics_on_two_concurrent_additions() {
        let tally = Tally::default();
        tokio::join!(tally.add(), tally.add());
    }

    #[tokio::test(start_paused = true)]
    async fn the_tally_counts_additions_one_after_the_other() {
        let tally = Tally::default();
        tally.add().await;
        tally.add_on_thread();
        assert_eq!(tally.count(), 2);
    }
}
