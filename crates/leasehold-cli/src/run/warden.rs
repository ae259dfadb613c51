//! `leasehold __warden`: a second process that ends the command when we cannot.
//!
//! The kernel kills the command itself when we are killed, but not what the command has started, such as the steps of
//! a script; and nobody at all kills it when we are stopped. So the command runs in the process group of a warden,
//! who knows until when the lock is held, and who kills that group, itself included, when that time is over or when
//! the line to us breaks. It never leaves the group, so the group's number cannot come to mean somebody else.

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
use super::failure::Failure;
use super::program;
use crate::error::Error;

/// What the warden says when it can be relied on.
const READY: [u8; 1] = *b"!";

/// The side of whoever runs the command.
#[derive(Debug)]
pub(super) struct Warden {
    process: Child,
    group: Pid,
    line: UnixStream,
}

impl Warden {
    /// Starts a warden and waits until it is on guard.
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

    /// Tells until when the group may live, counted from the start of the machine.
    pub(super) fn allow_until(&self, until: Duration) {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        // Not awaited: a warden that does not listen must not hold us up. It kills too early then, never too late.
        let _ = self.line.try_write(&until.to_ne_bytes());
    }

    /// Whether the warden has ended, as it does when it ends the group.
    pub(super) async fn has_ended(&mut self) -> bool {
        // Those who die together are not seen dead at the same moment.
        timeout(Duration::from_millis(100), self.process.wait()).await.is_ok()
    }

    /// Ends the warden and spares the rest of its group.
    pub(super) async fn dismiss(mut self) {
        // Not by breaking the line, which means the opposite.
        let _ = self.process.kill().await;
    }
}

/// The warden itself.
///
/// # Errors
///
/// When it was not started by `Warden::start`. Otherwise it does not return, because it kills itself.
pub fn run() -> Result<(), Error> {
    // It has to outlive whatever the group is told, Ctrl-C and Ctrl-Z included.
    SigSet::all().thread_block().map_err(|error| Failure::Start(error.into()))?;
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"leasehold-warden");
    // Whoever tries it by hand, from a script, would lose that script.
    if getpgrp() != getpid() {
        return Err(Failure::Orphaned.into());
    }
    let _ = watch();
    killpg(getpgrp(), Signal::SIGKILL).map_err(|error| Failure::Start(error.into()).into())
}

/// Returns when the time is over or the line is broken.
fn watch() -> io::Result<()> {
    let mut line = BlockingStream::from(stdin().as_fd().try_clone_to_owned()?);
    line.write_all(&READY)?;
    let mut until = None::<Duration>;
    loop {
        let left = until.map(|until| until.saturating_sub(clock::since_boot()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        // The clock of time-outs stands still while the machine is suspended: look from time to time.
        line.set_read_timeout(left.map(|left| left.min(Duration::from_secs(1))))?;
        // Told as a whole, so read as a whole: nobody writes half a message of 8 bytes.
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
