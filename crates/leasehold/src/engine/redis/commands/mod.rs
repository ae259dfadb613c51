//! Which command or script does what for which kind, and what its reply means: one file for each family.

mod admin;
mod fair;
mod group;
mod latch;
mod leased;
mod lock;
mod reply;
mod rw;
mod semaphore;
mod setnx;

use std::time::Duration;

pub(super) use self::admin::{fenced_write, last_token, token, uptime, write_refused};
pub(super) use self::fair::{heartbeat, queue};
pub(super) use self::reply::{
    facts_of_holder, forced, freed, given, number, owners, seconds_up, taken, tokens, verdicts,
};
pub(super) use self::rw::{flags_writer, unflag};
pub(super) use self::semaphore::forget_permits;
use super::keys;
use super::script::Call;
use crate::engine::remote::store::Take;
use crate::engine::{Adjust, Change, Kind, Spot, Target};
use crate::lease::COUNTED;
use crate::owner::OwnerId;

/// Takes or re-enters. Nothing for a latch, which is not held.
pub(super) fn take(take: &Take<'_>) -> Option<Call> {
    Some(match take.spot.target.kind {
        Kind::Lock | Kind::Spin => lock::take(take),
        Kind::Fair => fair::take(take),
        Kind::SetNx => setnx::take(take),
        Kind::Read => rw::read(take),
        Kind::Write => rw::write(take),
        Kind::Group => group::take(take),
        Kind::Semaphore => semaphore::take(take),
        Kind::Permits => leased::take(take),
        Kind::Latch => return None,
    })
}

pub(super) use self::lock::take_all;

/// Gives back one of `from` counts.
pub(super) fn give(spot: &Spot, from: u32, length: Duration) -> Option<Call> {
    Some(match spot.target.kind {
        Kind::Lock | Kind::Spin => lock::give(spot, from, length),
        Kind::Fair => fair::give(spot, from, length),
        Kind::SetNx => setnx::give(spot),
        Kind::Read | Kind::Write => rw::give(spot, from, length),
        Kind::Group => group::give(spot, from, length),
        Kind::Semaphore => semaphore::give(spot),
        Kind::Permits => leased::give(spot),
        Kind::Latch => return None,
    })
}

/// Sees to it that there are at most `to` counts.
pub(super) fn lower(spot: &Spot, to: u32) -> Option<Call> {
    Some(match spot.target.kind {
        Kind::Lock | Kind::Spin => lock::lower(spot, to),
        Kind::Fair => fair::lower(spot, to),
        // It is entered once or not at all, so giving back gives back everything.
        Kind::SetNx => setnx::give(spot),
        Kind::Read | Kind::Write => rw::lower(spot, to),
        Kind::Group => group::lower(spot, to),
        Kind::Semaphore => semaphore::give(spot),
        Kind::Permits => leased::give(spot),
        Kind::Latch => return None,
    })
}

/// Renews holds of one kind, or only looks at those with no time.
pub(super) fn renew(kind: Kind, holds: &[(&Spot, Duration)]) -> Option<Call> {
    Some(match kind {
        Kind::Lock | Kind::Spin | Kind::Fair => lock::renew(holds),
        Kind::SetNx => setnx::renew(holds),
        Kind::Read | Kind::Write => rw::renew(kind, holds),
        Kind::Group => group::renew(holds),
        Kind::Semaphore => semaphore::renew(holds),
        Kind::Permits => leased::renew(holds),
        Kind::Latch => return None,
    })
}

/// Tells the holder: of several, `owner` if it is one of them. Nothing for what has no one holder.
pub(super) fn query(target: &Target, owner: Option<OwnerId>) -> Option<Call> {
    Some(match target.kind {
        Kind::Lock | Kind::Spin | Kind::Fair => lock::query(target),
        Kind::SetNx => setnx::query(target),
        Kind::Read | Kind::Write => rw::query(target, owner),
        Kind::Group => group::query(target, owner),
        Kind::Semaphore | Kind::Permits | Kind::Latch => return None,
    })
}

/// Frees it, whichever owner holds it. Nothing for what has no one holder.
pub(super) fn force(target: &Target) -> Option<Call> {
    Some(match target.kind {
        Kind::Lock | Kind::Spin | Kind::SetNx => lock::force(target),
        Kind::Fair => fair::force(target),
        Kind::Read | Kind::Write => rw::force(target),
        Kind::Group => group::force(target),
        Kind::Semaphore | Kind::Permits | Kind::Latch => return None,
    })
}

/// Changes or tells a count. Nothing for what has no counter.
pub(super) fn change(target: &Target, change: &Change) -> Option<Call> {
    let question =
        || if target.kind == Kind::Permits { leased::count(target) } else { semaphore::count(target) };
    let call = match target.kind {
        Kind::Semaphore => semaphore::change(target),
        Kind::Permits => leased::change(target),
        Kind::Latch => latch::change(target),
        _ => return None,
    };
    let call = call.arg(change.request).arg(COUNTED.as_millis()).arg(keys::channel(target));
    Some(match &change.adjust {
        Adjust::TrySet { count, ttl: None } => call.arg("set").arg(count),
        Adjust::TrySet { count, ttl: Some(ttl) } => call.arg("set").arg(count).arg(whole(*ttl)),
        Adjust::Set(count) => call.arg("reset").arg(count),
        Adjust::Add(permits) => call.arg("add").arg(permits),
        Adjust::Give { count, create: true } => call.arg("give").arg(count),
        Adjust::Give { count, create: false } => call.arg("give to one that exists").arg(count),
        Adjust::GiveIds(ids) => ids.iter().fold(call.arg("give"), Call::arg),
        Adjust::SetLease(id, length) => call.arg("lease").arg(id).arg(leased::lease(*length)),
        Adjust::Drain => call.arg("drain"),
        Adjust::CountDown => call.arg("count down"),
        Adjust::Delete => call.arg("delete"),
        Adjust::Count => question().arg("free"),
        Adjust::Taken => question().arg("taken"),
        Adjust::Total => question().arg("total"),
        Adjust::LeaseOf(id) => question().arg("lease").arg(id),
    })
}

/// Forgets the result of a change.
pub(super) fn forget_change(target: &Target, change: &Change) -> Call {
    Call::command("HDEL").arg(keys::requests(target)).arg(change.request)
}

/// In milliseconds, and never none: a key without a time to live would stay for ever.
fn whole(length: Duration) -> u128 {
    length.as_millis().max(1)
}

/// With the key of the tokens, if one is asked for.
fn fenced(call: Call, take: &Take<'_>) -> Call {
    if take.fenced { call.key(&keys::token(&take.spot.target)) } else { call }
}
