//! The real node-redisson, in a Node.js process that locks on command.

use std::{path::Path, process::Command};

use crate::peer::Peer;

/// Where `cargo xtask interop` installs it.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/interop/node");

/// Starts a Node.js process that locks on the server at this port.
///
/// # Panics
///
/// When it was not installed, or does not start: a test that cannot run must not pass.
#[must_use]
pub fn start(name: &str, port: u16) -> Peer {
    let program = Path::new(INSTALLED).join("main.mjs");
    assert!(
        program.is_file(),
        "{} is not there: run `cargo xtask interop`, which installs it and what it needs",
        program.display()
    );
    Peer::start(name, Command::new("node").arg(program).arg(port.to_string()))
}
