//! The lock format of most other libraries: one string, set with `SET … NX`.

use std::time::Duration;

use super::lock::by_owner;
use super::{fenced, kept, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Resource};

static ACQUIRE: Script = locks!("setnx_acquire.lua");
static RELEASE: Script = script!("publish.lua" "setnx_release.lua");
static ABANDON: Script = script!("publish.lua" "setnx_abandon.lua");
static RENEW: Script = script!("setnx_renew.lua");
static QUERY: Script = script!("setnx_query.lua");

pub(super) fn take(take: &Take<'_>, retention: Option<Duration>) -> Call {
    let HoldKey { resource, owner, .. } = take.hold_key;
    let length = whole(take.lease.length());
    if take.fenced || take.steal {
        let call = fenced(Call::new(&ACQUIRE).key(resource.name.as_str()), take);
        return kept(call.arg(owner).arg(length).arg(u8::from(take.steal)), take, retention);
    }
    Call::command("SET").key(resource.name.as_str()).arg(owner).arg("NX").arg("PX").arg(length)
}

pub(super) fn give(HoldKey { resource, owner, .. }: &HoldKey) -> Call {
    Call::compare_and_delete(&RELEASE).key(resource.name.as_str()).arg(owner).arg(keys::Channel(resource))
}

pub(super) fn abandon(HoldKey { resource, owner, .. }: &HoldKey, rest: Duration) -> Call {
    Call::new(&ABANDON).key(resource.name.as_str()).arg(owner).arg(whole(rest)).arg(keys::Channel(resource))
}

pub(super) fn renew(holds: &[(&HoldKey, Duration)]) -> Call {
    by_owner(&RENEW, holds)
}

pub(super) fn query(resource: &Resource) -> Call {
    Call::new(&QUERY).key(resource.name.as_str())
}
