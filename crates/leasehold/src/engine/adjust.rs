//! Operations on a counter.

use std::time::Duration;

use crate::error::ServerError;
use crate::owner::OwnerId;
use crate::permit_id::PermitId;

/// One change, or one query.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// A unique number by which a retry is recognised.
    pub(crate) request: OwnerId,
    pub(crate) adjust: Adjust,
    /// How long to retry during an outage.
    pub(crate) patience: Duration,
}

/// The operation on the count of one resource.
#[derive(Debug, Clone)]
pub(crate) enum Adjust {
    /// Begin with this count, unless there is one. Returns 1 if it began, else 0.
    TrySet { count: u32, ttl: Option<Duration> },
    /// Set the total, free and taken permits together.
    Set(u32),
    /// Add this, which may be negative. Returns the sum.
    Add(i32),
    /// Release this many; where no count exists, only if it may be `create`d. Returns 1 if it was done, else 0.
    Give { count: u32, create: bool },
    /// Release these, all or none. Returns 0 if one of them is not taken.
    GiveIds(Vec<PermitId>),
    /// Let the lease of one begin anew, or remove it. Returns 1 if the permit is taken, else 0.
    SetLease(PermitId, Option<Duration>),
    /// Set to zero. Returns the count before.
    Drain,
    /// Count down by one, to zero at the least. Returns the rest.
    CountDown,
    /// Remove everything. Returns 1 if there was anything, else 0.
    Delete,
    /// Returns the count; zero if there is none.
    Count,
    /// Returns 1 if a count was set, else 0.
    Exists,
    /// Returns how many are taken.
    Taken,
    /// Returns how many there are, free and taken ones.
    Total,
    /// Returns the milliseconds that are left of a lease: -1 if it has none, -2 if it is not taken.
    LeaseOf(PermitId),
}

impl Adjust {
    /// Whether waiters may succeed after a change with this result.
    #[cfg(feature = "remote")]
    pub(crate) fn frees(&self, result: i64) -> bool {
        match self {
            Self::CountDown => result == 0,
            Self::Drain => false,
            _ => true,
        }
    }

    /// Whether it only reads, so that repeating it does no harm.
    #[cfg(feature = "remote")]
    pub(crate) fn is_query(&self) -> bool {
        matches!(self, Self::Count | Self::Exists | Self::Taken | Self::Total | Self::LeaseOf(_))
    }
}

/// The result of a change.
#[derive(Debug, Clone)]
pub(crate) enum Adjusted {
    Done(i64),
    /// The request could not be sent, so nothing has changed.
    NotSent(ServerError),
}
