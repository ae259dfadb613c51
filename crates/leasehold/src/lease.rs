//! How long a hold lasts, and the safety margin before its end.

use std::time::Duration;

use crate::client::Shared;
use crate::engine::Feature;
use crate::env::Instant;
use crate::error::InvalidRequestError;
use crate::limits;
use crate::loss::Loss;
use crate::term::Until;

/// How the end of a hold is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// As long as its guard lives: an engine with a server renews it at a third of this time.
    Kept(Duration),
    /// This long and no longer.
    Fixed(Duration),
}

impl Lease {
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::Kept(length) | Self::Fixed(length) => length,
        }
    }
}

/// How long a hold may last: its lease, and when it must end however often that is renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) lease: Lease,
    pub(crate) limit: Option<Instant>,
}

impl Bounds {
    /// How long a lease that begins at `begun` may be: the limit cuts it.
    #[cfg(feature = "remote")]
    pub(crate) fn length(&self, begun: Instant) -> Duration {
        let length = self.lease.length();
        let limit = self.limit.filter(|_| !mutation!("limit-not-kept"));
        limit.map_or(length, |limit| length.min(limit.saturating_duration_since(begun)))
    }

    /// Until when a hold may be trusted whose lease of `length` a server began no earlier than `begun`.
    #[cfg(feature = "remote")]
    pub(crate) fn until(&self, begun: Instant, length: Duration) -> Until {
        let end = begun + if mutation!("wrong-deadline") { length + margin(length) * 2 } else { length };
        let loss = match self.lease {
            // A renewal would move the end by less than the margin.
            _ if self.limit.is_some_and(|limit| limit <= end + margin(length)) => Loss::MaxHold,
            Lease::Kept(_) => Loss::Unreachable,
            Lease::Fixed(_) => Loss::Expired,
        };
        Until::Deadline(end - margin(length), loss)
    }

    /// Until when a hold may be trusted that ends at `end` and that nothing renews.
    pub(crate) fn until_end(&self, end: Instant, now: Instant) -> Until {
        let loss = if self.limit == Some(end) { Loss::MaxHold } else { Loss::Expired };
        let left = end.saturating_duration_since(now);
        let length = match self.lease {
            // As on a server, where such a hold is renewed for one watchdog time-out at a time.
            Lease::Kept(length) => length.min(left),
            Lease::Fixed(_) => left,
        };
        Until::Deadline(end - margin(length), loss)
    }
}

/// When a hold expires at its engine: after its lease, or at the end of an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    lease: Lease,
    extended: Option<Instant>,
}

impl Expiry {
    pub(crate) fn new(lease: Lease, extended: Option<Instant>) -> Self {
        Self { lease, extended }
    }

    /// The moment, if the lease began no later than now.
    #[cfg(feature = "remote")]
    pub(crate) fn at(self) -> Instant {
        let expires = crate::env::now() + self.lease.length();
        self.extended.map_or(expires, |extended| expires.max(extended))
    }
}

impl Expiry {
    /// How long until then at most.
    pub(crate) fn within(self) -> Duration {
        let left = self.extended.map_or(Duration::ZERO, |at| at.saturating_duration_since(crate::env::now()));
        self.lease.length().max(left)
    }
}

impl From<Lease> for Expiry {
    fn from(lease: Lease) -> Self {
        Self::new(lease, None)
    }
}

/// The lease of permits that are only counted: how long their record outlives a dead client.
pub(crate) const COUNTED: Duration = Duration::from_secs(24 * 60 * 60);

/// The lease of a permit that has none: this number of ms is stored in place of its expiry time.
pub(crate) const PERMANENT: Duration = Duration::from_millis(922_337_203_685_477);

/// How long before the engine's expiry a guard counts as lost.
///
/// It covers the drift between our clock and the engine's during that time.
pub(crate) fn margin(length: Duration) -> Duration {
    if mutation!("no-margin") { Duration::ZERO } else { (length / 100).max(SMALLEST_MARGIN) }
}

const SMALLEST_MARGIN: Duration = Duration::from_millis(2);

/// Checks a length from a caller, and truncates it to whole milliseconds, the unit of every engine.
pub(crate) fn checked(what: &'static str, length: Duration) -> Result<Duration, InvalidRequestError> {
    if length < limits::SHORTEST_LEASE {
        return Err(InvalidRequestError::TooShort { what, given: length });
    }
    if length > limits::LONGEST_LEASE {
        return Err(InvalidRequestError::TooLong { what, given: length });
    }
    Ok(Duration::new(length.as_secs(), length.subsec_millis() * 1_000_000))
}

/// Checks a `min_hold` from a caller against the times after which its hold would end.
pub(crate) fn min_hold(
    shared: &Shared,
    length: Duration,
    ends: &[(&'static str, Option<Duration>)],
) -> Result<Duration, InvalidRequestError> {
    shared.check(Feature::MinHold)?;
    let length = checked("min_hold", length)?;
    let shorter = ends.iter().find_map(|(what, end)| Some((*what, end.filter(|end| *end < length)?)));
    match shorter {
        Some((what, end)) => Err(InvalidRequestError::MinHoldTooLong { given: length, what, end }),
        None => Ok(length),
    }
}

/// Checks that the counter of a token outlives a hold that ends after the greatest of these.
pub(crate) fn outlived(
    retention: Option<Duration>,
    ends: &[(&'static str, Option<Duration>)],
) -> Result<(), InvalidRequestError> {
    let Some(given) = retention else { return Ok(()) };
    let given = checked("token_retention", given)?;
    let longer = ends.iter().find_map(|(what, end)| Some((*what, end.filter(|end| *end >= given)?)));
    match longer {
        Some((what, end)) => Err(InvalidRequestError::TokenRetentionTooShort { given, what, end }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safety_margin_is_one_percent_but_never_below_two_milliseconds() {
        let margin = |ms| margin(Duration::from_millis(ms));
        assert_eq!(margin(20), Duration::from_millis(2));
        assert_eq!(margin(200), Duration::from_millis(2));
        assert_eq!(margin(30_000), Duration::from_millis(300));
    }

    #[cfg(feature = "remote")]
    #[test]
    fn a_lease_that_ends_just_before_max_hold_is_lost_because_of_max_hold() {
        let begun = crate::env::now();
        let loss = |lease, before: u64| {
            let length = Duration::from_millis(680);
            let limit = Some(begun + length + Duration::from_millis(before));
            match (Bounds { lease, limit }).until(begun, length) {
                Until::Deadline(_, loss) => loss,
                Until::Kept(_) => panic!("it ends"),
            }
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            [0, 6, 7].map(|before| loss(Lease::Kept(second), before)),
            [Loss::MaxHold, Loss::MaxHold, Loss::Unreachable]
        );
        assert_eq!(loss(Lease::Fixed(second), 7), Loss::Expired);
    }

    #[test]
    fn a_lease_is_at_least_ten_margins_and_whole_milliseconds() {
        let check = |length| checked("lease", length);
        assert!(check(Duration::ZERO).is_err());
        assert!(check(Duration::from_micros(900)).is_err());
        assert!(check(Duration::from_nanos(19_999_999)).is_err());
        assert_eq!(check(SMALLEST_MARGIN * 10), Ok(Duration::from_millis(20)));
        assert_eq!(check(Duration::from_micros(20_999)), Ok(Duration::from_millis(20)));
        assert!(check(Duration::MAX).is_err());
    }
}
