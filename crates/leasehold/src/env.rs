//! What the library takes from its surroundings: the time, timers, tasks and random numbers. Nothing else here asks the
//! system or the runtime for them.
//!
//! Inside a tokio runtime both are tokio's, so a paused test clock moves leases and waits. A thread that
//! blocks sleeps on its own parking; a future on any other executor borrows the timer of one small thread.
//!
//! The clock counts the time the machine was suspended: a server goes on counting it.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
#[cfg(feature = "remote")]
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::block;
#[cfg(feature = "remote")]
use crate::race::{First, race};

pub(crate) type Instant = tokio::time::Instant;

/// The time now, by the clock of the runtime we are in or by the system's, and the time spent suspended.
pub(crate) fn now() -> Instant {
    Instant::now() + suspended()
}

/// The time after `length` from now. The far future, which no clock can tell, is never: there is none.
///
/// For lengths that callers give. Leases are at most a hundred years long, which every clock can add.
pub(crate) fn after(length: Duration) -> Option<Instant> {
    now().checked_add(length)
}

/// The time of one step. The clock is looked at when somebody wants to know it, which most steps do not, and once.
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

/// How long the machine was suspended since we first asked. It never shrinks.
///
/// Whoever suspends a machine moves the clock on its wall: only if that has moved against the running time do we look
/// closer. Both are read as they were at the last tick, which costs next to nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn suspended() -> Duration {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use rustix::time::{ClockId, clock_gettime};

    /// The clocks that count a suspend and the one that does not, apart at first, in nanoseconds: read so that it is rather
    /// too much than too little.
    static AT_FIRST: LazyLock<i64> = LazyLock::new(|| {
        let running = read(ClockId::Monotonic);
        read(ClockId::Boottime).saturating_sub(running)
    });
    static SO_FAR: AtomicU64 = AtomicU64::new(0);
    /// The wall clock and the running time, apart when we last looked closer.
    static SEEN: AtomicI64 = AtomicI64::new(i64::MIN);
    /// Less than a suspend can last, and more than a clock is set right by in a moment.
    const CLOSE: u64 = 1_000_000;

    fn read(clock: ClockId) -> i64 {
        let time = clock_gettime(clock);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    }

    let wall = read(ClockId::RealtimeCoarse).saturating_sub(read(ClockId::MonotonicCoarse));
    if wall.abs_diff(SEEN.load(Ordering::Relaxed)) > CLOSE {
        let at_first = *AT_FIRST;
        // In this order, a pause between the two makes the difference smaller: it is never too much.
        let apart = read(ClockId::Boottime);
        let apart = apart.saturating_sub(read(ClockId::Monotonic)).saturating_sub(at_first);
        SO_FAR.fetch_max(u64::try_from(apart).unwrap_or_default(), Ordering::Relaxed);
        SEEN.store(wall, Ordering::Relaxed);
    }
    Duration::from_nanos(SO_FAR.load(Ordering::Relaxed))
}

/// Where no clock tells, suspends are not counted.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn suspended() -> Duration {
    Duration::ZERO
}

/// Sleeps until `at`.
pub(crate) fn sleep_until(at: Instant) -> Sleep {
    sleep_until_or_forever(Some(at))
}

/// Sleeps until `at`, or for ever when there is no such time.
pub(crate) fn sleep_until_or_forever(at: Option<Instant>) -> Sleep {
    Sleep { end: at.map_or(End::Never, End::At), timer: None }
}

/// Sleeps so long from the first poll on, without a look at the clock before it.
pub(crate) fn sleep_for(length: Duration) -> Sleep {
    Sleep { end: End::After(length), timer: None }
}

/// What comes of `work` within `length`, if anything does.
#[cfg(feature = "remote")]
pub(crate) async fn within<T>(length: Duration, work: impl Future<Output = T>) -> Option<T> {
    match race(pin!(work), sleep_for(length)).await {
        First::Left(done) => Some(done),
        First::Right(()) => None,
    }
}

/// `length` shortened at random by up to a half, so that waiters that failed together do not come back together.
pub(crate) fn jittered(length: Duration) -> Duration {
    let part = u32::try_from(random_below(512)).unwrap_or_default();
    length / 2 + length / 1024 * part
}

/// A number below `sides` by chance: good enough to keep waiters apart, and nothing else.
pub(crate) fn random_below(sides: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % sides
}

/// The future of [`sleep_until`].
pub(crate) struct Sleep {
    end: End,
    /// Made at the first poll that is not a blocking one: only then is it known who polls.
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// When a sleep is over.
#[derive(Clone, Copy)]
enum End {
    At(Instant),
    After(Duration),
    Never,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let left = match self.end {
            End::At(at) => at.saturating_duration_since(now()),
            End::After(length) => length,
            End::Never => return Poll::Pending,
        };
        if left.is_zero() {
            return Poll::Ready(());
        }
        if block::is_blocking() {
            let at = if let End::At(at) = self.end { Some(at) } else { after(left) };
            self.end = at.map_or(End::Never, End::At);
            if let Some(at) = at {
                block::set_alarm(at);
            }
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| {
            let borrowed = Handle::try_current().is_err().then(|| BORROWED_TIMER.enter());
            let timer = Box::pin(tokio::time::sleep(left));
            drop(borrowed);
            timer
        });
        timer.as_mut().poll(context)
    }
}

/// The runtime that we are in, or the one of the thread that lends its timer.
pub(crate) fn handle() -> Handle {
    Handle::try_current().unwrap_or_else(|_| BORROWED_TIMER.clone())
}

/// Runs something small in the background: on the runtime we are in, so that a test clock moves it, or on the thread that
/// lends its timer.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    handle().spawn(work);
}

/// The same on the thread that lends its timer, whatever becomes of the runtime we are in.
pub(crate) fn spawn_apart(work: impl Future<Output = ()> + Send + 'static) {
    BORROWED_TIMER.spawn(work);
}

/// The timer of a thread of our own, for futures polled by an executor that is not tokio's, and for what has to go on
/// whatever becomes of a runtime.
static BORROWED_TIMER: LazyLock<Handle> = LazyLock::new(|| {
    let runtime =
        Builder::new_current_thread().enable_time().build().expect("a timer takes no system resource");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("leasehold-timer".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the system can start one more thread");
    handle
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_takes_away_at_most_half() {
        let second = Duration::from_secs(1);
        let drawn: Vec<_> = (0..1000).map(|_| jittered(second)).collect();
        assert!(drawn.iter().all(|length| (second / 2..second).contains(length)));
        assert!(drawn.iter().any(|length| *length != drawn[0]));
        assert!(jittered(Duration::MAX) >= Duration::MAX / 2);
    }
}
