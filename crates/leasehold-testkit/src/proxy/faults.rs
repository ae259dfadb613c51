//! The faults of a proxy.

use std::{collections::HashSet, time::Duration};

use super::hub::Toward;

/// Which connections a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those that have not subscribed to anything.
    Command,
    /// Those that have sent `SUBSCRIBE`, `PSUBSCRIBE` or `SSUBSCRIBE`.
    PubSub,
}

impl Which {
    pub(super) fn covers(self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Command => kind == Kind::Command,
            Self::PubSub => kind == Kind::PubSub,
        }
    }
}

/// The use of a connection, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Command,
    PubSub,
}

/// The faults of connections of one kind.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) blackhole: bool,
    /// Data in this direction is held, data in the other one is not.
    pub(super) one_way: Option<Toward>,
    pub(super) delay: Duration,
    pub(super) drop_messages: bool,
}

/// The replies to lose.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) next: Option<Which>,
    pub(super) each: Option<Which>,
    /// The commands that have lost a reply by `each`.
    lost: HashSet<Vec<u8>>,
}

impl Losses {
    /// Whether the reply to this command is to be lost; if so, it counts as lost.
    pub(super) fn lose(&mut self, kind: Kind, command: &[u8]) -> bool {
        if self.next.is_some_and(|which| which.covers(kind)) {
            self.next = None;
            return true;
        }
        self.each.is_some_and(|which| which.covers(kind)) && self.lost.insert(command.into())
    }
}
