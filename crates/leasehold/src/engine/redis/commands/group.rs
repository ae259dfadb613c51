//! Some values of a group: one hash for all, with a field for each value.

use std::time::Duration;

use highway::{HighwayHash, HighwayHasher, Key};

use super::{fenced, whole};
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Script};
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Resource};
use crate::owner::OwnerId;

static ACQUIRE: Script = locks!("group/common.lua" "group/acquire.lua");
static LEAVE: Script = locks!("group/common.lua" "group/leave.lua");
static RENEW: Script = locks!("group/common.lua" "group/renew.lua");
static QUERY: Script = locks!("group/common.lua" "group/query.lua");
static FORCE: Script = locks!("group/common.lua" "group/force.lua");

pub(super) fn take(take: &Take<'_>, retention: Option<Duration>) -> Call {
    let HoldKey { resource, owner, .. } = take.hold_key;
    let call = fenced(Call::new(&ACQUIRE).key(resource.name.as_str()), take);
    let call = call.arg(owner).arg(whole(take.lease.length())).arg(take.held).arg(u8::from(take.steal));
    let retention = retention.filter(|_| take.fenced).map(|length| length.as_millis().to_string());
    fields(call.arg(retention.unwrap_or_default()), resource)
}

pub(super) fn give(hold_key: &HoldKey, from: u32, length: Duration) -> Call {
    leave(hold_key, &from.to_string(), from.saturating_sub(1), length)
}

pub(super) fn lower(hold_key: &HoldKey, to: u32) -> Call {
    leave(hold_key, "", to, Duration::ZERO)
}

fn leave(HoldKey { resource, owner, .. }: &HoldKey, from: &str, to: u32, length: Duration) -> Call {
    let call = Call::new(&LEAVE).key(resource.name.as_str()).arg(owner).arg(from).arg(to);
    fields(call.arg(length.as_millis()).arg(keys::Channel(resource)), resource)
}

pub(super) fn renew(holds: &[(&HoldKey, Duration)]) -> Call {
    holds.iter().fold(Call::new(&RENEW), |call, (HoldKey { resource, owner, .. }, length)| {
        let call = call.key(resource.name.as_str()).arg(owner).arg(length.as_millis());
        fields(call.arg(resource.values().len()), resource)
    })
}

/// Queries the holder of any of them, or whether `owner` holds all.
pub(super) fn query(resource: &Resource, owner: Option<OwnerId>) -> Call {
    let owner = owner.map_or_else(String::new, |owner| owner.to_string());
    fields(Call::new(&QUERY).key(resource.name.as_str()).arg(owner), resource)
}

/// Queries the holder of any of the values that have these fields.
pub(super) fn holder_of(resource: &Resource, fields: &[Vec<u8>]) -> Call {
    let call = Call::new(&QUERY).key(resource.name.as_str()).arg("");
    fields.iter().fold(call, |call, field| call.bytes(field))
}

pub(super) fn force(resource: &Resource) -> Call {
    fields(Call::new(&FORCE).key(resource.name.as_str()).arg(keys::Channel(resource)), resource)
}

fn fields(call: Call, resource: &Resource) -> Call {
    resource.values().iter().fold(call, |call, value| call.arg(field(value)))
}

/// The field of a value, as Redisson derives it from UTF-8 text: a hash of 128 bits in Base64 without its padding.
fn field(value: &str) -> String {
    let key =
        Key([0x9e37_79b9_7f4a_7c15, 0xf39c_c060_5ced_c834, 0x1082_276b_f3a2_7251, 0xf86c_6a11_d0c1_8e95]);
    let [first, second] = HighwayHasher::new(key).hash128(value.as_bytes());
    let bits = u128::from(first) << 64 | u128::from(second);
    base64(bits)
}

fn base64(bits: u128) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u128| char::from(DIGITS[(bits & 63) as usize]);
    // 21 digits have six bits each, which leaves two for the last.
    let whole = (0..21).map(|n| digit(bits >> (122 - 6 * n)));
    whole.chain([digit(bits << 4)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_value_has_the_same_hash_field_as_in_redisson() {
        for (value, expected) in [
            ("", "t6rZwibGo2uy1OSmNVe8pg"),
            ("Jack_001", "7pNoDdizVy2xY792MaFv+w"),
            ("Mary_002", "kIX2DFOX4IWct7G7K6tV9A"),
            ("0123456789abcdef0123456789abcdef", "08hr0B8iaf3PoSsWAS8sWA"),
            ("0123456789abcdef0123456789abcdefX", "VjlgQDRPSK889um0d9QvSg"),
        ] {
            assert_eq!(field(value), expected, "{value:?}");
        }
    }
}
