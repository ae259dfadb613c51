//! The terminal, which only one group of processes can have at a time.
//!
//! The command has a process group of its own, so to the terminal it is in the background: reading there would stop it. So
//! it is lent the terminal, as a shell does with its jobs: at once if both its input and its output are the terminal,
//! otherwise when it is stopped for accessing it. Not always at once, because other processes in a pipeline may need it, as
//! `less` does in `leasehold run … | less`.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, stdin, stdout};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that controls this process, if one does.
///
/// It needs [`block_stop_by_terminal`](super::signals::block_stop_by_terminal).
#[derive(Debug)]
pub(super) struct Terminal {
    file: Option<File>,
    lent: bool,
}

impl Terminal {
    pub(super) fn controlling() -> Self {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok();
        Self { file, lent: false }
    }

    /// Lends the terminal to a group that is likely to use it.
    pub(super) fn lend_if_interactive(&mut self, group: Pid) {
        if stdin().is_terminal() && stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Lends the terminal if we have it, which is not so in the background. True if the group has it then.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        let Some(file) = &self.file else { return false };
        let lent = match tcgetpgrp(file) {
            Ok(foreground) if foreground == group => true,
            Ok(foreground) if foreground == getpgrp() => tcsetpgrp(file, group).is_ok(),
            _ => false,
        };
        self.lent |= lent;
        lent
    }

    /// Forwards Ctrl-C, which only the group with the terminal receives, to the processes that would have received it if we
    /// had not lent the terminal: a script that runs us, and others in a pipeline.
    pub(super) fn pass_on_interrupt(&self) {
        if self.lent {
            let _ = killpg(getpgrp(), Signal::SIGINT);
        }
    }

    /// Whether a user at a terminal waits for us to end.
    pub(super) fn is_interactive(&self) -> bool {
        let foreground = self.file.as_ref().and_then(|file| tcgetpgrp(file).ok());
        self.lent || foreground == Some(getpgrp())
    }

    /// Takes the terminal back for the processes that run beside us or after us. A shell would do it by itself, a script
    /// not.
    pub(super) fn take_back(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.lent) {
            let _ = tcsetpgrp(file, getpgrp());
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Ends this process by SIGINT, as if it had not been caught. Returns only if that fails.
///
/// A shell that runs a loop or a script ends it at Ctrl-C only if it sees that the program died of it.
pub(super) fn die_of_interrupt() {
    // A new program begins with the default effect of signals.
    let _ = Command::new("/bin/sh").args(["-c", "kill -s INT $$"]).exec();
}
