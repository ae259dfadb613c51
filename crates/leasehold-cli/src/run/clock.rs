//! The clock that two processes of one machine share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The time since the machine started, on the clock that the guard uses for its deadline.
///
/// On Linux it counts the time that the machine was suspended, as the server's clock does.
pub(super) fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    // Both clocks exist wherever this compiles. If not: the far future, when every lock has expired.
    clock_gettime(clock).map_or(Duration::MAX, Duration::from)
}
