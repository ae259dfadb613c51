//! How long a spinning waiter pauses between two attempts.

use std::time::Duration;

use crate::env::random_below;

/// The pauses between retries, as [`spin_lock`](crate::Client::spin_lock) uses them.
///
/// ```
/// use std::time::Duration;
/// use leasehold::BackOff;
///
/// let patient = BackOff::constant(Duration::from_millis(64));
/// let eager = BackOff::exponential(Duration::from_millis(1), Duration::from_millis(128));
/// assert_eq!(patient.pause(7), Duration::from_millis(64));
/// assert!(eager.pause(3) >= Duration::from_millis(8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    first: Duration,
    longest: Duration,
    factor: u32,
}

impl BackOff {
    /// The same pause every time.
    #[must_use]
    pub const fn constant(pause: Duration) -> Self {
        Self { first: pause, longest: pause, factor: 1 }
    }

    /// Pauses that double from `first` until they reach `longest`, with added jitter so that several waiters do not retry at
    /// the same time.
    #[must_use]
    pub const fn exponential(first: Duration, longest: Duration) -> Self {
        Self { first, longest, factor: 2 }
    }

    /// Lets the pauses grow by this factor instead of two.
    #[must_use]
    pub const fn factor(mut self, factor: u32) -> Self {
        self.factor = factor;
        self
    }

    /// The pause after so many failed attempts beyond the first. At least a millisecond: no waiter spins at full speed.
    #[must_use]
    pub fn pause(&self, failures: u32) -> Duration {
        let grown = self.first.saturating_mul(self.factor.saturating_pow(failures)).min(self.longest);
        // Jitter in whole milliseconds, which grows with the number of failures.
        let chance = if self.factor > 1 { random_below(u64::from(failures) + 1) } else { 0 };
        grown.saturating_add(Duration::from_millis(chance)).max(Duration::from_millis(1))
    }
}

impl Default for BackOff {
    /// Redisson's: from 1 ms by doubling to 128 ms.
    fn default() -> Self {
        Self::exponential(Duration::from_millis(1), Duration::from_millis(128))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sp_06_exponential_pauses_grow_to_the_cap_with_growing_jitter() {
        let ms = Duration::from_millis;
        let back_off = BackOff::exponential(ms(10), ms(100)).factor(3);
        for (failures, least, most) in [(0, 10, 10), (1, 30, 31), (2, 90, 92), (3, 100, 103), (4, 100, 104)] {
            for _ in 0..50 {
                let pause = back_off.pause(failures);
                assert!((ms(least)..=ms(most)).contains(&pause), "{failures}: {pause:?}");
            }
        }
        assert!(back_off.pause(u32::MAX) >= ms(100), "no overflow");
    }

    #[test]
    fn sp_07_constant_pauses_are_constant_and_never_zero() {
        let back_off = BackOff::constant(Duration::from_millis(30));
        assert!((0..10).all(|failures| back_off.pause(failures) == Duration::from_millis(30)));
        assert_eq!(BackOff::constant(Duration::ZERO).pause(3), Duration::from_millis(1));
    }
}
