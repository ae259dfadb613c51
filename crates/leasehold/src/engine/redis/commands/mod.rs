//! The command or script of each operation for each kind, and the meaning of its reply: one file for each family.

/// A script, preceded by the files that it needs.
macro_rules! script {
    ($($file:literal)+) => {
        Script::new(concat!($(include_str!(concat!("../scripts/", $file))),+))
    };
}

/// A script that may mint tokens or publish, preceded by the files for that.
macro_rules! locks {
    ($($file:literal)+) => {
        script!("mint.lua" "publish.lua" $($file)+)
    };
}

mod admin;
mod fair;
mod group;
mod leased;
mod list;
mod lock;
mod rw;
mod semaphore;
mod setnx;
mod who;

use std::time::Duration;

pub(super) use self::admin::{fenced_write, last_token, ping, seconds_up, token, uptime, write_refused};
pub(super) use self::fair::{heartbeat, owners, queue};
pub(super) use self::list::{Recognised, beginning, fields, length, scan, scanned};
pub(super) use self::lock::{take_all, taken_all};
pub(super) use self::rw::{flags_writer, unflag};
pub(super) use self::semaphore::forget_permits;
pub(super) use self::who::{client, client_info, register, subscribed, subscribers_of, unregister};
use super::keys;
use super::net::{Call, Script, Value};
use crate::client_id::ClientId;
use crate::engine::remote::store::{Forced, Given, Take, Taken, Verdict};
use crate::engine::{Adjust, Busy, Change, HoldKey, Holding, Kind, QueryResult, Resource};
use crate::error::ServerError;
use crate::lease::COUNTED;
use crate::owner::{Owner, OwnerId};

static LATCH: Script = script!("idempotent.lua" "publish.lua" "latch.lua");

/// Acquires or re-enters. The counter of its tokens may expire after `retention`.
pub(super) fn take(take: &Take<'_>, retention: Option<Duration>) -> Call {
    match take.hold_key.resource.kind {
        Kind::Lock | Kind::Spin => lock::take(take, retention),
        Kind::Fair => fair::take(take, retention),
        Kind::SetNx => setnx::take(take, retention),
        Kind::Read => rw::read(take),
        Kind::Write => rw::write(take, retention),
        Kind::Group => group::take(take, retention),
        Kind::Semaphore => semaphore::take(take),
        Kind::LeasedSemaphore => leased::take(take),
        Kind::Latch => no_such(take.hold_key.resource.kind),
    }
}

/// Releases one of `from` counts.
pub(super) fn give(hold_key: &HoldKey, from: u32, length: Duration) -> Call {
    match hold_key.resource.kind {
        Kind::Lock | Kind::Spin => lock::give(hold_key, from, length),
        Kind::Fair => fair::give(hold_key, from, length),
        Kind::SetNx => setnx::give(hold_key),
        Kind::Read | Kind::Write => rw::give(hold_key, from, length),
        Kind::Group => group::give(hold_key, from, length),
        Kind::Semaphore => semaphore::give(hold_key),
        Kind::LeasedSemaphore => leased::give(hold_key),
        Kind::Latch => no_such(hold_key.resource.kind),
    }
}

/// Lowers a hold to at most `to` counts.
pub(super) fn lower(hold_key: &HoldKey, to: u32) -> Call {
    match hold_key.resource.kind {
        Kind::Lock | Kind::Spin => lock::lower(hold_key, to),
        Kind::Fair => fair::lower(hold_key, to),
        // It is entered once or not at all, so this releases it.
        Kind::SetNx => setnx::give(hold_key),
        Kind::Read | Kind::Write => rw::lower(hold_key, to),
        Kind::Group => group::lower(hold_key, to),
        Kind::Semaphore => semaphore::give(hold_key),
        Kind::LeasedSemaphore => leased::give(hold_key),
        Kind::Latch => no_such(hold_key.resource.kind),
    }
}

/// Sets the end of a hold, and wakes its waiters.
pub(super) fn abandon(hold_key: &HoldKey, rest: Duration) -> Call {
    match hold_key.resource.kind {
        Kind::Lock | Kind::Spin => lock::abandon(hold_key, rest),
        Kind::Fair => fair::abandon(hold_key, rest),
        Kind::SetNx => setnx::abandon(hold_key, rest),
        Kind::Read | Kind::Write => rw::abandon(hold_key, rest),
        Kind::LeasedSemaphore => leased::abandon(hold_key, rest),
        Kind::Group | Kind::Semaphore | Kind::Latch => no_such(hold_key.resource.kind),
    }
}

/// Renews holds of one kind; those with no time are only checked.
pub(super) fn renew(kind: Kind, holds: &[(&HoldKey, Duration)]) -> Call {
    match kind {
        Kind::Lock | Kind::Spin | Kind::Fair => lock::renew(holds),
        Kind::SetNx => setnx::renew(holds),
        Kind::Read | Kind::Write => rw::renew(kind, holds),
        Kind::Group => group::renew(holds),
        Kind::Semaphore => semaphore::renew(holds),
        Kind::LeasedSemaphore => leased::renew(holds),
        Kind::Latch => no_such(kind),
    }
}

