//! The clock of one host.

use std::time::Duration;

use crate::env::Instant;

/// A clock that may run fast or slow.
#[derive(Debug)]
pub(super) struct Clock {
    /// When it was set, by the time of the simulation.
    set: Instant,
    /// The time it showed then.
    showed: Instant,
    /// How much it moves in a second of the simulation.
    rate: f64,
}

impl Clock {
    /// A clock that runs at the normal rate.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { set: now, showed: now, rate: 1.0 }
    }

    /// The time it shows now.
    pub(super) fn now(&self) -> Instant {
        self.showed + self.set.elapsed().mul_f64(self.rate)
    }

    /// Continues at another rate.
    pub(super) fn run_at(&mut self, rate: f64) {
        *self = Self { showed: self.now(), set: Instant::now(), rate };
    }

    /// Approximately when it shows `shown`, by the time of the simulation, and later than now.
    pub(super) fn shows_at(&self, shown: Instant) -> Option<Instant> {
        let left = shown.saturating_duration_since(self.showed).as_secs_f64() / self.rate;
        let at = Duration::try_from_secs_f64(left).ok().and_then(|left| self.set.checked_add(left))?;
        Some(at.max(Instant::now() + SHORTEST))
    }
}

/// The runtime's timers are not more exact than this.
const SHORTEST: Duration = Duration::from_millis(1);
