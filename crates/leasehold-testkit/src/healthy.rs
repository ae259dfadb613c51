//! Time during which the machine let this process run.
//!
//! A bound on how long something may take is judged by it: on a busy machine a process may not run for a while, which says
//! nothing about the code.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

/// How long the watching thread sleeps, and what counts as no stall: the timer of the system is not exact.
const TICK: Duration = Duration::from_millis(10);
const USUAL: Duration = Duration::from_millis(1);

/// For how many microseconds all in all the thread was woken too late.
static STALLED: LazyLock<&'static AtomicU64> = LazyLock::new(|| {
    static STALLED: AtomicU64 = AtomicU64::new(0);
    let watch = || {
        loop {
            let begun = Instant::now();
            thread::sleep(TICK);
            let late = begun.elapsed().saturating_sub(TICK);
            if late > USUAL {
                STALLED.fetch_add(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().name("stalls".into()).spawn(watch).expect("a thread can be started");
    &STALLED
});

/// Measures healthy time: real time without the stalls of this process.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    begun: Instant,
    stalled: u64,
}

impl Stopwatch {
    /// Begins now.
    #[must_use]
    pub fn start() -> Self {
        Self { stalled: STALLED.load(Ordering::Relaxed), begun: Instant::now() }
    }

    /// The healthy time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let stalled = STALLED.load(Ordering::Relaxed) - self.stalled;
        self.begun.elapsed().saturating_sub(Duration::from_micros(stalled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healthy_time_is_no_longer_than_real_time_and_goes_on() {
        let (real, healthy) = (Instant::now(), Stopwatch::start());
        thread::sleep(TICK * 10);
        let (healthy, real) = (healthy.elapsed(), real.elapsed());
        assert!(healthy <= real && healthy > Duration::ZERO, "{healthy:?} of {real:?}");
    }
}
