//! The read-write lock: both halves in one hash, with a mode.

use std::time::Duration;

use super::{fenced, kept, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Kind, Resource, WRITER_PREFERENCE};
use crate::owner::OwnerId;

static READ: Script = locks!("rw/common.lua" "rw/read.lua");
static WRITE: Script = locks!("rw/common.lua" "rw/write.lua");
static LEAVE: Script = locks!("rw/common.lua" "rw/leave.lua");
static ABANDON: Script = locks!("rw/common.lua" "rw/abandon.lua");
static RENEW: Script = locks!("rw/common.lua" "rw/renew.lua");
static QUERY: Script = locks!("rw/common.lua" "rw/query.lua");
static FORCE: Script = locks!("rw/common.lua" "rw/force.lua");
static UNFLAG: Script = script!("publish.lua" "rw/unflag.lua");

pub(super) fn read(take: &Take<'_>) -> Call {
    let HoldKey { resource, owner, .. } = take.hold_key;
    let call = on(&READ, resource);
    let call = if take.rw.prefer_writers { call.key(&keys::writer_flag(resource)) } else { call };
    let steal = if take.steal { keys::Channel(resource).to_string() } else { String::new() };
    call.arg(owner).arg(whole(take.lease.length())).arg(take.held).arg(steal)
}

pub(super) fn write(take: &Take<'_>, retention: Option<Duration>) -> Call {
    let HoldKey { resource, owner, .. } = take.hold_key;
    let flags = flags_writer(take);
    let call = on(&WRITE, resource);
    let call = if flags { call.key(&keys::writer_flag(resource)) } else { call };
    let call = fenced(call, take);
    let how = match (take.rw.upgrade, take.steal) {
        (true, _) => "upgrade",
        (false, true) => "steal",
        (false, false) => "",
    };
    let flag = if flags { WRITER_PREFERENCE.as_millis() } else { 0 };
    kept(call.arg(owner).arg(whole(take.lease.length())).arg(take.held).arg(how).arg(flag), take, retention)
}

pub(super) fn give(hold_key: &HoldKey, from: u32, length: Duration) -> Call {
    leave(hold_key, &from.to_string(), from.saturating_sub(1), length)
}

pub(super) fn lower(hold_key: &HoldKey, to: u32) -> Call {
    leave(hold_key, "", to, Duration::ZERO)
}

fn leave(hold_key: &HoldKey, from: &str, to: u32, length: Duration) -> Call {
    let HoldKey { resource, owner, .. } = hold_key;
    let call = on(&LEAVE, resource).arg(owner).arg(half(resource.kind)).arg(from).arg(to);
    call.arg(length.as_millis()).arg(keys::Channel(resource))
}

pub(super) fn abandon(HoldKey { resource, owner, .. }: &HoldKey, rest: Duration) -> Call {
    let call = on(&ABANDON, resource).arg(owner).arg(half(resource.kind)).arg(whole(rest));
    call.arg(keys::Channel(resource))
}

pub(super) fn renew(kind: Kind, holds: &[(&HoldKey, Duration)]) -> Call {
    holds.iter().fold(Call::new(&RENEW).arg(half(kind)), |call, (hold_key, length)| {
        let HoldKey { resource, owner, .. } = hold_key;
        call.key(resource.name.as_str()).arg(keys::Tagged(&resource.name)).arg(owner).arg(length.as_millis())
    })
}

pub(super) fn query(resource: &Resource, owner: Option<OwnerId>) -> Call {
    let owner = owner.map_or_else(String::new, |owner| owner.to_string());
    on(&QUERY, resource).arg(half(resource.kind)).arg(owner)
}

pub(super) fn force(resource: &Resource) -> Call {
    on(&FORCE, resource).arg(half(resource.kind)).arg(keys::Channel(resource))
}

/// Removes the flag of a writer that no longer waits.
pub(in super::super) fn unflag(HoldKey { resource, owner, .. }: &HoldKey) -> Call {
    Call::new(&UNFLAG).key(&keys::writer_flag(resource)).arg(owner).arg(keys::Channel(resource))
}

/// Whether an attempt sets a waiting-writer flag if it is not granted.
pub(in super::super) fn flags_writer(take: &Take<'_>) -> bool {
    take.hold_key.resource.kind == Kind::Write && take.rw.prefer_writers && take.held == 0
}

fn on(script: &'static Script, resource: &Resource) -> Call {
    Call::new(script).key(resource.name.as_str()).arg(keys::Tagged(&resource.name))
}

fn half(kind: Kind) -> &'static str {
    if kind == Kind::Write { "write" } else { "read" }
}
