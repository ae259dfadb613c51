//! `leasehold __warden`: a second process that ends the command when we cannot.
//!
//! The kernel kills the command itself when we are killed, but not the processes that the command has started, such as the
//! steps of a script; and nothing kills it when we are stopped. So the command runs in the process group of a warden, which
//! has the deadline of the lock, and kills that group, itself included, when the deadline passes or the socket to us is
//! closed. It never leaves the group, so the group's id cannot be reused for another one. It is started before the command
//! gets the file of a lock, and never has that file open.

use std::io::{self, Read as _, Write as _, stdin};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, getpid};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::clock;
use super::failure::RunError;
use super::program;
use crate::error::Error;

/// The warden sends this when it is ready.
const READY: [u8; 1] = *b"!";

/// The warden, as seen by the process that runs the command.
#[derive(Debug)]
pub(super) struct Warden {
    process: Child,
    group: Pid,
    line: UnixStream,
}

impl Warden {
    /// Starts a warden and waits until it is ready.
    pub(super) async fn start() -> io::Result<Self> {
        let (ours, theirs) = BlockingStream::pair()?;
        let process = Command::from(program::own()?)
            .arg("__warden")
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let gone = || io::Error::other("its warden has ended");
        let group = process.id().and_then(|id| i32::try_from(id).ok()).ok_or_else(gone)?;
        ours.set_nonblocking(true)?;
        let mut line = UnixStream::from_std(ours)?;
        let mut ready = [0; READY.len()];
        line.read_exact(&mut ready).await.map_err(|_| gone())?;
        Ok(Self { process, group: Pid::from_raw(group), line })
    }

    /// The process group that it guards, for the command to join.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Sends the deadline of the group, counted from the start of the machine. `None` is no deadline: then only our end
    /// ends the group.
    pub(super) fn allow_until(&self, until: Option<Duration>) {
        let Some(until) = until else { return };
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        // Not awaited: a warden that does not read must not block us. Then it kills too early, never too late.
        let _ = self.line.try_write(&until.to_ne_bytes());
    }

    /// Whether the warden has ended, as it does when it ends the group.
    pub(super) async fn has_ended(&mut self) -> bool {
        // The deaths of both are not reported at the same moment.
        timeout(Duration::from_millis(100), self.process.wait()).await.is_ok()
    }

    /// Ends the warden but not the rest of its group.
    pub(super) async fn dismiss(mut self) {
        // Not by closing the socket, which would kill the group.
        let _ = self.process.kill().await;
    }
}

/// The warden itself.
///
/// # Errors
///
/// When it was not started by `Warden::start`. Otherwise it does not return, because it kills itself.
pub fn run() -> Result<(), Error> {
    // It has to survive every signal to the group, Ctrl-C and Ctrl-Z included.
    SigSet::all().thread_block().map_err(|error| RunError::Start(error.into()))?;
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"leasehold-warden");
    // Called by hand from a script, it would kill that script.
    if getpgrp() != getpid() {
        return Err(RunError::Orphaned.into());
    }
    let _ = watch();
    killpg(getpgrp(), Signal::SIGKILL).map_err(|error| RunError::Start(error.into()).into())
}

/// Returns when the deadline has passed or the socket is closed.
fn watch() -> io::Result<()> {
    let mut line = BlockingStream::from(stdin().as_fd().try_clone_to_owned()?);
    line.write_all(&READY)?;
    let mut until = None::<Duration>;
    loop {
        let left = until.map(|until| until.saturating_sub(clock::since_boot()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        // The clock of time-outs stands still while the machine is suspended: check the deadline at least every second.
        line.set_read_timeout(left.map(|left| left.min(Duration::from_secs(1))))?;
        // Each message is 8 bytes and is written as a whole, so it is read as a whole.
        let mut news = [0; 8];
        match line.read(&mut news) {
            Ok(8) => until = Some(Duration::from_nanos(u64::from_ne_bytes(news))),
            Ok(_) => return Ok(()),
            // Interrupted by SIGCONT, for instance.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}
