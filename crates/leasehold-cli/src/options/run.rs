//! The options of `run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::duration;
use crate::run::SHORTEST_LEASE;
use crate::url::Url;

// With line breaks of its own, because the help is not wrapped.
pub(super) const RUN: &str = "\
Run a command while holding a lock.

The lock is renewed while the command runs and released when it ends. If the
lock cannot be renewed, the command is asked to end by SIGTERM and killed
before anybody else can get the lock. If leasehold itself is killed or stopped,
the command is killed too.

HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the command and to what it
has started. Ctrl-Z does not suspend a command that holds a lock. The command
finds LEASEHOLD_NAME and LEASEHOLD_OWNER in its environment.

What cannot be promised: a process that leaves the command's process group (a
daemon, a job of an interactive shell), becomes another user's (sudo) or waits
for a broken disk may outlive the lock. What the command leaves running in the
background when it ends runs on without the lock.";

pub(super) const RUN_EXAMPLES: &str = "\
Exit codes:
  the command's own, or 128 + the signal that it died by
  2    the options make no sense
  69   there is no lock server, or it refuses
  75   the lock is busy, or stayed so for the whole --wait
  76   the lock was lost, and the command was ended
  126  the command cannot be executed
  127  the command was not found

Examples:
  leasehold run nightly-report --url redis://localhost -- ./report.sh
  leasehold run import --wait 30s --max-hold 2h -- sh -c 'fetch && load'
  leasehold run tick --if-busy skip -- ./tick     (from cron, on many machines)";

/// The options of `run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Name of the lock.
    pub name: String,
    /// URL of the lock server
    ///
    /// Such as redis://host:port. A password in it is better kept in the
    /// environment, where others cannot see it.
    // Its value may contain a password, so the help must not show the value of the environment variable.
    #[arg(long, env = Url::VARIABLE, hide_env_values = true, verbatim_doc_comment)]
    pub url: Option<Url>,
    /// When it is busy: wait, fail or skip
    ///
    /// What to do when somebody else has the lock: wait for it; fail, which
    /// is to exit with 75; or skip the command and exit with 0.
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "wait",
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    pub if_busy: IfBusy,
    /// How long to wait for the lock.
    ///
    /// As long as it takes, unless given.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub wait: Option<Duration>,
    /// How long the lock outlives us
    ///
    /// How long the lock stays taken if this process is no more. It is
    /// renewed every third of that.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease, verbatim_doc_comment)]
    pub lease: Duration,
    /// How long the command may run.
    ///
    /// As long as it takes, unless given.
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub max_hold: Option<Duration>,
    /// How long before a loss to send SIGTERM
    ///
    /// How long before the lock is lost the command is asked to end by
    /// SIGTERM; 2s unless given, and a third of --lease or --max-hold at
    /// most. 0: it is not asked, only killed.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, verbatim_doc_comment)]
    pub grace: Option<Duration>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What to do when somebody else has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IfBusy {
    /// Wait for it.
    Wait,
    /// Exit with 75.
    Fail,
    /// Exit with 0, without running the command.
    Skip,
}

impl IfBusy {
    /// How it is written on the command line.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// The options of the child process that becomes the command.
#[derive(Debug, Args)]
pub struct ExecOptions {
    /// The process that must still be the parent.
    pub parent: i32,
    /// When it is too late to begin, in nanoseconds since the start of the machine.
    pub until: u64,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Reads a time for which a lock is held.
fn lease(text: &str) -> Result<Duration, String> {
    let length = duration::parse(text)?;
    if length < SHORTEST_LEASE {
        let least = duration::human(SHORTEST_LEASE);
        return Err(format!("that is too short to end a command in time: the least is {least}"));
    }
    if length > leasehold::limits::LONGEST_LEASE {
        return Err("that is longer than a hundred years".into());
    }
    Ok(length)
}
