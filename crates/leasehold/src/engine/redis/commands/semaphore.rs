//! Permits that are only counted: a number, and a record of how many each owner has, which is ours alone.

use std::time::Duration;

use super::whole;
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};

static TAKE: Script = script!("semaphore_record.lua" "semaphore_acquire.lua");
static GIVE: Script = script!("publish.lua" "publish_permits.lua" "semaphore_release.lua");
static KEEP: Script = script!("semaphore_record.lua" "semaphore_renew.lua");
static CHANGE: Script = script!("idempotent.lua" "publish.lua" "publish_permits.lua" "semaphore.lua");
static COUNT: Script = script!("count.lua");

/// A script on a semaphore and the record of its permits by owner.
fn on(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).key(&keys::record(target))
}

pub(super) fn take(take: &Take<'_>) -> Call {
    let Spot { target, owner, amount } = take.spot;
    on(&TAKE, target).arg(owner).arg(whole(take.length)).arg(amount)
}

/// Releases all permits of the hold.
pub(super) fn give(Spot { target, owner, .. }: &Spot) -> Call {
    on(&GIVE, target).arg(owner).arg(keys::Channel(target))
}

pub(super) fn renew(holds: &[(&Spot, Duration)]) -> Call {
    holds.iter().fold(Call::new(&KEEP), |call, (spot, length)| {
        let call = call.key(spot.target.name.as_str()).key(&keys::record(&spot.target));
        call.arg(spot.owner).arg(whole(*length))
    })
}

pub(super) fn change(target: &Target) -> Call {
    Call::new(&CHANGE).key(target.name.as_str()).key(&keys::requests(target)).key(&keys::record(target))
}

pub(super) fn count(target: &Target) -> Call {
    Call::new(&COUNT).key(target.name.as_str())
}

/// Removes an owner's permits from the record. They stay taken.
pub(in super::super) fn forget_permits(Spot { target, owner, .. }: &Spot) -> Call {
    Call::command("HDEL").arg(keys::record(target)).arg(owner)
}
