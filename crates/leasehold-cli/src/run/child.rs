//! The command as a child process.

use std::fs::File;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use tokio::process::Command;

use super::held::Held;
use super::nesting;
use super::program;
use crate::options::RunOptions;

/// The command, in a process group that may have other members.
///
/// Dropping it kills the group if the command has not ended.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    group: Pid,
}

impl Child {
    /// Starts the command as a member of `group`, unless `until` has passed by then. It inherits the open file of the lock,
    /// unless the options refuse that.
    ///
    /// Call it on the main thread: the kernel kills the command when the thread ends that has started it, not only
    /// when the process does. The main thread is the one that lives as long as the process.
    pub(super) fn start(
        options: &RunOptions,
        guard: &Held,
        group: Pid,
        until: Option<Duration>,
    ) -> io::Result<Self> {
        let until = until.and_then(|until| u64::try_from(until.as_nanos()).ok()).unwrap_or(u64::MAX);
        let file = if options.close { None } else { inherited(guard)? };
        let mut command = Command::from(program::own()?);
        let outer = nesting::outer().into_iter().chain([guard.id()]);
        command.env(nesting::VARIABLE, outer.collect::<Vec<_>>().join(" "));
        if let Some(token) = guard.token() {
            command.env("LEASEHOLD_TOKEN", token.to_string());
        } else {
            // That of a run around this one is about another lock.
            command.env_remove("LEASEHOLD_TOKEN");
        }
        let process = command
            .arg("__exec")
            .arg(std::process::id().to_string())
            .arg(until.to_string())
            .args(options.json.then_some("--json"))
            .arg("--")
            .args(&options.command)
            .env("LEASEHOLD_NAME", guard.name())
            .env("LEASEHOLD_OWNER", guard.owner().to_string())
            .process_group(group.as_raw())
            .spawn()?;
        // No other process may inherit it.
        drop(file);
        Ok(Self { process, group })
    }

    /// Waits for the end of the command, not of processes that it may have left behind.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Sends a signal to the command and to the processes that it has started.
    pub(super) fn signal(&self, signal: Signal) {
        // A process that does not get it has ended, or belongs to another user now.
        let _ = killpg(self.group, signal);
        // The command may have left the group, but its process id is not reused until it is waited for.
        if let Some(id) = self.id()
            && getpgid(Some(id)) != Ok(self.group)
        {
            let _ = kill(id, signal);
        }
    }

    /// Requests the command to end by a signal.
    pub(super) fn ask_to_end(&self, signal: Signal) {
        self.signal(signal);
        // A stopped process does not handle signals.
        self.signal(Signal::SIGCONT);
    }

    /// The signal that stopped the command, if it was stopped since the last call.
    #[cfg(target_os = "linux")]
    pub(super) fn stopped_by(&self) -> Option<Signal> {
        use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
        // Waits for stops only, so it does not take the exit status away from `ended`.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.id()?), flags) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Where stops cannot be queried alone, they are not queried.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn stopped_by(&self) -> Option<Signal> {
        None
    }

    /// The process id of the command, until it is waited for.
    fn id(&self) -> Option<Pid> {
        self.process.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
    }
}

/// A copy of the open file of the lock, on an engine that has one. The next process inherits it, and so do the processes which
/// that one starts: the lock is not free before all of them have ended, even if we are killed.
fn inherited(guard: &Held) -> io::Result<Option<File>> {
    let file = guard.file()?;
    if let Some(file) = &file {
        fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    Ok(file)
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.id().is_some() {
            self.signal(Signal::SIGKILL);
        }
    }
}
