//! The read-write lock: both halves in one hash, with a mode.

use std::time::Duration;

use super::{fenced, whole};
use crate::engine::redis::keys;
use crate::engine::redis::script::{
    Call, RW_FORCE, RW_LEAVE, RW_QUERY, RW_READ, RW_RENEW, RW_UNMARK, RW_WRITE, Script,
};
use crate::engine::remote::store::Take;
use crate::engine::{BARRED, Kind, Spot, Target};
use crate::owner::OwnerId;

pub(super) fn read(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let call = on(&RW_READ, target);
    let call = if take.rw.prefer_writers { call.key(&keys::mark(target)) } else { call };
    let steal = if take.steal { keys::channel(target).to_string() } else { String::new() };
    call.arg(owner).arg(whole(take.length)).arg(take.held).arg(steal)
}

pub(super) fn write(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let flags = flags_writer(take);
    let call = on(&RW_WRITE, target);
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
    let call = on(&RW_LEAVE, target).arg(owner).arg(half(target.kind)).arg(from).arg(to);
    call.arg(length.as_millis()).arg(keys::channel(target))
}

pub(super) fn renew(kind: Kind, holds: &[(&Spot, Duration)]) -> Call {
    holds.iter().fold(Call::new(&RW_RENEW).arg(half(kind)), |call, (spot, length)| {
        let Spot { target, owner, .. } = spot;
        call.key(target.name.as_str()).arg(keys::tagged(&target.name)).arg(owner).arg(length.as_millis())
    })
}

pub(super) fn query(target: &Target, owner: Option<OwnerId>) -> Call {
    let owner = owner.map_or_else(String::new, |owner| owner.to_string());
    on(&RW_QUERY, target).arg(half(target.kind)).arg(owner)
}

pub(super) fn force(target: &Target) -> Call {
    on(&RW_FORCE, target).arg(half(target.kind)).arg(keys::channel(target))
}

/// Takes away the flag of a writer that waits no longer.
pub(crate) fn unflag(Spot { target, owner, .. }: &Spot) -> Call {
    Call::new(&RW_UNMARK).key(&keys::mark(target)).arg(owner).arg(keys::channel(target))
}

/// Whether an attempt leaves a flag that a writer waits if it is not granted.
pub(crate) fn flags_writer(take: &Take<'_>) -> bool {
    take.spot.target.kind == Kind::Write && take.rw.prefer_writers && take.held == 0
}

fn on(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).arg(keys::tagged(&target.name))
}

fn half(kind: Kind) -> &'static str {
    if kind == Kind::Write { "write" } else { "read" }
}
