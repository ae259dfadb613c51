//! Which script of the read-write lock is called for what.

use std::time::Duration;

use super::calls::whole;
use super::keys;
use super::scripts::{Call, RW_FORCE, RW_LEAVE, RW_QUERY, RW_READ, RW_RENEW, RW_UNMARK, RW_WRITE, Script};
use crate::engine::{BARRED, Claim, Kind, Spot, Target};
use crate::owner::OwnerId;

/// Takes or re-enters the read half.
pub(super) fn read(claim: &Claim, length: Duration) -> Call {
    let Spot { target, owner, .. } = &claim.spot;
    let call = on(&RW_READ, target);
    let call = if claim.rw.prefer_writers { call.key(&keys::mark(target)) } else { call };
    let steal = if claim.steal { keys::channel(target).to_string() } else { String::new() };
    call.arg(owner).arg(whole(length)).arg(claim.held).arg(steal)
}

/// Takes or re-enters the write half.
pub(super) fn write(claim: &Claim, length: Duration) -> Call {
    let Spot { target, owner, .. } = &claim.spot;
    let call = on(&RW_WRITE, target);
    let call = if marks(claim) { call.key(&keys::mark(target)) } else { call };
    let call = if claim.fenced { call.key(&keys::token(target)) } else { call };
    let how = match (claim.rw.upgrade, claim.steal) {
        (true, _) => "upgrade",
        (false, true) => "steal",
        (false, false) => "",
    };
    let mark = if marks(claim) { BARRED.as_millis() } else { 0 };
    call.arg(owner).arg(whole(length)).arg(claim.held).arg(how).arg(mark)
}

/// Gives back one of `from` counts.
pub(super) fn release(spot: &Spot, from: u32, length: Duration) -> Call {
    leave(spot, &from.to_string(), from.saturating_sub(1), length)
}

/// Sees to it that there are at most `count`.
pub(super) fn abandon(spot: &Spot, count: u32) -> Call {
    leave(spot, "", count, Duration::ZERO)
}

fn leave(spot: &Spot, from: &str, to: u32, length: Duration) -> Call {
    let Spot { target, owner, .. } = spot;
    let call = on(&RW_LEAVE, target).arg(owner).arg(half(target.kind)).arg(from).arg(to);
    call.arg(length.as_millis()).arg(keys::channel(target))
}

/// Renews holds of one half, or only looks at those with no time.
pub(super) fn renew<'a>(kind: Kind, holds: impl IntoIterator<Item = (&'a Spot, Duration)>) -> Call {
    holds.into_iter().fold(Call::new(&RW_RENEW).arg(half(kind)), |call, (spot, length)| {
        let Spot { target, owner, .. } = spot;
        call.key(target.name.as_str()).arg(keys::tagged(&target.name)).arg(owner).arg(length.as_millis())
    })
}

/// Tells who holds it: of several, `owner` if it is one of them.
pub(super) fn query(target: &Target, owner: Option<OwnerId>) -> Call {
    let owner = owner.map_or_else(String::new, |owner| owner.to_string());
    on(&RW_QUERY, target).arg(half(target.kind)).arg(owner)
}

/// Frees it, whoever holds it.
pub(super) fn force(target: &Target) -> Call {
    on(&RW_FORCE, target).arg(half(target.kind)).arg(keys::channel(target))
}

/// Takes away the mark of a writer that waits no longer.
pub(super) fn unmark(spot: &Spot) -> Call {
    let Spot { target, owner, .. } = spot;
    Call::new(&RW_UNMARK).key(&keys::mark(target)).arg(owner).arg(keys::channel(target))
}

/// Whether an attempt leaves a mark if it is not granted.
pub(super) fn marks(claim: &Claim) -> bool {
    claim.spot.target.kind == Kind::Write && claim.rw.prefer_writers && claim.held == 0
}

fn on(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).arg(keys::tagged(&target.name))
}

fn half(kind: Kind) -> &'static str {
    if kind == Kind::Write { "write" } else { "read" }
}
