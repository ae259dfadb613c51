//! Queries that change nothing.

use std::time::Duration;

use super::{Holding, Resource};
use crate::owner::{Owner, OwnerId};

/// The query.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Query<'a> {
    /// The holder of a resource: of several, this owner if it is one of them.
    Holder(&'a Resource, Option<OwnerId>),
    /// The last token that was minted for a resource.
    Token(&'a Resource),
    /// The queue of a fair lock.
    Queue(&'a Resource),
    /// The uptime of the server.
    Uptime,
}

#[cfg(feature = "remote")]
impl<'a> Query<'a> {
    /// Its resource, if it is about one.
    pub(crate) fn resource(&self) -> Option<&'a Resource> {
        match *self {
            Self::Holder(resource, _) | Self::Token(resource) | Self::Queue(resource) => Some(resource),
            Self::Uptime => None,
        }
    }
}

/// The result. Only the queried fields are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueryResult {
    pub(crate) holding: Option<Holding>,
    /// Zero if none was minted.
    pub(crate) token: u64,
    /// The next owner first.
    pub(crate) queue: Vec<Owner>,
    /// None where there is no server that could restart.
    pub(crate) uptime: Option<Duration>,
}
