//! The environment of the library: the time, timers, tasks, threads and random numbers. No other module requests them from
//! the system or the runtime.
//!
//! Inside a tokio runtime time and timers are tokio's, so a paused test clock moves leases and waits. A thread that
//! blocks sleeps on its own condition variable; a future on any other executor uses the timer of one small thread.
//!
//! The clock counts the time the machine was suspended, because a server counts it, too.
//!
//! In a simulation (feature `test-util`) all of it is provided by the host whose task is being polled: see [`sim`].

/// Returns the value of the simulated host instead, if a task of one is being polled.
macro_rules! in_simulation {
    ($read:expr) => {
        #[cfg(feature = "test-util")]
        if let Some(value) = crate::env::sim::here($read) {
            return value;
        }
    };
}

#[cfg(feature = "test-util")]
pub(crate) mod sim;
mod sleep;
mod suspend;

use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, Handle};

pub(crate) use self::sleep::{Sleep, sleep_for, sleep_until, sleep_until_or_forever};
use self::suspend::suspended;
use crate::cache_padded::CachePadded;
use crate::race::{First, race};

pub(crate) type Instant = tokio::time::Instant;

/// The time now, by the clock of the runtime we are in or by the system's, and the time spent suspended.
pub(crate) fn now() -> Instant {
    in_simulation!(sim::Host::now);
    Instant::now() + suspended()
}

/// The time of day, for people: nothing is judged by it.
pub(crate) fn wall_clock() -> SystemTime {
    in_simulation!(|_| SystemTime::UNIX_EPOCH);
    SystemTime::now()
}

/// Whether the clock of the runtime is ahead of the system's: a test has paused it, and it jumps from timer to timer.
pub(crate) fn clock_has_jumped() -> bool {
    in_simulation!(|_| false);
    let ahead = Instant::now().into_std().checked_duration_since(std::time::Instant::now());
    ahead.is_some_and(|ahead| ahead > Duration::from_millis(10))
}

/// The time after `length` from now; `None` for a far future that no clock can represent, which counts as never.
///
/// For lengths from callers. Leases are at most a hundred years long, which every clock can add.
pub(crate) fn after(length: Duration) -> Option<Instant> {
    now().checked_add(length)
}

/// The time of one step. The clock is read on the first use, which most steps do not have, and only once.
#[derive(Debug, Default)]
pub(crate) struct Now(OnceCell<Instant>);

impl Now {
    pub(crate) fn get(&self) -> Instant {
        *self.0.get_or_init(now)
    }
}

impl From<&Now> for Instant {
    fn from(now: &Now) -> Self {
        now.get()
    }
}

/// The output of `work`, if it is done within `length`.
pub(crate) async fn within<T>(length: Duration, work: impl Future<Output = T>) -> Option<T> {
    match race(pin!(work), sleep_for(length)).await {
        First::Left(done) => Some(done),
        First::Right(()) => None,
    }
}

/// `length` shortened at random by up to a half, so that waiters that failed together do not retry together.
pub(crate) fn jittered(length: Duration) -> Duration {
    let part = u32::try_from(random_below(512)).unwrap_or_default();
    length / 2 + length / 1024 * part
}

/// A random number below `sides`: good enough for jitter, and nothing else.
pub(crate) fn random_below(sides: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    in_simulation!(|host| host.random() % sides);
    RandomState::new().hash_one(0) % sides
}

/// Random bytes that no other machine has.
pub(crate) fn random_bytes() -> [u8; 16] {
    in_simulation!(sim::Host::random_bytes);
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// The first of some numbers never generated before in this process, and above every number of 32 bits.
pub(crate) fn unique_numbers(numbers: u32) -> u64 {
    // Padded: every read of the clock also reads neighbouring values, which would cost a sixth of all locks in memory.
    static NEXT: CachePadded<AtomicU64> = CachePadded(AtomicU64::new(1 << 32));
    in_simulation!(|host| host.unique_numbers(numbers));
    NEXT.0.fetch_add(numbers.into(), Ordering::Relaxed)
}

/// Whether this thread is inside a tokio runtime, be it one of its threads that may block.
pub(crate) fn has_runtime() -> bool {
    Handle::try_current().is_ok()
}

/// Where tasks are started: on a runtime, or on a host of a simulation.
#[derive(Debug, Clone)]
pub(crate) enum Tasks {
    Runtime(Handle),
    #[cfg(feature = "test-util")]
    Host(sim::Host),
}

impl Tasks {
    /// The current host or runtime, or else the timer thread.
    pub(crate) fn here() -> Self {
        in_simulation!(|host| Self::Host(host.clone()));
        Self::Runtime(Handle::try_current().unwrap_or_else(|_| BORROWED_TIMER.clone()))
    }

    /// The timer thread, or in a simulation no host.
    fn detached() -> Self {
        in_simulation!(|host| Self::Host(host.schedule().outside()));
        Self::Runtime(BORROWED_TIMER.clone())
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Runtime(runtime) => drop(runtime.spawn(work)),
            #[cfg(feature = "test-util")]
            Self::Host(host) => drop(host.spawn(work)),
        }
    }
}

/// Runs a small future in the background: on the current runtime, so that a test clock moves it, or on the timer thread.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    Tasks::here().spawn(work);
}

/// The same on the timer thread, independent of the current runtime.
pub(crate) fn spawn_detached(work: impl Future<Output = ()> + Send + 'static) {
    Tasks::detached().spawn(work);
}

/// Starts a thread.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// The timer of the library's own thread, for futures polled by an executor that is not tokio's, and for tasks that must
/// outlive a runtime.
static BORROWED_TIMER: LazyLock<Handle> = LazyLock::new(|| {
    let runtime =
        Builder::new_current_thread().enable_time().build().expect("a timer takes no system resource");
    let handle = runtime.handle().clone();
    start_thread("leasehold-timer", move || runtime.block_on(std::future::pending::<()>()))
        .expect("the system can start one more thread");
    handle
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_shortens_a_duration_by_at_most_half() {
        let second = Duration::from_secs(1);
        let drawn: Vec<_> = (0..1000).map(|_| jittered(second)).collect();
        assert!(drawn.iter().all(|length| (second / 2..second).contains(length)));
        assert!(drawn.iter().any(|length| *length != drawn[0]));
        assert!(jittered(Duration::MAX) >= Duration::MAX / 2);
    }
}
