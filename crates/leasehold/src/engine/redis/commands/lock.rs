//! The plain lock: a hash with one field, the owner, whose value counts its entries.

use std::time::Duration;

use super::{fenced, kept, unexpected, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script, Value};
use crate::engine::remote::store::{Take, TakenAll};
use crate::engine::{HoldKey, Resource};
use crate::error::ServerError;
use crate::owner::OwnerId;

static ACQUIRE: Script = locks!("lock.lua" "acquire.lua");
static ACQUIRE_ALL: Script = locks!("acquire_all.lua");
static RELEASE: Script = locks!("lock.lua" "release.lua");
static LOWER: Script = locks!("lock.lua" "undo.lua");
static ABANDON: Script = script!("publish.lua" "abandon.lua");
static RENEW: Script = script!("renew.lua");
static QUERY: Script = script!("query.lua");
static FORCE: Script = script!("publish.lua" "force.lua");

pub(super) fn take(take: &Take<'_>, retention: Option<Duration>) -> Call {
    let HoldKey { resource, owner, .. } = take.hold_key;
    let call = fenced(Call::new(&ACQUIRE).key(resource.name.as_str()), take);
    let call = call.arg(owner).arg(whole(take.lease.length())).arg(take.held).arg(u8::from(take.steal));
    kept(call, take, retention)
}

/// Acquires several locks of one owner, or none.
pub(in super::super) fn take_all(takes: &[Take<'_>], retention: Option<Duration>) -> Call {
    let locks = takes.iter().map(|take| take.hold_key.resource.name.as_str().to_owned());
    let tokens = takes.iter().filter(|take| take.fenced).map(|take| keys::token(&take.hold_key.resource));
    let call = locks.chain(tokens).fold(Call::new(&ACQUIRE_ALL), |call, key| call.key(&key));
    let call = call.arg(takes.len()).arg(takes[0].hold_key.owner).arg(whole(takes[0].lease.length()));
    kept(call, &takes[0], retention)
}

pub(super) fn give(HoldKey { resource, owner, .. }: &HoldKey, from: u32, length: Duration) -> Call {
    let call = Call::new(&RELEASE).key(resource.name.as_str());
    call.arg(owner).arg(from).arg(whole(length)).arg(keys::Channel(resource))
}

pub(super) fn lower(HoldKey { resource, owner, .. }: &HoldKey, to: u32) -> Call {
    Call::new(&LOWER).key(resource.name.as_str()).arg(owner).arg(to).arg(keys::Channel(resource))
}

pub(super) fn abandon(HoldKey { resource, owner, .. }: &HoldKey, rest: Duration) -> Call {
    Call::new(&ABANDON).key(resource.name.as_str()).arg(owner).arg(whole(rest)).arg(keys::Channel(resource))
}

pub(super) fn renew(holds: &[(&HoldKey, Duration)]) -> Call {
    by_owner(&RENEW, holds)
}

/// Renews holds whose script needs the key, the owner and the time of each.
pub(super) fn by_owner(script: &'static Script, holds: &[(&HoldKey, Duration)]) -> Call {
    holds.iter().fold(Call::new(script), |call, (hold_key, length)| {
        call.key(hold_key.resource.name.as_str()).arg(hold_key.owner).arg(length.as_millis())
    })
}

pub(super) fn query(resource: &Resource) -> Call {
    Call::new(&QUERY).key(resource.name.as_str())
}

pub(super) fn force(resource: &Resource) -> Call {
    Call::new(&FORCE).key(resource.name.as_str()).arg(keys::Channel(resource))
}

/// The outcome of acquiring several locks of one owner.
pub(in super::super) fn taken_all(
    reply: &Value,
    owner: OwnerId,
    locks: usize,
    fenced: bool,
) -> Result<TakenAll, ServerError> {
    let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
    let token = |token: &Value| if let Value::Int(token) = token { Some(token.unsigned_abs()) } else { None };
    let tokens: Option<Vec<_>> = parts.iter().map(token).collect();
    if let Some(tokens) = tokens.filter(|tokens| tokens.len() == locks) {
        return Ok(TakenAll::Granted(tokens.into_iter().map(|token| fenced.then_some(token)).collect()));
    }
    let [Value::Text(_), Value::Int(number), busy @ ..] = parts.as_slice() else {
        return Err(unexpected(reply));
    };
    let number = usize::try_from(number - 1).unwrap_or_default().min(locks - 1);
    match super::busy(busy) {
        Some(busy) if busy.holder != Some(owner) => Ok(TakenAll::Busy(number, busy)),
        _ => Err(unexpected(reply)),
    }
}
