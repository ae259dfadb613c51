//! The fair lock: the plain lock and a queue on the server, which has the waiters of all clients.

use std::time::Duration;

use super::{fenced, owner, unexpected, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script, Value};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};
use crate::error::Failure;
use crate::owner::{Owner, OwnerId};

static ACQUIRE: Script = locks!("lock.lua" "fair_queue.lua" "fair_acquire.lua");
static RELEASE: Script = locks!("lock.lua" "fair_queue.lua" "fair_release.lua");
static ABANDON: Script = locks!("lock.lua" "fair_queue.lua" "fair_undo.lua");
static FORCE: Script = locks!("lock.lua" "fair_queue.lua" "fair_force.lua");
static BEAT: Script = locks!("lock.lua" "fair_queue.lua" "fair_heartbeat.lua");
static QUEUE: Script = script!("queue.lua");

/// A script about a fair lock.
fn on(script: &'static Script, target: &Target) -> Call {
    keys::queue(target).iter().fold(Call::new(script).key(target.name.as_str()), |call, key| call.key(key))
}

pub(super) fn take(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let wait = take.queue.map_or(0, |queue| queue.wait.as_millis());
    let call = fenced(on(&ACQUIRE, target), take);
    call.arg(owner).arg(whole(take.length)).arg(take.held).arg(u8::from(take.steal)).arg(wait)
}

pub(super) fn give(Spot { target, owner, .. }: &Spot, from: u32, length: Duration) -> Call {
    on(&RELEASE, target).arg(owner).arg(from).arg(whole(length)).arg(keys::Channel(target))
}

pub(super) fn lower(Spot { target, owner, .. }: &Spot, to: u32) -> Call {
    on(&ABANDON, target).arg(owner).arg(to).arg(keys::Channel(target))
}

pub(super) fn force(target: &Target) -> Call {
    on(&FORCE, target).arg(keys::Channel(target))
}

/// Reports waiters, grouped by their locks, as alive.
pub(in super::super) fn heartbeat(waiters: &[(Target, Vec<(OwnerId, Duration)>)]) -> Call {
    waiters.iter().fold(Call::new(&BEAT), |call, (target, waiters)| {
        let call = keys::queue(target).iter().fold(call.key(target.name.as_str()), |call, key| call.key(key));
        let call = call.arg(keys::Channel(target)).arg(waiters.len());
        waiters.iter().fold(call, |call, (owner, wait)| call.arg(owner).arg(wait.as_millis()))
    })
}

/// The owners in the queue, the front waiter first.
pub(in super::super) fn queue(target: &Target) -> Call {
    let [queue, ..] = keys::queue(target);
    Call::new(&QUEUE).key(&queue)
}

/// The owners in a queue.
pub(in super::super) fn owners(reply: &Value) -> Result<Vec<Owner>, Failure> {
    match reply {
        Value::Array(owners) => Ok(owners.iter().filter_map(owner).map(Owner::from).collect()),
        other => Err(unexpected(other)),
    }
}
