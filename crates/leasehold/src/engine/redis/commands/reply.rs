//! What the replies of the server mean.

use std::time::Duration;

use crate::engine::redis::net::resp::Value;
use crate::engine::remote::store::{Forced, Given, Taken, TakenAll, Verdict};
use crate::engine::{Busy, Facts, Holding, Kind, Spot};
use crate::error::Failure;
use crate::owner::{Owner, OwnerId};

/// A reply that no script of ours gives.
pub(super) fn unexpected(value: &Value) -> Failure {
    Failure::Denied(format!("the server answered {value:?}, which means nothing here"))
}

pub(crate) fn number(reply: Value) -> Result<i64, Failure> {
    match reply {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Milliseconds as the server counts them: minus one is no limit.
fn milliseconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// An owner as it stands in a field. Others write there what they like.
fn owner(field: &Value) -> Option<OwnerId> {
    let Value::Text(field) = field else { return None };
    let owner: Owner = std::str::from_utf8(field).ok()?.parse().ok()?;
    owner.full()
}

/// The owners in a queue.
pub(crate) fn owners(reply: &Value) -> Result<Vec<Owner>, Failure> {
    match reply {
        Value::Array(owners) => Ok(owners.iter().filter_map(owner).map(Owner::from).collect()),
        other => Err(unexpected(other)),
    }
}

/// What came of taking a lock.
pub(crate) fn taken(reply: &Value, spot: &Spot, fenced: bool) -> Result<Taken, Failure> {
    Ok(match reply {
        Value::Int(0) => Taken::CountDiffers,
        Value::Int(-1) => Taken::WouldWaitForItself,
        Value::Int(token @ 1..) => Taken::Granted(fenced.then_some(token.unsigned_abs())),
        Value::Okay => Taken::Granted(None),
        // Free again since it was refused.
        Value::Nil => Taken::Busy(Busy { retry_in: Some(Duration::ZERO), ..Busy::default() }),
        Value::Array(busy) => match self::busy(busy).ok_or_else(|| unexpected(reply))? {
            Busy { holder, .. } if holder == Some(spot.owner) => Taken::CountDiffers,
            busy => Taken::Busy(busy),
        },
        other => return Err(unexpected(other)),
    })
}

/// For how long a lock is held, and by which owner.
fn busy(told: &[Value]) -> Option<Busy> {
    let (left, holder, place) = match told {
        // Of a fair lock.
        [Value::Int(left), holder, Value::Int(place)] => (*left, owner(holder), *place),
        [Value::Int(left), holder, ..] => (*left, owner(holder), 0),
        [Value::Int(left), ..] => (*left, None, 0),
        _ => return None,
    };
    let position = usize::try_from(place).ok().filter(|place| *place > 0);
    // One more, because the server rounds down. Of a queue only the first has anything to look for then.
    let retry_in = milliseconds(left).map(|left| left + Duration::from_millis(1));
    let retry_in = retry_in.filter(|_| position.is_none_or(|position| position == 1));
    Some(Busy { retry_in, holder, position })
}

/// What came of taking several locks of one owner.
pub(crate) fn tokens(reply: &Value, owner: OwnerId, locks: usize, fenced: bool) -> Result<TakenAll, Failure> {
    let Value::Array(told) = reply else { return Err(unexpected(reply)) };
    let token = |token: &Value| if let Value::Int(token) = token { Some(token.unsigned_abs()) } else { None };
    let tokens: Option<Vec<_>> = told.iter().map(token).collect();
    if let Some(tokens) = tokens.filter(|tokens| tokens.len() == locks) {
        return Ok(TakenAll::Granted(tokens.into_iter().map(|token| fenced.then_some(token)).collect()));
    }
    let [Value::Text(_), Value::Int(number), busy @ ..] = told.as_slice() else {
        return Err(unexpected(reply));
    };
    let number = usize::try_from(number - 1).unwrap_or_default().min(locks - 1);
    match self::busy(busy) {
        Some(busy) if busy.holder != Some(owner) => Ok(TakenAll::Busy(number, busy)),
        _ => Err(unexpected(reply)),
    }
}

/// The reply when it was announced that something is free and no client listens; one less for each that does.
const FREED: i64 = -2;

/// What a script would have replied that freed a lock, where that was announced by a command of its own.
pub(crate) fn freed(listeners: i64) -> Value {
    Value::Int(FREED - listeners)
}

fn listeners(reply: i64) -> Option<usize> {
    FREED.checked_sub(reply).and_then(|listeners| listeners.try_into().ok())
}

/// What came of giving back.
pub(crate) fn given(reply: Value, kind: Kind) -> Result<Given, Failure> {
    let reply = number(reply)?;
    let left = match kind {
        _ if reply <= FREED => Some(0),
        // One was deleted and not announced, or none was.
        Kind::SetNx => (reply == 1).then_some(0),
        _ => u32::try_from(reply).ok(),
    };
    // What is left of a hold that was broken is freed without a message.
    let was_broken = matches!(kind, Kind::Group | Kind::Permits) && reply == -1;
    Ok(Given { left, listeners: listeners(reply).or(was_broken.then_some(0)) })
}

/// What came of freeing by force.
pub(crate) fn forced(reply: Value) -> Result<Forced, Failure> {
    let reply = number(reply)?;
    Ok(Forced { was_held: reply != 0, listeners: listeners(reply) })
}

/// What the server says of holds that were to be renewed.
pub(crate) fn verdicts(reply: Value) -> Result<Vec<Verdict>, Failure> {
    let Value::Array(verdicts) = reply else { return Err(unexpected(&reply)) };
    let verdict = |verdict: &Value| match verdict {
        Value::Int(1) => Verdict::Held,
        Value::Int(2) => Verdict::TakenOver,
        _ => Verdict::Gone,
    };
    Ok(verdicts.iter().map(verdict).collect())
}

/// The holder of a lock; of a lock that other libraries may hold, too, perhaps none that we know.
pub(crate) fn facts_of_holder(reply: &Value, foreign: bool) -> Result<Facts, Failure> {
    if *reply == Value::Nil {
        return Ok(Facts::default());
    }
    let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
    let [Value::Int(left), holder, Value::Text(count)] = parts.as_slice() else {
        return Err(Failure::NotALock);
    };
    let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
    match (owner(holder), count) {
        (owner, Some(count)) if owner.is_some() || foreign => {
            let remaining = milliseconds(*left).unwrap_or(Duration::MAX);
            Ok(Facts { holding: Some(Holding { owner, count, remaining }), ..Facts::default() })
        }
        _ => Err(Failure::NotALock),
    }
}

/// How long the server has been up, of what it tells about itself.
pub(crate) fn seconds_up(reply: &Value) -> Result<Duration, Failure> {
    let text = match reply {
        Value::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let mut lines = text.into_iter().flat_map(str::lines);
    let seconds = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:")?.parse().ok());
    seconds.map(Duration::from_secs).ok_or_else(|| unexpected(reply))
}
