//! Reading on the runtime of the callers, too.
//!
//! The thread of the sockets can do everything alone, and does where there is much to do. But whoever it tells something
//! sleeps on another thread, and waking that takes longer than everything else about a hand-over. So where there is little
//! to do, the runtime on which a client was made reads, and its tasks have what has come without another thread's being
//! woken. The thread of the sockets gives it a head start, and none if it was not there in time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long what has come is left to the runtime of the callers. Whoever blocks it for longer is not waited for.
const HEAD_START: Duration = Duration::from_millis(5);

/// With more answers to come than this, a thread of its own is worth being woken.
const FEW: usize = 4;

/// What is known of the runtime of the callers.
#[derive(Debug, Default)]
pub(crate) struct CallerReader {
    /// It came when there was last something to read.
    punctual: AtomicBool,
    /// The thread of the sockets waits for it.
    awaited: AtomicBool,
    visits: AtomicU64,
}

impl CallerReader {
    /// It comes to read; whether that is wanted when so many answers are to come.
    pub(crate) fn visit(&self, expected: impl FnOnce() -> usize) -> bool {
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.punctual.store(true, Ordering::SeqCst);
        expected() <= FEW || self.awaited.load(Ordering::SeqCst)
    }

    /// Waits for it, if it is to be expected. To be called on the thread of the sockets when there is something to read.
    pub(crate) async fn head_start(&self, expected: impl FnOnce() -> usize) {
        if !self.punctual.load(Ordering::SeqCst) {
            return;
        }
        // Said before it is so: of both, at least one reads, however many are sent meanwhile.
        self.awaited.store(true, Ordering::SeqCst);
        if expected() <= FEW {
            let before = self.visits.load(Ordering::SeqCst);
            tokio::time::sleep(HEAD_START).await;
            if self.visits.load(Ordering::SeqCst) == before {
                self.punctual.store(false, Ordering::SeqCst);
            }
        }
        self.awaited.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;

    /// How long the thread of the sockets waits.
    async fn waits(home: &CallerReader, expected: usize) -> Duration {
        let begun = env::now();
        home.head_start(|| expected).await;
        env::now() - begun
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_runtime_that_is_not_there() {
        let home = CallerReader::default();
        assert_eq!(waits(&home, 0).await, Duration::ZERO);
        assert!(home.visit(|| FEW));
        assert_eq!(waits(&home, FEW).await, HEAD_START);
        assert_eq!(waits(&home, FEW).await, Duration::ZERO, "it was not there in time");
        home.visit(|| 0);
        assert_eq!(waits(&home, 0).await, HEAD_START, "it has been heard of again");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_in_time_is_waited_for_again() {
        let home = CallerReader::default();
        home.visit(|| 0);
        for _ in 0..3 {
            let (waited, wanted) = tokio::join!(waits(&home, 1), async { home.visit(|| 1) });
            assert_eq!((waited, wanted), (HEAD_START, true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_much_to_do_one_of_both_does_it() {
        let home = CallerReader::default();
        assert!(!home.visit(|| FEW + 1), "the thread of the sockets does");
        assert_eq!(waits(&home, FEW + 1).await, Duration::ZERO);
        let (waited, wanted) = tokio::join!(waits(&home, FEW), async { home.visit(|| FEW + 1) });
        assert_eq!((waited, wanted), (HEAD_START, true), "the other has been left to wait for it");
    }
}
