//! Which server has a lock.

use std::sync::Weak;

use super::net::{Lane, Node, Settings};
use crate::engine::Target;
use crate::engine::remote::store::{Events, Shard};
use crate::error::Failure;

/// The servers behind one URL. A closed set, so an enum.
pub(super) enum Topology {
    /// One server has all locks.
    Single(Node),
}

impl Topology {
    pub(super) fn single(settings: Settings, events: Weak<dyn Events>) -> Self {
        Self::Single(Node::new(settings, Shard::ONLY, events))
    }

    /// The way to the server that has a target.
    pub(super) fn lane(&self, _target: &Target) -> &Lane {
        self.any()
    }

    /// The way to a shard.
    pub(super) fn lane_of(&self, _shard: Shard) -> &Lane {
        self.any()
    }

    /// The way to a server, whichever it is.
    pub(super) fn any(&self) -> &Lane {
        match self {
            Self::Single(node) => node.lane(),
        }
    }

    /// Connects for the first time.
    pub(super) async fn open(&self) -> Result<(), Failure> {
        match self {
            Self::Single(node) => node.open().await,
        }
    }

    /// Keeps connected, until it is closed.
    pub(super) async fn run(&self) {
        match self {
            Self::Single(node) => node.run().await,
        }
    }

    pub(super) fn close(&self) {
        match self {
            Self::Single(node) => node.close(),
        }
    }
}
