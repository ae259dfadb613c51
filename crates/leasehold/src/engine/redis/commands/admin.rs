//! Requests to a server that are not about its locks.

use std::time::Duration;

use super::unexpected;
use crate::engine::Resource;
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script, Value};
use crate::error::ServerError;
use crate::name::Name;

static TOKEN: Script = script!("token.lua");
static FENCED_WRITE: Script = script!("fenced_write.lua");

/// A request that does nothing.
pub(in super::super) fn ping() -> Call {
    Call::command("PING")
}

/// Since when the server is up, among other things.
pub(in super::super) fn uptime() -> Call {
    Call::command("INFO").arg("server")
}

/// The last token that was minted.
pub(in super::super) fn token(resource: &Resource) -> Call {
    Call::new(&TOKEN).key(&keys::token(resource))
}

/// The token in the reply.
pub(in super::super) fn last_token(reply: Value) -> Result<u64, ServerError> {
    match reply {
        Value::Int(token @ 0..) => Ok(token.unsigned_abs()),
        other => Err(unexpected(&other)),
    }
}

/// Writes a value unless one with a greater token was written.
pub(in super::super) fn fenced_write(key: &Name, token: u64, value: &[u8]) -> Call {
    Call::new(&FENCED_WRITE).key(key.as_str()).key(&keys::fence(key)).arg(token).bytes(value)
}

/// The greater token, if there is one.
pub(in super::super) fn write_refused(reply: Value) -> Result<Option<u64>, ServerError> {
    match reply {
        Value::Nil => Ok(None),
        Value::Text(seen) => {
            let seen = std::str::from_utf8(&seen).ok().and_then(|seen| seen.parse().ok());
            Ok(Some(seen.unwrap_or(u64::MAX)))
        }
        other => Err(unexpected(&other)),
    }
}

/// How long the server has been up, from its description of itself.
pub(in super::super) fn seconds_up(reply: &Value) -> Result<Duration, ServerError> {
    let text = match reply {
        Value::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let mut lines = text.into_iter().flat_map(str::lines);
    let seconds = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:")?.parse().ok());
    seconds.map(Duration::from_secs).ok_or_else(|| unexpected(reply))
}
