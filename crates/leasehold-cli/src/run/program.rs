//! This program itself, to be run in another role.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{env, io};

/// A command that runs this program.
pub(super) fn own() -> io::Result<Command> {
    // Not by its path: after hours of waiting there may be another version there, or none.
    let path = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { env::current_exe()? };
    let mut command = Command::new(path);
    command.arg0("leasehold");
    Ok(command)
}
