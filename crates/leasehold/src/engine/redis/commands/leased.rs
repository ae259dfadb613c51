//! Permits that have a lease: a number, and which ids are taken until when.

use std::time::Duration;

use super::whole;
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Resource};
use crate::lease::PERMANENT;

static TAKE: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_acquire.lua");
static GIVE: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_release.lua");
static ABANDON: Script =
    script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_abandon.lua");
static RENEW: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_renew.lua");
static COUNT: Script = script!("publish.lua" "publish_permits.lua" "leased_common.lua" "leased_count.lua");
static CHANGE: Script =
    script!("idempotent.lua" "publish.lua" "publish_permits.lua" "leased_common.lua" "leased.lua");

fn on(script: &'static Script, resource: &Resource) -> Call {
    Call::new(script).key(resource.name.as_str()).key(&keys::permits(resource)).arg(keys::Channel(resource))
}

pub(super) fn take(take: &Take<'_>) -> Call {
    ids(on(&TAKE, &take.hold_key.resource), take.hold_key).arg(lease(Some(take.lease.length())))
}

pub(super) fn give(hold_key: &HoldKey) -> Call {
    ids(on(&GIVE, &hold_key.resource), hold_key)
}

pub(super) fn abandon(hold_key: &HoldKey, rest: Duration) -> Call {
    ids(on(&ABANDON, &hold_key.resource), hold_key).arg(whole(rest))
}

pub(super) fn renew(holds: &[(&HoldKey, Duration)]) -> Call {
    holds.iter().fold(Call::new(&RENEW), |call, (hold_key, length)| {
        ids(call.key(&keys::permits(&hold_key.resource)), hold_key).arg(length.as_millis())
    })
}

pub(super) fn change(resource: &Resource) -> Call {
    Call::new(&CHANGE)
        .key(resource.name.as_str())
        .key(&keys::requests(resource))
        .key(&keys::permits(resource))
}

pub(super) fn count(resource: &Resource) -> Call {
    on(&COUNT, resource)
}

/// The ids of a hold, which the server derives as we do.
fn ids(call: Call, HoldKey { owner, amount, .. }: &HoldKey) -> Call {
    call.arg(format!("{:016x}", owner.client.first_half())).arg(owner.number).arg(amount)
}

/// The lease of a permit; none is minus one.
pub(super) fn lease(length: Option<Duration>) -> String {
    let length = length.filter(|length| *length < PERMANENT);
    length.map_or_else(|| "-1".into(), |length| whole(length).to_string())
}
