//! The lock and its owner.

use std::fmt;
use std::sync::Arc;

use crate::error::InvalidRequestError;
use crate::limits;
use crate::name::Name;
use crate::owner::OwnerId;

/// Which primitive a name stands for. The engines store each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The plain lock, and the fenced and the non-reentrant one.
    Lock,
    /// The same, released without a message.
    Spin,
    /// The same, with a wait queue.
    Fair,
    /// One string, as `SET … NX` makes it.
    SetNx,
    /// The half of a read-write lock that many owners can hold at once.
    Read,
    /// Its other half, which has a single holder.
    Write,
    /// Some values of a group, each of which has a single holder.
    Group,
    /// Permits that are only counted.
    Semaphore,
    /// Permits that have a lease.
    LeasedSemaphore,
    /// A count that goes down to zero.
    Latch,
}

impl Kind {
    #[cfg(feature = "metrics")]
    pub(crate) const COUNT: usize = Self::Latch as usize + 1;

    /// What it is called in texts.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Lock | Self::Spin | Self::Fair | Self::SetNx => "lock",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Group => "lock on values of the group",
            Self::Semaphore | Self::LeasedSemaphore => "semaphore",
            Self::Latch => "latch",
        }
    }

    /// What it is called in events and in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Spin => "spin",
            Self::Fair => "fair",
            Self::SetNx => "setnx",
            Self::Read => "read",
            Self::Write => "write",
            Self::Group => "group",
            Self::Semaphore => "semaphore",
            Self::LeasedSemaphore => "leased_semaphore",
            Self::Latch => "latch",
        }
    }

    /// Kinds of one family share their state.
    pub(crate) fn family(self) -> Family {
        match self {
            Self::Lock | Self::Spin | Self::Fair => Family::Lock,
            Self::SetNx => Family::SetNx,
            Self::Read | Self::Write => Family::Rw,
            Self::Group => Family::Group,
            Self::Semaphore => Family::Semaphore,
            Self::LeasedSemaphore => Family::LeasedSemaphore,
            Self::Latch => Family::Latch,
        }
    }

    /// The kind that stands for all kinds with the same hold: the holder of a spin lock holds the plain lock.
    pub(crate) fn of_hold(self) -> Self {
        match self {
            Self::Lock | Self::Spin | Self::Fair => Self::Lock,
            other => other,
        }
    }
}

/// Primitives that exclude each other under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    Lock,
    SetNx,
    Rw,
    Group,
    Semaphore,
    LeasedSemaphore,
    Latch,
}

/// One primitive of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    /// The values of a group, sorted and without duplicates. Other kinds have none. There may be thousands in many copies:
    /// in an `Arc` of a slice they would be compared one by one even if they are the same allocation.
    values: Option<Arc<Vec<Box<str>>>>,
}

/// One owner and one resource: identifies a hold or a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HoldKey {
    pub(crate) resource: Resource,
    pub(crate) owner: OwnerId,
    /// How much of it: one, unless the resource is divisible.
    pub(crate) amount: u32,
}

impl HoldKey {
    /// The same for all hold keys that share one hold.
    pub(crate) fn of_hold(&self) -> Self {
        Self { resource: self.resource.of_hold(), ..self.clone() }
    }
}

impl Resource {
    pub(crate) fn new(kind: Kind, name: Name) -> Self {
        Self { kind, name, values: None }
    }

    /// These values of a group, given in any order.
    pub(crate) fn group(
        name: Name,
        values: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, InvalidRequestError> {
        let mut values: Vec<Box<str>> = values.into_iter().map(|value| value.as_ref().into()).collect();
        values.sort_unstable();
        if let Some(twice) = values.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(InvalidRequestError::MemberTwice(twice[0].chars().take(80).collect()));
        }
        match values.len() {
            0 => return Err(InvalidRequestError::NoMembers),
            given if given > limits::MOST_VALUES => return Err(InvalidRequestError::TooManyValues { given }),
            _ => {}
        }
        Ok(Self { kind: Kind::Group, name, values: Some(Arc::new(values)) })
    }

    pub(crate) fn values(&self) -> &[Box<str>] {
        self.values.as_ref().map_or(&[], |values| values)
    }

    /// Whether the two conflict: the same name, and for a group a common value.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let has = |value| other.values().binary_search(value).is_ok();
        self.kind.family() == other.kind.family()
            && self.name == other.name
            && (self.kind != Kind::Group || self.values().iter().any(has))
    }

    fn of_hold(&self) -> Self {
        self.of_kind(self.kind.of_hold())
    }

    /// The same name as another kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        Self { kind, ..self.clone() }
    }

    /// Whether a hold of one is a hold of the other.
    #[cfg(feature = "remote")]
    pub(crate) fn shares_holds_with(&self, other: &Self) -> bool {
        self.kind.of_hold() == other.kind.of_hold() && self.name == other.name && self.values == other.values
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl fmt::Display for HoldKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.resource, self.owner)
    }
}
