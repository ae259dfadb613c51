//! What the library sends to take a lock and to give it back, for the baselines that send the same.
//!
//! The scripts are the library's own files, so that a change there changes the baselines as well.

/// Takes a lock in the layout of Redisson: key; owner, lease, how often it is held, whether to take it by force.
pub const ACQUIRE: &str = include_str!("../../../crates/leasehold/src/engine/redis/scripts/acquire.lua");
/// Gives it back: key; owner, its count, lease, channel.
pub const RELEASE: &str = include_str!("../../../crates/leasehold/src/engine/redis/scripts/release.lua");
/// Gives back a lock by `SET … NX`: key; owner, channel.
pub const SETNX_RELEASE: &str =
    include_str!("../../../crates/leasehold/src/engine/redis/scripts/setnx_release.lua");

/// The lease that is asked for: the library's watchdog time.
pub const LEASE_MS: &str = "30000";

/// An id as the library's clients have one.
pub const CLIENT_ID: &str = "5e3cf0a1-7d3b-4b52-9a0c-2f6f2c1f7a10";

/// Where a release in Redisson's layout is announced.
#[must_use]
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Where a release of a lock by `SET … NX` is announced.
#[must_use]
pub fn setnx_channel(name: &str) -> String {
    format!("leasehold_setnx__channel:{{{name}}}")
}
