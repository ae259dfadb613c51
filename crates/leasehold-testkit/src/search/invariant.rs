//! What has to be so in every round.

use std::fmt;

/// What a violation is one of. Its name comes first in every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invariant {
    /// No two guards that exclude each other say at once that they are held.
    Exclusion,
    /// No more permits are out than there are.
    Permits,
    /// A later holder has a greater token.
    Tokens,
    /// A guard is lost only by something that happened.
    Loss,
    /// What a guard says is what another client learns when it is quiet.
    Truth,
    /// A client that has forced a lock, or was shut down, has told its guards.
    Told,
    /// An owner that has given everything back has nothing.
    Owner,
    /// Every operation ends within its limit.
    Ends,
    /// A waiter gets what is free.
    Stranded,
    /// What is given back is free, and nothing is left at the end.
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
