//! TLS for every engine that has servers.
//!
//! The options are a part of every build, so that an error can say which feature is missing. Each connection reads the files of
//! the options and verifies the server anew: certificates on either side may be replaced while a client runs.

#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "tls")]
mod failure;
mod options;
#[cfg(feature = "tls")]
mod roots;
#[cfg(feature = "tls")]
mod stream;
#[cfg(feature = "tls")]
mod verifier;

pub(crate) use self::options::TlsOptions;
#[cfg(test)]
pub(crate) use self::options::Verify;
#[cfg(feature = "tls")]
pub(crate) use self::stream::TlsStream;
#[cfg(any(feature = "redis", feature = "tls"))]
use crate::error::ServerError;

/// A handshake that had no end. A Redis server without TLS waits for the end of a line.
#[cfg(any(feature = "redis", feature = "tls"))]
pub(crate) fn late(limit: std::time::Duration) -> ServerError {
    ServerError::Unavailable(format!("no TLS handshake within {limit:?}: is this a port without TLS?"))
}
