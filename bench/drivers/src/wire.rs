//! The commands by which the library acquires and releases a lock, for the baselines that send the same.
//!
//! The scripts are put together from the library's own files, as the library does it, so that a change there changes the
//! baselines as well; the harness checks that the library has really sent the same ones.

/// One of the library's files.
macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../../../crates/leasehold/src/engine/redis/scripts/", $name))
    };
}

/// Acquires a lock in the layout of Redisson: key; owner, lease, how often it is held, whether to acquire it by force.
pub const ACQUIRE: &str =
    concat!(file!("mint.lua"), file!("publish.lua"), file!("lock.lua"), file!("acquire.lua"));
/// Releases it: key; owner, its count, lease, channel.
pub const RELEASE: &str =
    concat!(file!("mint.lua"), file!("publish.lua"), file!("lock.lua"), file!("release.lua"));
/// Releases a lock by `SET … NX`: key; owner, channel.
pub const SETNX_RELEASE: &str = concat!(file!("publish.lua"), file!("setnx_release.lua"));

/// The hashes of the scripts of a layout on a server.
#[must_use]
pub fn hashes(setnx: bool) -> Vec<String> {
    let scripts: &[&str] = if setnx { &[SETNX_RELEASE] } else { &[ACQUIRE, RELEASE] };
    scripts.iter().map(|script| redis::Script::new(script).get_hash().to_owned()).collect()
}

/// The requested lease: the library's watchdog time.
pub const LEASE_MS: &str = "30000";

/// An id as the library's clients have one.
pub const CLIENT_ID: &str = "5e3cf0a1-7d3b-4b52-9a0c-2f6f2c1f7a10";

/// The channel on which a release in Redisson's layout is published.
#[must_use]
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// The channel on which a release of a lock by `SET … NX` is published.
#[must_use]
pub fn setnx_channel(name: &str) -> String {
    format!("leasehold_setnx__channel:{{{name}}}")
}
