//! The time limits of holds, to distinguish a loss at the limit from one without a cause.

use std::time::Duration;

use tokio::time::Instant;

use super::checker::{Identity, RequestTimes};

/// The requested limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    leases: Vec<Limit>,
    most: Vec<Limit>,
}

#[derive(Debug)]
struct Limit {
    of: Identity,
    begun: Instant,
    length: Duration,
}

impl Limit {
    /// Whether it is over, with the margin of a guard and of a clock that is fast.
    fn is_over(&self, now: Instant) -> bool {
        let early = self.length / 100 * 3 + Duration::from_millis(10);
        now >= self.begun + self.length.saturating_sub(early)
    }
}

impl Limits {
    pub(super) fn requested(&mut self, of: Identity, times: RequestTimes) {
        let limit = |length| Limit { of, begun: times.at, length };
        self.leases.extend(times.lease.map(limit));
        self.most.extend(times.max_hold.map(limit));
    }

    /// Adds a lease that begins now.
    pub(super) fn lease(&mut self, of: Identity, begun: Instant, length: Duration) {
        self.leases.push(Limit { of, begun, length });
    }

    /// Whether one of its leases is over.
    pub(super) fn has_expired(&self, of: Identity, now: Instant) -> bool {
        self.leases.iter().any(|limit| limit.of == of && limit.is_over(now))
    }

    /// Whether it has reached its longest hold time.
    pub(super) fn is_at_most(&self, of: Identity, now: Instant) -> bool {
        self.most.iter().any(|limit| limit.of == of && limit.is_over(now))
    }
}
