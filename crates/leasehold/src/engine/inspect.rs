//! Queries that change nothing.

use std::time::Duration;

use super::{Holding, Target};
use crate::owner::{Owner, OwnerId};

/// The query.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question<'a> {
    /// The holder of a target: of several, this owner if it is one of them.
    Holder(&'a Target, Option<OwnerId>),
    /// The last token that was minted for a target.
    Token(&'a Target),
    /// The queue of a fair lock.
    Queue(&'a Target),
    /// The uptime of the server.
    Uptime,
}

#[cfg(feature = "remote")]
impl<'a> Question<'a> {
    /// Its target, if it is about one.
    pub(crate) fn target(&self) -> Option<&'a Target> {
        match *self {
            Self::Holder(target, _) | Self::Token(target) | Self::Queue(target) => Some(target),
            Self::Uptime => None,
        }
    }
}

/// The result. Only the queried fields are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) holding: Option<Holding>,
    /// Zero if none was minted.
    pub(crate) token: u64,
    /// The next owner first.
    pub(crate) queue: Vec<Owner>,
    /// None where there is no server that could restart.
    pub(crate) uptime: Option<Duration>,
}
