//! Permits that are only counted: a number, and a record of how many each owner has, which is ours alone.

use std::time::Duration;

use super::whole;
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Resource};

static TAKE: Script = script!("semaphore_record.lua" "semaphore_acquire.lua");
static GIVE: Script = script!("publish.lua" "publish_permits.lua" "semaphore_release.lua");
static KEEP: Script = script!("semaphore_record.lua" "semaphore_renew.lua");
static CHANGE: Script = script!("idempotent.lua" "publish.lua" "publish_permits.lua" "semaphore.lua");
static COUNT: Script = script!("count.lua");

/// A script on a semaphore and the record of its permits by owner.
fn on(script: &'static Script, resource: &Resource) -> Call {
    Call::new(script).key(resource.name.as_str()).key(&keys::record(resource))
}

pub(super) fn take(take: &Take<'_>) -> Call {
    let HoldKey { resource, owner, amount } = take.hold_key;
    on(&TAKE, resource).arg(owner).arg(whole(take.lease.length())).arg(amount)
}

/// Releases all permits of the hold.
pub(super) fn give(HoldKey { resource, owner, .. }: &HoldKey) -> Call {
    on(&GIVE, resource).arg(owner).arg(keys::Channel(resource))
}

pub(super) fn renew(holds: &[(&HoldKey, Duration)]) -> Call {
    holds.iter().fold(Call::new(&KEEP), |call, (hold_key, length)| {
        let call = call.key(hold_key.resource.name.as_str()).key(&keys::record(&hold_key.resource));
        call.arg(hold_key.owner).arg(whole(*length))
    })
}

pub(super) fn change(resource: &Resource) -> Call {
    Call::new(&CHANGE).key(resource.name.as_str()).key(&keys::requests(resource)).key(&keys::record(resource))
}

pub(super) fn count(resource: &Resource) -> Call {
    Call::new(&COUNT).key(resource.name.as_str())
}

/// Removes an owner's permits from the record. They stay taken.
pub(in super::super) fn forget_permits(HoldKey { resource, owner, .. }: &HoldKey) -> Call {
    Call::command("HDEL").arg(keys::record(resource)).arg(owner)
}
