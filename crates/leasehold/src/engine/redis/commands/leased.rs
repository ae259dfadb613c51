//! Permits that have a lease: a number, and which ids are taken until when.

use std::time::Duration;

use super::whole;
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};
use crate::lease::PERMANENT;

static TAKE: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_acquire.lua");
static GIVE: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_release.lua");
static RENEW: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_renew.lua");
static COUNT: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_count.lua");
static CHANGE: Script =
    script!("idempotent.lua" "publish.lua" "publish_permits.lua" "leased_common.lua" "leased.lua");

fn on(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).key(&keys::permits(target)).arg(keys::Channel(target))
}

pub(super) fn take(take: &Take<'_>) -> Call {
    ids(on(&TAKE, &take.spot.target), take.spot).arg(lease(Some(take.length)))
}

pub(super) fn give(spot: &Spot) -> Call {
    ids(on(&GIVE, &spot.target), spot)
}

pub(super) fn renew(holds: &[(&Spot, Duration)]) -> Call {
    holds.iter().fold(Call::new(&RENEW), |call, (spot, length)| {
        ids(call.key(&keys::permits(&spot.target)), spot).arg(length.as_millis())
    })
}

pub(super) fn change(target: &Target) -> Call {
    Call::new(&CHANGE).key(target.name.as_str()).key(&keys::requests(target)).key(&keys::permits(target))
}

pub(super) fn count(target: &Target) -> Call {
    on(&COUNT, target)
}

/// The ids of a hold, which the server derives as we do.
fn ids(call: Call, Spot { owner, amount, .. }: &Spot) -> Call {
    call.arg(format!("{:016x}", owner.client.first_half())).arg(owner.number).arg(amount)
}

/// The lease of a permit; none is minus one.
pub(super) fn lease(length: Option<Duration>) -> String {
    let length = length.filter(|length| *length < PERMANENT);
    length.map_or_else(|| "-1".into(), |length| whole(length).to_string())
}
