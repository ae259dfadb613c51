//! Go's own locks on etcd, in a process that locks on command.

use std::{path::Path, process::Command};

use leasehold_servers::server::Etcd;

use crate::peer::Peer;

/// Where `cargo xtask test` builds it.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/interop/go");

/// Starts a process that locks on this member of etcd by Go's packages `concurrency` and `recipes`.
///
/// # Panics
///
/// When it was not built, or does not start: a test that cannot run must not pass.
#[must_use]
pub fn start(name: &str, server: &Etcd) -> Peer {
    let program = Path::new(BUILT);
    assert!(
        program.is_file(),
        "{} is not built: run `cargo xtask test --engine etcd`, which installs what it needs and builds it",
        program.display()
    );
    Peer::start(name, Command::new(program).arg(format!("127.0.0.1:{}", server.port())))
}
