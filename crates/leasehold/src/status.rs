//! The connection of a client, at one moment.

use std::time::Duration;

use crate::engine::Connection;
use crate::env::{self, Instant};
use crate::error::ServerError;

/// Whether a client is connected to its server: [`Client::status`](crate::Client::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The URL of the server without credentials; `None` for an engine inside the process.
    pub server: Option<String>,
    /// Whether there is a connection, as far as the client knows: a server that has fallen silent is noticed by the next
    /// request. Always true for `memory:` and `file:`.
    pub connected: bool,
    /// How long that has been so.
    pub lasting: Duration,
    /// Why the last attempt to connect has failed, as long as there is no connection. It has no secret in it.
    pub last_error: Option<String>,
}

impl Status {
    /// `made`: when the client was made.
    pub(crate) fn new(server: Option<&str>, connection: Option<Connection>, made: Instant) -> Self {
        let inside = || Connection { is_up: true, since: made, error: None };
        let Connection { is_up, since, error } = connection.unwrap_or_else(inside);
        Self {
            server: server.map(Into::into),
            connected: is_up,
            lasting: env::now().saturating_duration_since(since),
            last_error: error.map(|error| match error {
                ServerError::Unavailable(text) | ServerError::Denied(text) => text,
                other @ ServerError::NotALock => other.to_string(),
            }),
        }
    }
}
