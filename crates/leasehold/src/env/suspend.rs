//! How long the machine was suspended.

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::sync::LazyLock;
use std::time::Duration;

/// How long the machine was suspended since the first call. It never shrinks.
///
/// A suspend moves the wall clock: only if that has moved against the running time are the exact clocks read. Both are
/// read as they were at the last tick, which costs almost nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn suspended() -> Duration {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use rustix::time::{ClockId, clock_gettime};

    /// The initial difference between the clock that counts a suspend and the one that does not, in nanoseconds: read so that
    /// it is too large rather than too small.
    static AT_FIRST: LazyLock<i64> = LazyLock::new(|| {
        let running = read(ClockId::Monotonic);
        read(ClockId::Boottime).saturating_sub(running)
    });
    static SO_FAR: AtomicU64 = AtomicU64::new(0);
    /// The difference between the wall clock and the running time when the exact clocks were last read.
    static SEEN: AtomicI64 = AtomicI64::new(i64::MIN);
    /// Less than a suspend can last, and more than a clock is adjusted by in a moment.
    const CLOSE: u64 = 1_000_000;

    fn read(clock: ClockId) -> i64 {
        let time = clock_gettime(clock);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    }

    let wall = read(ClockId::RealtimeCoarse).saturating_sub(read(ClockId::MonotonicCoarse));
    if wall.abs_diff(SEEN.load(Ordering::Relaxed)) > CLOSE {
        let at_first = *AT_FIRST;
        // In this order, a pause between the two makes the difference smaller: it is never too large.
        let difference = read(ClockId::Boottime);
        let difference = difference.saturating_sub(read(ClockId::Monotonic)).saturating_sub(at_first);
        SO_FAR.fetch_max(u64::try_from(difference).unwrap_or_default(), Ordering::Relaxed);
        SEEN.store(wall, Ordering::Relaxed);
    }
    Duration::from_nanos(SO_FAR.load(Ordering::Relaxed))
}

/// Where no clock measures suspends, they are not counted.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn suspended() -> Duration {
    Duration::ZERO
}
