//! The kind of lock that the users acquire.

use clap::ValueEnum;
use leasehold::{Client, Lock};
use serde::Serialize;

/// How the users of the demo wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Redisson's `RLock`: a waiter is woken when the lock is free.
    Plain,
    /// The key of `SET NX` that Lettuce, Spring and redis-py use: a waiter polls.
    Setnx,
    /// Redisson's fair lock: waiters are served in the order in which they came, over all processes.
    Fair,
    /// Redisson's spin lock: a waiter tries again after pauses.
    Spin,
}

impl Kind {
    /// The name of the kind in human-readable output.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Setnx => "SET NX",
            other => other.option(),
        }
    }

    /// The value of `--kind`.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Setnx => "setnx",
            Self::Fair => "fair",
            Self::Spin => "spin",
        }
    }

    /// The lock of this kind and name.
    pub(crate) fn lock(self, client: &Client, name: &str) -> Lock {
        match self {
            Self::Plain => client.lock(name),
            Self::Setnx => client.setnx_lock(name),
            Self::Fair => client.fair_lock(name).into(),
            Self::Spin => client.spin_lock(name),
        }
    }
}
