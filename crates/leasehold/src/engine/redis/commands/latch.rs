//! A count that goes down to zero.

use crate::engine::Target;
use crate::engine::redis::keys;
use crate::engine::redis::script::{Call, LATCH};

pub(super) fn change(target: &Target) -> Call {
    Call::new(&LATCH).key(target.name.as_str()).key(&keys::requests(target))
}
