//! `leasehold __exec`: the child process before it becomes the command.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use nix::unistd::{Pid, getppid};

use super::clock;
use super::failure::RunError;
use crate::error::Error;
use crate::options::ExecOptions;

/// Becomes the command, once it is certain not to outlive its parent or its lock.
///
/// # Errors
///
/// When the command was not found or cannot be executed, or the lock has already expired. On success it does not return.
pub fn run(options: &ExecOptions) -> Result<(), Error> {
    die_with_parent(Pid::from_raw(options.parent))?;
    if clock::since_boot() >= Duration::from_nanos(options.until) {
        return Err(RunError::TooLate.into());
    }
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(RunError::NoCommand.into());
    };
    let cause = Command::new(program).args(arguments).exec();
    let command = program.to_string_lossy().into_owned();
    Err(match cause.kind() {
        io::ErrorKind::NotFound => RunError::NotFound { command },
        _ => RunError::NotExecutable { command, cause },
    }
    .into())
}

/// Makes the kernel kill this process when the parent ends, for any reason. The command inherits this setting.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> Result<(), RunError> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(|error| RunError::Start(error.into()))?;
    // The parent may have ended before the call. Then this process has another parent by now.
    if getppid() == parent { Ok(()) } else { Err(RunError::Orphaned) }
}

/// On other systems only the [warden](super::warden) does this.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(parent: Pid) -> Result<(), RunError> {
    if getppid() == parent { Ok(()) } else { Err(RunError::Orphaned) }
}