/// Queries the holder: of several, `owner` if it is one of them.
pub(super) fn query(resource: &Resource, owner: Option<OwnerId>) -> Call {
    match resource.kind {
        Kind::Lock | Kind::Spin | Kind::Fair => lock::query(resource),
        Kind::SetNx => setnx::query(resource),
        Kind::Read | Kind::Write => rw::query(resource, owner),
        Kind::Group => group::query(resource, owner),
        Kind::Semaphore | Kind::LeasedSemaphore | Kind::Latch => no_such(resource.kind),
    }
}

/// Frees it, whichever owner holds it.
pub(super) fn force(resource: &Resource) -> Call {
    match resource.kind {
        Kind::Lock | Kind::Spin | Kind::SetNx => lock::force(resource),
        Kind::Fair => fair::force(resource),
        Kind::Read | Kind::Write => rw::force(resource),
        Kind::Group => group::force(resource),
        Kind::Semaphore | Kind::LeasedSemaphore | Kind::Latch => no_such(resource.kind),
    }
}

/// Changes or queries a count.
pub(super) fn change(resource: &Resource, change: &Change) -> Call {
    let count = || {
        if resource.kind == Kind::LeasedSemaphore {
            leased::count(resource)
        } else {
            semaphore::count(resource)
        }
    };
    let call = match resource.kind {
        Kind::Semaphore => semaphore::change(resource),
        Kind::LeasedSemaphore => leased::change(resource),
        Kind::Latch => Call::new(&LATCH).key(resource.name.as_str()).key(&keys::requests(resource)),
        kind => no_such(kind),
    };
    let call = call.arg(change.request).arg(COUNTED.as_millis()).arg(keys::Channel(resource));
    match &change.adjust {
        Adjust::TrySet { count, ttl: None } => call.arg("set").arg(count),
        Adjust::TrySet { count, ttl: Some(ttl) } => call.arg("set").arg(count).arg(whole(*ttl)),
        Adjust::Set(count) => call.arg("reset").arg(count),
        Adjust::Add(permits) => call.arg("add").arg(permits),
        Adjust::Give { count, create: true } => call.arg("give").arg(count),
        Adjust::Give { count, create: false } => call.arg("give to one that exists").arg(count),
        Adjust::GiveIds(ids) => ids.iter().fold(call.arg("give"), Call::arg),
        Adjust::SetLease(id, length) => call.arg("lease").arg(id).arg(leased::lease(*length)),
        Adjust::Drain => call.arg("drain"),
        Adjust::CountDown => call.arg("count down"),
        Adjust::Delete => call.arg("delete"),
        Adjust::Count => count().arg("free"),
        Adjust::Exists => Call::command("EXISTS").key(resource.name.as_str()),
        Adjust::Taken => count().arg("taken"),
        Adjust::Total => count().arg("total"),
        Adjust::LeaseOf(id) => count().arg("lease").arg(id),
    }
}

/// Deletes the result of a change.
pub(super) fn forget_change(resource: &Resource, change: &Change) -> Call {
    Call::command("HDEL").arg(keys::requests(resource)).arg(change.request)
}

/// In milliseconds, and never zero: a key without a time to live would stay for ever.
fn whole(length: Duration) -> u128 {
    length.as_millis().max(1)
}

/// Adds for how long the tokens are kept, if the take wants one and they are not kept for good.
fn kept(call: Call, take: &Take<'_>, retention: Option<Duration>) -> Call {
    match retention {
        Some(retention) if take.fenced => call.arg(retention.as_millis()),
        _ => call,
    }
}

/// Adds the key of the tokens, if the take wants a token.
fn fenced(call: Call, take: &Take<'_>) -> Call {
    if take.fenced { call.key(&keys::token(&take.hold_key.resource)) } else { call }
}

/// An operation that no handle of this kind has: a latch is not held, permits have no single holder, and only counters are
/// counted.
fn no_such(kind: Kind) -> ! {
    unreachable!("there is no such request about {kind:?}")
}

/// A reply that none of our scripts has.
pub(super) fn unexpected(value: &Value) -> ServerError {
    ServerError::Denied(format!("unexpected reply {value:?}: check which server this is"))
}

