//! Why nothing was found out about locks, or a lock was not freed.

use std::io;
use std::time::Duration;

use leasehold::QueryError;
use nix::sys::signal::Signal;
use thiserror::Error;

use crate::duration::human;
use crate::run::killed_by;

/// What `ls`, `inspect`, `watch`, `unlock` and `wait` end with if they fail.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LookError {
    /// An engine that no other process can reach.
    #[error(
        "`memory:` lives inside one process, so there is nothing of it to be seen from here: call `client.list` in that process, \
         or give the --url of a server or directory"
    )]
    Memory,
    /// A query has failed.
    #[error("{0}")]
    Query(leasehold::Error),
    /// There is no terminal to ask at.
    #[error("{held}. To free it, say --yes: there is no terminal to ask at")]
    NoTerminal {
        /// Which lock is held, and its holder.
        held: String,
    },
    /// A lock that cannot be freed by force.
    #[error("{held}. {advice}")]
    NotFreed {
        /// Which lock is held, and its holder.
        held: String,
        /// What to do instead.
        advice: String,
    },
    /// It was not free for the whole wait.
    #[error("{held}, and was not free for {}: wait longer with --wait", human(*.waited))]
    TimedOut {
        /// Which lock is held, and its holder.
        held: String,
        /// The limit.
        waited: Duration,
    },
    /// A signal ended it.
    #[error("ended by {}", .0.as_str())]
    Signal(Signal),
    /// The signals cannot be listened for.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
}

impl LookError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Query(leasehold::Error::Query(QueryError::Invalid { .. }))
            | Self::Memory
            | Self::NoTerminal { .. }
            | Self::NotFreed { .. } => 2,
            Self::Query(_) => 69,
            Self::TimedOut { .. } => 75,
            Self::Signal(signal) => killed_by(*signal as i32),
            Self::Signals(_) => 1,
        }
    }
}

impl From<QueryError> for LookError {
    fn from(error: QueryError) -> Self {
        Self::Query(error.into())
    }
}
