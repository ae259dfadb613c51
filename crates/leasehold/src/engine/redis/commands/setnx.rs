//! The lock that most other libraries write: one string, as `SET … NX` makes it.

use std::time::Duration;

use super::lock::by_owner;
use super::{fenced, whole};
use crate::engine::redis::keys;
use crate::engine::redis::script::{Call, SETNX_ACQUIRE, SETNX_QUERY, SETNX_RENEW};
use crate::engine::remote::store::Take;
use crate::engine::{Spot, Target};

pub(super) fn take(take: &Take<'_>) -> Call {
    let Spot { target, owner, .. } = take.spot;
    let length = whole(take.length);
    if take.fenced || take.steal {
        let call = fenced(Call::new(&SETNX_ACQUIRE).key(target.name.as_str()), take);
        return call.arg(owner).arg(length).arg(u8::from(take.steal));
    }
    Call::command("SET").key(target.name.as_str()).arg(owner).arg("NX").arg("PX").arg(length)
}

pub(super) fn give(Spot { target, owner, .. }: &Spot) -> Call {
    Call::compare_and_delete(target.name.as_str(), owner, keys::channel(target))
}

pub(super) fn renew(holds: &[(&Spot, Duration)]) -> Call {
    by_owner(&SETNX_RENEW, holds)
}

pub(super) fn query(target: &Target) -> Call {
    Call::new(&SETNX_QUERY).key(target.name.as_str())
}