pub(super) fn number(reply: Value) -> Result<i64, ServerError> {
    match reply {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Milliseconds as the server counts them: minus one is no limit.
fn milliseconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// An owner as stored in a field. Other libraries may store any text there.
fn owner(field: &Value) -> Option<OwnerId> {
    let Value::Text(field) = field else { return None };
    let owner: Owner = std::str::from_utf8(field).ok()?.parse().ok()?;
    owner.full()
}

/// Whether a field is the owner of a port of Redisson whose threads are not numbers, such as node-redisson: the id of a client, a
/// colon, and a text without another one.
fn is_owner_of_a_port(field: &Value) -> bool {
    let Value::Text(field) = field else { return false };
    let parts = std::str::from_utf8(field).ok().and_then(|field| field.split_once(':'));
    parts.is_some_and(|(client, thread)| ClientId::parse(client).is_some() && !thread.contains(':'))
}

/// The outcome of acquiring a lock.
pub(super) fn taken(reply: &Value, hold_key: &HoldKey, fenced: bool) -> Result<Taken, ServerError> {
    Ok(match reply {
        Value::Int(0) => Taken::CountDiffers,
        Value::Int(-1) => Taken::WouldDeadlock,
        Value::Int(token @ 1..) => Taken::Granted(fenced.then_some(token.unsigned_abs())),
        Value::Okay => Taken::Granted(None),
        // Free again since it was refused.
        Value::Nil => Taken::Busy(Busy { retry_in: Some(Duration::ZERO), ..Busy::default() }),
        Value::Array(busy) => match self::busy(busy).ok_or_else(|| unexpected(reply))? {
            Busy { holder, .. } if holder == Some(hold_key.owner) => Taken::CountDiffers,
            busy => Taken::Busy(busy),
        },
        other => return Err(unexpected(other)),
    })
}

/// For how long a lock is held, and by which owner.
fn busy(parts: &[Value]) -> Option<Busy> {
    let (left, holder, position) = match parts {
        // Of a fair lock.
        [Value::Int(left), holder, Value::Int(position)] => (*left, owner(holder), *position),
        [Value::Int(left), holder, ..] => (*left, owner(holder), 0),
        [Value::Int(left), ..] => (*left, None, 0),
        _ => return None,
    };
    let position = usize::try_from(position).ok().filter(|position| *position > 0);
    // One more, because the server rounds down. In a queue only the front waiter has to retry then.
    let retry_in = milliseconds(left).map(|left| left + Duration::from_millis(1));
    let retry_in = retry_in.filter(|_| position.is_none_or(|position| position == 1));
    Some(Busy { retry_in, holder, position, ..Busy::default() })
}

/// The reply when a release was published and no client is subscribed; one less for each subscriber.
const FREED: i64 = -2;

/// The reply that a script would have sent for a release, where a separate command published it.
pub(super) fn freed(subscribers: i64) -> Value {
    Value::Int(FREED - subscribers)
}

fn subscribers(reply: i64) -> Option<usize> {
    FREED.checked_sub(reply).and_then(|subscribers| subscribers.try_into().ok())
}

/// The outcome of a release.
pub(super) fn given(reply: Value, kind: Kind) -> Result<Given, ServerError> {
    let reply = number(reply)?;
    let left = match kind {
        _ if reply <= FREED => Some(0),
        // One key was deleted without a message, or none was.
        Kind::SetNx => (reply == 1).then_some(0),
        _ => u32::try_from(reply).ok(),
    };
    // The rest of a broken hold is freed without a message.
    let was_broken = matches!(kind, Kind::Group | Kind::LeasedSemaphore) && reply == -1;
    Ok(Given { left, subscribers: subscribers(reply).or(was_broken.then_some(0)) })
}

/// The outcome of freeing by force.
pub(super) fn forced(reply: Value) -> Result<Forced, ServerError> {
    let reply = number(reply)?;
    Ok(Forced { was_held: reply != 0, subscribers: subscribers(reply) })
}

/// The server's verdicts on holds that were to be renewed.
pub(super) fn verdicts(reply: Value) -> Result<Vec<Verdict>, ServerError> {
    let Value::Array(verdicts) = reply else { return Err(unexpected(&reply)) };
    let verdict = |verdict: &Value| match verdict {
        Value::Int(1) => Verdict::Held,
        Value::Int(2) => Verdict::TakenOver,
        _ => Verdict::Gone,
    };
    Ok(verdicts.iter().map(verdict).collect())
}

/// The holder of a lock; for a lock that other libraries may hold, too, perhaps an unknown one.
pub(super) fn decode_holder(reply: &Value, foreign: bool) -> Result<QueryResult, ServerError> {
    if *reply == Value::Nil {
        return Ok(QueryResult::default());
    }
    let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
    let [Value::Int(left), holder, Value::Text(count)] = parts.as_slice() else {
        return Err(ServerError::NotALock);
    };
    let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
    match (owner(holder), count) {
        (owner, Some(count)) if owner.is_some() || foreign || is_owner_of_a_port(holder) => {
            let remaining = milliseconds(*left).unwrap_or(Duration::MAX);
            Ok(QueryResult { holding: Some(Holding { owner, count, remaining }), ..QueryResult::default() })
        }
        _ => Err(ServerError::NotALock),
    }
}
