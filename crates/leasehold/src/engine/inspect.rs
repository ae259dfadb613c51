//! Queries that change nothing.

use std::time::Duration;

use super::{Holding, Resource};
use crate::client_id::ClientId;
use crate::identity::{ClientInfo, in_process};
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
    /// The waiters for a resource.
    Waiters(&'a Resource),
    /// A client that has, or waits for, this resource.
    Client(&'a Resource, ClientId),
    /// The uptime of the server.
    Uptime,
}

#[cfg(feature = "remote")]
impl<'a> Query<'a> {
    /// Its resource, if it is about one.
    pub(crate) fn resource(&self) -> Option<&'a Resource> {
        match *self {
            Self::Holder(resource, _)
            | Self::Token(resource)
            | Self::Queue(resource)
            | Self::Waiters(resource)
            | Self::Client(resource, _) => Some(resource),
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
    /// How many waiters there are, as far as the engine knows.
    pub(crate) waiters: usize,
    /// None if nothing is known of the client.
    pub(crate) client: Option<Box<ClientInfo>>,
    /// None where there is no server that could restart.
    pub(crate) uptime: Option<Duration>,
}

impl QueryResult {
    /// What is known of a client, if it is one of this process.
    pub(crate) fn of_process(client: ClientId) -> Self {
        let client = in_process(client).map(|info| Box::new((*info).clone()));
        Self { client, ..Self::default() }
    }
}
