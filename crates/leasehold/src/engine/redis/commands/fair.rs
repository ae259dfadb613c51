//! The fair lock: the plain lock and a queue on the server, which has the waiters of all clients.

use std::time::Duration;

use super::{fenced, kept, owner, unexpected, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script, Value};
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Resource};
use crate::error::ServerError;
use crate::owner::{Owner, OwnerId};

static ACQUIRE: Script = locks!("lock.lua" "fair_queue.lua" "fair_acquire.lua");
static RELEASE: Script = locks!("lock.lua" "fair_queue.lua" "fair_release.lua");
static ABANDON: Script = locks!("lock.lua" "fair_queue.lua" "fair_abandon.lua");
static LOWER: Script = locks!("lock.lua" "fair_queue.lua" "fair_undo.lua");
static FORCE: Script = locks!("lock.lua" "fair_queue.lua" "fair_force.lua");
static HEARTBEAT: Script = locks!("lock.lua" "fair_queue.lua" "fair_heartbeat.lua");
static QUEUE: Script = script!("queue.lua");

/// A script about a fair lock.
fn on(script: &'static Script, resource: &Resource) -> Call {
    keys::queue(resource)
        .iter()
        .fold(Call::new(script).key(resource.name.as_str()), |call, key| call.key(key))
}

pub(super) fn take(take: &Take<'_>, retention: Option<Duration>) -> Call {
    let HoldKey { resource, owner, .. } = take.hold_key;
    let wait = take.queue.map_or(0, |queue| queue.wait.as_millis());
    let call = fenced(on(&ACQUIRE, resource), take);
    let call = call.arg(owner).arg(whole(take.lease.length())).arg(take.held).arg(u8::from(take.steal));
    kept(call.arg(wait), take, retention)
}

pub(super) fn give(HoldKey { resource, owner, .. }: &HoldKey, from: u32, length: Duration) -> Call {
    on(&RELEASE, resource).arg(owner).arg(from).arg(whole(length)).arg(keys::Channel(resource))
}

pub(super) fn abandon(HoldKey { resource, owner, .. }: &HoldKey, rest: Duration) -> Call {
    on(&ABANDON, resource).arg(owner).arg(whole(rest)).arg(keys::Channel(resource))
}

pub(super) fn lower(HoldKey { resource, owner, .. }: &HoldKey, to: u32) -> Call {
    on(&LOWER, resource).arg(owner).arg(to).arg(keys::Channel(resource))
}

pub(super) fn force(resource: &Resource) -> Call {
    on(&FORCE, resource).arg(keys::Channel(resource))
}

/// Reports waiters, grouped by their locks, as alive.
pub(in super::super) fn heartbeat(waiters: &[(Resource, Vec<(OwnerId, Duration)>)]) -> Call {
    waiters.iter().fold(Call::new(&HEARTBEAT), |call, (resource, waiters)| {
        let call =
            keys::queue(resource).iter().fold(call.key(resource.name.as_str()), |call, key| call.key(key));
        let call = call.arg(keys::Channel(resource)).arg(waiters.len());
        waiters.iter().fold(call, |call, (owner, wait)| call.arg(owner).arg(wait.as_millis()))
    })
}

/// The owners in the queue, the front waiter first.
pub(in super::super) fn queue(resource: &Resource) -> Call {
    let [queue, ..] = keys::queue(resource);
    Call::new(&QUEUE).key(&queue)
}

/// The owners in a queue.
pub(in super::super) fn owners(reply: &Value) -> Result<Vec<Owner>, ServerError> {
    match reply {
        Value::Array(owners) => Ok(owners.iter().filter_map(owner).map(Owner::from).collect()),
        other => Err(unexpected(other)),
    }
}
