//! What the answers of the server mean.

use std::time::Duration;

use super::resp::Value;

use crate::engine::Holding;
use crate::error::Failure;
use crate::owner::{Owner, OwnerId};

/// An answer that no script of ours gives.
pub(super) fn nonsense(value: &Value) -> Failure {
    Failure::Denied(format!("the server answered {value:?}, which means nothing here"))
}

/// Milliseconds as the server counts them: minus one is no limit.
pub(super) fn milliseconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// An owner as it stands in a field. Others write there what they like.
pub(super) fn owner(field: &Value) -> Option<OwnerId> {
    let Value::Text(field) = field else { return None };
    let owner: Owner = std::str::from_utf8(field).ok()?.parse().ok()?;
    owner.full()
}

/// Who holds a lock; of a lock that others may hold, too, perhaps nobody that we know.
pub(super) fn holding(answer: &Value, foreign: bool) -> Result<Holding, Failure> {
    let Value::Array(parts) = answer else { return Err(nonsense(answer)) };
    let [Value::Int(left), holder, Value::Text(count)] = parts.as_slice() else {
        return Err(Failure::NotALock);
    };
    let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
    match (owner(holder), count) {
        (owner, Some(count)) if owner.is_some() || foreign => {
            let remaining = milliseconds(*left).unwrap_or(Duration::MAX);
            Ok(Holding { owner, count, remaining })
        }
        _ => Err(Failure::NotALock),
    }
}

/// How long the server has been up, of what it tells about itself.
pub(super) fn uptime(answer: &Value) -> Result<Duration, Failure> {
    let text = match answer {
        Value::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let mut lines = text.into_iter().flat_map(str::lines);
    let seconds = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:")?.parse().ok());
    seconds.map(Duration::from_secs).ok_or_else(|| nonsense(answer))
}
