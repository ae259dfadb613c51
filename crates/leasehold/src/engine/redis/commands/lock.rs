//! The plain lock: a hash with one field, the owner, whose value counts its entries.

use std::time::Duration;

use super::{fenced, whole};
use crate::engine::redis::keys;
use crate::engine::redis::script::{
    ABANDON, ACQUIRE, ACQUIRE_ALL, Call, FORCE, QUERY, RELEASE, RENEW, Script,
};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};

pub(super) fn take(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let call = fenced(Call::new(&ACQUIRE).key(target.name.as_str()), take);
    call.arg(owner).arg(whole(take.length)).arg(take.held).arg(u8::from(take.steal))
}

/// Takes several locks of one owner, or none.
pub(crate) fn take_all(takes: &[Take<'_>]) -> Call {
    let locks = takes.iter().map(|take| take.spot.target.name.as_str().to_owned());
    let tokens = takes.iter().filter(|take| take.fenced).map(|take| keys::token(&take.spot.target));
    let call = locks.chain(tokens).fold(Call::new(&ACQUIRE_ALL), |call, key| call.key(&key));
    call.arg(takes.len()).arg(takes[0].spot.owner).arg(whole(takes[0].length))
}

pub(super) fn give(Spot { target, owner, .. }: &Spot, from: u32, length: Duration) -> Call {
    let call = Call::new(&RELEASE).key(target.name.as_str());
    call.arg(owner).arg(from).arg(whole(length)).arg(keys::channel(target))
}

pub(super) fn lower(Spot { target, owner, .. }: &Spot, to: u32) -> Call {
    Call::new(&ABANDON).key(target.name.as_str()).arg(owner).arg(to).arg(keys::channel(target))
}

pub(super) fn renew(holds: &[(&Spot, Duration)]) -> Call {
    by_owner(&RENEW, holds)
}

/// Renews holds whose script needs the key, the owner and the time of each.
pub(super) fn by_owner(script: &'static Script, holds: &[(&Spot, Duration)]) -> Call {
    holds.iter().fold(Call::new(script), |call, (spot, length)| {
        call.key(spot.target.name.as_str()).arg(spot.owner).arg(length.as_millis())
    })
}

pub(super) fn query(target: &Target) -> Call {
    Call::new(&QUERY).key(target.name.as_str())
}

pub(super) fn force(target: &Target) -> Call {
    Call::new(&FORCE).key(target.name.as_str()).arg(keys::channel(target))
}
