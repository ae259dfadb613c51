//! What is asked of a server beside its locks.

use super::reply::unexpected;
use crate::engine::Target;
use crate::engine::redis::keys;
use crate::engine::redis::net::resp::Value;
use crate::engine::redis::script::{Call, FENCED_WRITE, TOKEN};
use crate::error::Failure;
use crate::name::Name;

/// Since when the server is up, among other things.
pub(crate) fn uptime() -> Call {
    Call::command("INFO").arg("server")
}

/// The last token that was minted.
pub(crate) fn token(target: &Target) -> Call {
    Call::new(&TOKEN).key(&keys::token(target))
}

/// What that is.
pub(crate) fn last_token(reply: Value) -> Result<u64, Failure> {
    match reply {
        Value::Int(token @ 0..) => Ok(token.unsigned_abs()),
        other => Err(unexpected(&other)),
    }
}

/// Writes a value unless one with a greater token was written.
pub(crate) fn fenced_write(key: &Name, token: u64, value: &[u8]) -> Call {
    Call::new(&FENCED_WRITE).key(key.as_str()).key(&keys::fence(key)).arg(token).bytes(value)
}

/// The greater token, if there is one.
pub(crate) fn write_refused(reply: Value) -> Result<Option<u64>, Failure> {
    match reply {
        Value::Nil => Ok(None),
        Value::Text(seen) => {
            let seen = std::str::from_utf8(&seen).ok().and_then(|seen| seen.parse().ok());
            Ok(Some(seen.unwrap_or(u64::MAX)))
        }
        other => Err(unexpected(&other)),
    }
}
