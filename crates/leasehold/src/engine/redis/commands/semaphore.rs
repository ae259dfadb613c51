//! Permits that are only counted: a number, and a record of who has how many, which is ours alone.

use std::time::Duration;

use super::whole;
use crate::engine::redis::keys;
use crate::engine::redis::script::{
    COUNT, Call, GIVE_PERMITS, KEEP_PERMITS, SEMAPHORE, Script, TAKE_PERMITS,
};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};

/// A script on a semaphore and the record of who has permits of it.
fn on(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).key(&keys::record(target))
}

pub(super) fn take(take: &Take<'_>) -> Call {
    let Spot { target, owner, amount } = take.spot;
    on(&TAKE_PERMITS, target).arg(owner).arg(whole(take.length)).arg(amount)
}

/// Gives back all that is held.
pub(super) fn give(Spot { target, owner, .. }: &Spot) -> Call {
    on(&GIVE_PERMITS, target).arg(owner).arg(keys::channel(target))
}

pub(super) fn renew(holds: &[(&Spot, Duration)]) -> Call {
    holds.iter().fold(Call::new(&KEEP_PERMITS), |call, (spot, length)| {
        let call = call.key(spot.target.name.as_str()).key(&keys::record(&spot.target));
        call.arg(spot.owner).arg(whole(*length))
    })
}

pub(super) fn change(target: &Target) -> Call {
    Call::new(&SEMAPHORE).key(target.name.as_str()).key(&keys::requests(target)).key(&keys::record(target))
}

pub(super) fn count(target: &Target) -> Call {
    Call::new(&COUNT).key(target.name.as_str())
}

/// Takes an owner's permits off the record. They stay taken.
pub(crate) fn forget_permits(Spot { target, owner, .. }: &Spot) -> Call {
    Call::command("HDEL").arg(keys::record(target)).arg(owner)
}
