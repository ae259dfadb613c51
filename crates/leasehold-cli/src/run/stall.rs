//! Whether this process itself stood still, so that a lock was not renewed.

use std::time::Duration;

use super::clock;

/// The moments at which the supervisor was awake.
#[derive(Debug)]
pub(super) struct Stall {
    lease: Duration,
    awake: Duration,
    /// When the last long pause was over.
    resumed: Option<Duration>,
}

impl Stall {
    /// The supervisor of a lock with this lease is awake now, and from now on at least six times in a lease.
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, awake: clock::since_boot(), resumed: None }
    }

    /// The supervisor is awake.
    pub(super) fn awake(&mut self) {
        self.awake_at(clock::since_boot());
    }

    /// Whether the process stood still within the last lease for so long that a renewal is missing.
    pub(super) fn is_recent(&self) -> bool {
        self.is_recent_at(clock::since_boot())
    }

    fn awake_at(&mut self, now: Duration) {
        if self.is_long(now) {
            self.resumed = Some(now);
        }
        self.awake = now;
    }

    fn is_recent_at(&self, now: Duration) -> bool {
        self.is_long(now) || self.resumed.is_some_and(|resumed| now.saturating_sub(resumed) < self.lease)
    }

    /// A third of the lease is between two renewals.
    fn is_long(&self, now: Duration) -> bool {
        now.saturating_sub(self.awake) > self.lease / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_more_than_a_third_of_the_lease_counts_for_one_lease() {
        let seconds = Duration::from_secs;
        let mut stall = Stall { lease: seconds(30), awake: seconds(100), resumed: None };
        for second in 101..=110 {
            stall.awake_at(seconds(second));
        }
        assert!(!stall.is_recent_at(seconds(120)));
        assert!(stall.is_recent_at(seconds(121)));
        stall.awake_at(seconds(121));
        for second in 122..=170 {
            assert_eq!(stall.is_recent_at(seconds(second)), second < 151, "{second}");
            stall.awake_at(seconds(second));
        }
    }
}
