//! The invariants of every round.

use std::fmt;

/// The invariant that a violation breaks. Its name is the first word of every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invariant {
    /// No two guards that exclude each other report at once that they are held.
    Exclusion,
    /// No more permits are held than there are.
    Permits,
    /// A later holder has a greater token.
    Tokens,
    /// A guard is lost only with a cause.
    Loss,
    /// With no request in flight, a guard reports the same as another client's query.
    Truth,
    /// A client that has forced a lock, or was shut down, has notified its guards.
    Told,
    /// An owner that has released everything holds nothing.
    Owner,
    /// Every operation ends within its limit.
    Ends,
    /// A waiter acquires a lock that is free.
    Stranded,
    /// A released lock is free, and nothing is left at the end.
    Left,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "exclusion",
            Self::Permits => "permits",
            Self::Tokens => "tokens",
            Self::Loss => "loss",
            Self::Truth => "truth",
            Self::Told => "told",
            Self::Owner => "owner",
            Self::Ends => "ends",
            Self::Stranded => "stranded",
            Self::Left => "left",
        })
    }
}
