//! The resources that are held, and which holds exclude each other.

use leasehold::{Client, Lock};

/// Which primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The plain lock.
    Plain,
    /// The plain lock, waited for by polling.
    Spin,
    /// The plain lock, with a token.
    Fenced,
    /// Several plain locks.
    Multi,
    /// The fair lock.
    Fair,
    /// The lock by `SET … NX`.
    SetNx,
    /// Values of a group.
    Group,
    /// The read half.
    Read,
    /// The write half.
    Write,
    /// The same lock on several servers.
    Quorum,
    /// Counted permits.
    Semaphore,
    /// Permits with a lease.
    Leased,
}

impl Kind {
    /// All kinds on one client.
    pub(super) const ALL: &[Self] = &[
        Self::Plain,
        Self::Spin,
        Self::Fenced,
        Self::Multi,
        Self::Fair,
        Self::SetNx,
        Self::Group,
        Self::Read,
        Self::Write,
        Self::Semaphore,
        Self::Leased,
    ];
    /// Those with a handle that is a [`Lock`].
    pub(super) const LOCKS: &[Self] = &[
        Self::Plain,
        Self::Spin,
        Self::Fenced,
        Self::Fair,
        Self::SetNx,
        Self::Group,
        Self::Read,
        Self::Write,
    ];

    /// Kinds of one space share their names.
    pub(super) fn space(self) -> &'static str {
        match self {
            Self::Plain | Self::Spin | Self::Fenced | Self::Multi => "plain",
            Self::Fair => "fair",
            Self::SetNx => "setnx",
            Self::Group => "group",
            Self::Read | Self::Write => "rw",
            Self::Quorum => "quorum",
            Self::Semaphore => "semaphore",
            Self::Leased => "leased",
        }
    }

    /// Whether it counts permits.
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Semaphore | Self::Leased)
    }
}

/// How many permits each semaphore has.
pub(super) const PERMITS: u32 = 3;
/// How many names there are in a space, and values in the group.
pub(super) const NAMES: u32 = 3;

/// The resource of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// Which primitive.
    pub(super) kind: Kind,
    /// The names, or the values of the group, as bits.
    pub(super) parts: u8,
    /// How many permits.
    pub(super) permits: u32,
}

impl Resource {
    /// A resource with one name.
    #[must_use]
    pub(super) fn new(kind: Kind, name: u32) -> Self {
        Self { kind, parts: 1 << name, permits: 1 }
    }

    /// A resource with several names or values: those of the bits.
    #[must_use]
    pub(super) fn of_parts(kind: Kind, parts: u8) -> Self {
        Self { kind, parts, permits: 1 }
    }

    pub(super) fn numbers(self) -> impl Iterator<Item = u32> {
        (0..NAMES).filter(move |number| self.parts & (1 << number) != 0)
    }

    /// The name of the number.
    pub(super) fn name_of(kind: Kind, number: u32) -> String {
        format!("lock:{}:{number}", kind.space())
    }

    /// Its names, where it has several; its only one otherwise.
    pub(super) fn names(self) -> Vec<String> {
        match self.kind {
            Kind::Group => vec![Self::name_of(self.kind, 0)],
            kind => self.numbers().map(|number| Self::name_of(kind, number)).collect(),
        }
    }

    pub(super) fn name(self) -> String {
        self.names().swap_remove(0)
    }

    pub(super) fn values(self) -> Vec<String> {
        self.numbers().map(|number| format!("value {number}")).collect()
    }

    /// Whether both have a name or value in common.
    #[must_use]
    pub(super) fn touches(self, other: Self) -> bool {
        self.kind.space() == other.kind.space() && self.parts & other.parts != 0
    }

    /// Whether two owners cannot hold both at once, whatever else is held. Permits are counted instead.
    #[must_use]
    pub(super) fn excludes(self, other: Self) -> bool {
        let read = self.kind == Kind::Read && other.kind == Kind::Read;
        self.touches(other) && !read && !self.kind.counts()
    }

    /// The handle of its only lock.
    pub(super) fn lock(self, client: &Client) -> Option<Lock> {
        let name = self.name();
        match self.kind {
            Kind::Plain | Kind::Fenced => Some(client.lock(name)),
            Kind::Spin => Some(client.spin_lock(name)),
            Kind::Fair => Some(client.fair_lock(name).into()),
            Kind::SetNx => Some(client.setnx_lock(name)),
            Kind::Group => Some(client.group_lock(name, self.values())),
            Kind::Read => Some(client.rw_lock(name).read().into()),
            Kind::Write => Some(client.rw_lock(name).write().into()),
            Kind::Multi | Kind::Quorum | Kind::Semaphore | Kind::Leased => None,
        }
    }
}
