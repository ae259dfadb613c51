//! The read-write lock: both halves in one hash, with a mode.

use std::time::Duration;

use super::{fenced, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{BARRED, Kind, Spot, Target};
use crate::owner::OwnerId;

static READ: Script = locks!("rw/common.lua" "rw/read.lua");
static WRITE: Script = locks!("rw/common.lua" "rw/write.lua");
static LEAVE: Script = locks!("rw/common.lua" "rw/leave.lua");
static RENEW: Script = locks!("rw/common.lua" "rw/renew.lua");
static QUERY: Script = locks!("rw/common.lua" "rw/query.lua");
static FORCE: Script = locks!("rw/common.lua" "rw/force.lua");
static UNMARK: Script = script!("publish.lua" "rw/unflag.lua");

pub(super) fn read(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let call = on(&READ, target);
    let call = if take.rw.prefer_writers { call.key(&keys::mark(target)) } else { call };
    let steal = if take.steal { keys::Channel(target).to_string() } else { String::new() };
    call.arg(owner).arg(whole(take.length)).arg(take.held).arg(steal)
}

pub(super) fn write(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let flags = flags_writer(take);
    let call = on(&WRITE, target);
    let call = if flags { call.key(&keys::mark(target)) } else { call };
    let call = fenced(call, take);
    let how = match (take.rw.upgrade, take.steal) {
        (true, _) => "upgrade",
        (false, true) => "steal",
        (false, false) => "",
    };
    let flag = if flags { BARRED.as_millis() } else { 0 };
    call.arg(owner).arg(whole(take.length)).arg(take.held).arg(how).arg(flag)
}

pub(super) fn give(spot: &Spot, from: u32, length: Duration) -> Call {
    leave(spot, &from.to_string(), from.saturating_sub(1), length)
}

pub(super) fn lower(spot: &Spot, to: u32) -> Call {
    leave(spot, "", to, Duration::ZERO)
}

fn leave(spot: &Spot, from: &str, to: u32, length: Duration) -> Call {
    let Spot { target, owner, .. } = spot;
    let call = on(&LEAVE, target).arg(owner).arg(half(target.kind)).arg(from).arg(to);
    call.arg(length.as_millis()).arg(keys::Channel(target))
}

pub(super) fn renew(kind: Kind, holds: &[(&Spot, Duration)]) -> Call {
    holds.iter().fold(Call::new(&RENEW).arg(half(kind)), |call, (spot, length)| {
        let Spot { target, owner, .. } = spot;
        call.key(target.name.as_str()).arg(keys::Tagged(&target.name)).arg(owner).arg(length.as_millis())
    })
}

pub(super) fn query(target: &Target, owner: Option<OwnerId>) -> Call {
    let owner = owner.map_or_else(String::new, |owner| owner.to_string());
    on(&QUERY, target).arg(half(target.kind)).arg(owner)
}

pub(super) fn force(target: &Target) -> Call {
    on(&FORCE, target).arg(half(target.kind)).arg(keys::Channel(target))
}

/// Removes the flag of a writer that no longer waits.
pub(in super::super) fn unflag(Spot { target, owner, .. }: &Spot) -> Call {
    Call::new(&UNMARK).key(&keys::mark(target)).arg(owner).arg(keys::Channel(target))
}

/// Whether an attempt sets a waiting-writer flag if it is not granted.
pub(in super::super) fn flags_writer(take: &Take<'_>) -> bool {
    take.spot.target.kind == Kind::Write && take.rw.prefer_writers && take.held == 0
}

fn on(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).arg(keys::Tagged(&target.name))
}

fn half(kind: Kind) -> &'static str {
    if kind == Kind::Write { "write" } else { "read" }
}
