//! What is locked, and for whom.

use std::fmt;

use crate::name::Name;
use crate::owner::OwnerId;

/// Which primitive a name stands for. The engines keep each in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The plain lock, and the fenced and the non-reentrant one.
    Lock,
    /// The same, released without a word.
    Spin,
    /// The same, with a queue of those who wait.
    Fair,
    /// One string, as `SET … NX` makes it.
    SetNx,
    /// The half of a read-write lock that many have at once.
    Read,
    /// Its other half, which one owner has alone.
    Write,
    /// Permits that are only counted.
    Semaphore,
    /// Permits that have a lease.
    Permits,
    /// A count that goes down to zero.
    Latch,
}

impl Kind {
    /// Those of one family share their state.
    pub(crate) fn family(self) -> Family {
        match self {
            Self::Lock | Self::Spin | Self::Fair => Family::Lock,
            Self::SetNx => Family::SetNx,
            Self::Read | Self::Write => Family::Rw,
            Self::Semaphore => Family::Semaphore,
            Self::Permits => Family::Permits,
            Self::Latch => Family::Latch,
        }
    }

    /// The one that stands for all whose holds are the same thing: who has a spin lock has the plain one.
    pub(crate) fn of_hold(self) -> Self {
        match self {
            Self::Lock | Self::Spin | Self::Fair => Self::Lock,
            other => other,
        }
    }
}

/// Primitives that exclude each other under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    Lock,
    SetNx,
    Rw,
    Semaphore,
    Permits,
    Latch,
}

/// One primitive of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Name,
}

/// One owner at one target: whose hold it is, or whose place in the line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) target: Target,
    pub(crate) owner: OwnerId,
    /// How much of it: one, unless the target can be had in parts.
    pub(crate) amount: u32,
}

impl Spot {
    /// The same for all spots at which there can be only one hold.
    pub(crate) fn of_hold(&self) -> Self {
        Self { target: self.target.of_hold(), ..self.clone() }
    }
}

impl Target {
    fn of_hold(&self) -> Self {
        Self { kind: self.kind.of_hold(), name: self.name.clone() }
    }

    /// Whether what is held of one is held of the other.
    #[cfg(feature = "redis")]
    pub(crate) fn shares_holds_with(&self, other: &Self) -> bool {
        self.kind.of_hold() == other.kind.of_hold() && self.name == other.name
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.target, self.owner)
    }
}
