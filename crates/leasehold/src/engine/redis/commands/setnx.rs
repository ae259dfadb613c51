//! The lock format of most other libraries: one string, set with `SET … NX`.

use std::time::Duration;

use super::lock::by_owner;
use super::{fenced, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};

static ACQUIRE: Script = locks!("setnx_acquire.lua");
static RELEASE: Script = script!("publish.lua" "setnx_release.lua");
static RENEW: Script = script!("setnx_renew.lua");
static QUERY: Script = script!("setnx_query.lua");

pub(super) fn take(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let length = whole(take.length);
    if take.fenced || take.steal {
        let call = fenced(Call::new(&ACQUIRE).key(target.name.as_str()), take);
        return call.arg(owner).arg(length).arg(u8::from(take.steal));
    }
    Call::command("SET").key(target.name.as_str()).arg(owner).arg("NX").arg("PX").arg(length)
}

pub(super) fn give(Spot { target, owner, .. }: &Spot) -> Call {
    Call::compare_and_delete(&RELEASE).key(target.name.as_str()).arg(owner).arg(keys::Channel(target))
}

pub(super) fn renew(holds: &[(&Spot, Duration)]) -> Call {
    by_owner(&RENEW, holds)
}

pub(super) fn query(target: &Target) -> Call {
    Call::new(&QUERY).key(target.name.as_str())
}
