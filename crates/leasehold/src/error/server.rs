//! The failures of a server.

use thiserror::Error;

/// The server gave no usable reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server is down, unreachable, loading or out of memory. Whether it executed the request is unknown.
    #[error("the server is unavailable: {0}")]
    Unavailable(String),
    /// The server denies this client the request; a retry will fail, too.
    #[error("the server refuses the request: {0}")]
    Denied(String),
    /// The key of that name on the server is not of this kind.
    #[error("the key of that name holds something else: choose another name")]
    NotALock,
}
