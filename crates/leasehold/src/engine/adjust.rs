//! What is done to a counter.

use std::time::Duration;

use crate::error::Failure;
use crate::owner::OwnerId;
use crate::permit_id::PermitId;

/// One change, or one question.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// A number that nothing else has, by which a repetition is recognised.
    pub(crate) request: OwnerId,
    pub(crate) adjust: Adjust,
    /// How long to ride through an outage.
    pub(crate) patience: Duration,
}

/// What to do with the count of one target.
#[derive(Debug, Clone)]
pub(crate) enum Adjust {
    /// Begin with this count, unless there is one. Tells 1 if it began, else 0.
    TrySet { count: u32, ttl: Option<Duration> },
    /// Make it this many, free and taken ones together.
    Set(u32),
    /// Add this, which may be less than nothing. Tells the sum.
    Add(i32),
    /// Give back this many; where nothing is, only if it may be `create`d. Tells 1 if it was done, else 0.
    Give { count: u32, create: bool },
    /// Give back these, all or none. Tells 0 if one of them is not taken.
    GiveIds(Vec<PermitId>),
    /// Let the lease of one begin anew, or take it away. Tells 1 if it is taken, else 0.
    SetLease(PermitId, Option<Duration>),
    /// Set to zero. Tells what it was.
    Drain,
    /// Count down by one, to zero at the least. Tells what is left.
    CountDown,
    /// Remove everything. Tells 1 if there was something, else 0.
    Delete,
    /// Tells the count; zero if there is none.
    Count,
    /// Tells how many are taken.
    Taken,
    /// Tells how many there are, free and taken ones.
    Total,
    /// Tells the milliseconds that are left of a lease: -1 if it has none, -2 if it is not taken.
    LeaseOf(PermitId),
}

impl Adjust {
    /// Whether those who wait may go on after a change with this result.
    #[cfg(feature = "remote")]
    pub(crate) fn frees(&self, told: i64) -> bool {
        match self {
            Self::CountDown => told == 0,
            Self::Drain => false,
            _ => true,
        }
    }

    /// Whether it is carried out as often as it is sent, without harm.
    #[cfg(feature = "remote")]
    pub(crate) fn is_question(&self) -> bool {
        matches!(self, Self::Count | Self::Taken | Self::Total | Self::LeaseOf(_))
    }
}

/// What came of a change.
#[derive(Debug, Clone)]
pub(crate) enum Adjusted {
    Done(i64),
    /// There was no way to ask, so nothing has changed.
    NotAsked(Failure),
}
