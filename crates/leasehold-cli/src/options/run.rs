//! The options of `run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};

use crate::duration;
use crate::run::SHORTEST_LEASE;
use crate::url::Url;

// With line breaks of its own, because the help is not wrapped.
pub(super) const RUN: &str = "\
Run a command while holding a lock.

The lock is renewed while the command runs and released when it ends. If the
lock cannot be renewed, the command receives SIGTERM, and is killed before
another process can acquire the lock. If leasehold itself is killed or stopped,
the command is killed, too.

Without --url the lock is a file of this user on this machine, file:, and a line
on the standard error says so. The command inherits the open file: the lock is
not free while the command or a process that it started lives, even if leasehold
is killed. There a command goes on while leasehold is stopped.
`flock DIRECTORY/NAME.lock` contends for the same lock.

HUP, INT, QUIT, TERM, USR1 and USR2 are forwarded to the command and to the
processes in its group. Ctrl-Z does not suspend a command that holds a lock. The
environment of the command has LEASEHOLD_NAME, LEASEHOLD_OWNER, LEASEHOLD_TOKEN
with --fenced, and LEASEHOLD_HOLDS, by which a run inside of the command that
asks for the same lock is refused: it would wait for itself.

Limits: a process that leaves the command's process group (a daemon, a job of an
interactive shell), changes its user (sudo) or waits for a broken disk may
outlive the lock. Background processes that are left when the command ends
continue without the lock. On file: all of them keep the lock, unless they close
the files that they inherit, as sudo does, or --close is given.";

pub(super) const RUN_EXAMPLES: &str = "\
Exit codes:
  that of the command, or 128 + the number of the signal that ended it
  2    usage error
  69   the lock server is not reachable, or refuses the request, or the
       directory of the lock cannot be used
  75   the lock is busy, or stayed busy for the whole --wait
  76   the lock was lost, and the command was ended
  126  the command cannot be executed
  127  the command was not found

Examples:
  leasehold run nightly-report ./report.sh               (on this machine)
  leasehold run nightly-report --url redis://localhost -- ./report.sh
  leasehold run deploy --url file:///var/lock/app -- ./deploy
  leasehold run import --wait 30s --max-hold 2h -- sh -c 'fetch && load'
  leasehold run tick --if-busy skip --min-hold 50s -- ./tick
                     (each minute, from cron on several machines)
  leasehold run downloads --permits 3 --url redis://localhost ./fetch
                     (three at a time, on all machines together)";

/// The options of `run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option that is there or not")]
#[expect(clippy::doc_markdown, reason = "the texts are the help")]
pub struct RunOptions {
    /// Name of the lock.
    pub name: String,
    /// The server or directory
    ///
    /// Such as redis://host:port for several machines, or `file:///directory`
    /// for several users of one. If it contains a password, set it in the
    /// environment: the process list shows arguments to other users. Unless
    /// given, file: for this user and this machine.
    // Its value may contain a password, so the help must not show the value of the environment variable.
    #[arg(long, env = Url::VARIABLE, hide_env_values = true, verbatim_doc_comment)]
    pub url: Option<Url>,
    /// The file of the settings
    ///
    /// TOML with url, watchdog and so on; what is also given by an option or
    /// in the environment is taken from there. Unless given, the file
    /// leasehold/config.toml in the user's configuration directory, if there
    /// is one.
    #[arg(long, env = "LEASEHOLD_CONFIG", value_name = "FILE", hide_env_values = true, verbatim_doc_comment)]
    pub config: Option<PathBuf>,
    /// Allow verify=none in the URL
    ///
    /// Such a server is not verified: any machine in between can read the
    /// password and answer in its place. Better verify it by ca=PATH.
    #[arg(long, verbatim_doc_comment)]
    pub allow_unverified_tls: bool,
    /// If it is busy: wait, fail or skip
    ///
    /// What to do if another process holds the lock: wait for it; fail, with
    /// exit code 75; or skip the command, with exit code 0.
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
    /// Without a limit unless given.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub wait: Option<Duration>,
    /// How long the lock stays held if this process dies
    ///
    /// Unless given, the watchdog of the configuration, or 30s. The lock is
    /// renewed whenever a third of it is over.
    /// On file: the lock is held while a process has its file open, and this
    /// has no effect.
    #[arg(long, value_name = "TIME", value_parser = lease, verbatim_doc_comment)]
    pub lease: Option<Duration>,
    /// How long the command may run.
    ///
    /// Without a limit unless given.
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub max_hold: Option<Duration>,
    /// How long the lock stays taken at least
    ///
    /// For a job that each machine starts at the same time, and that takes
    /// less time than their clocks differ by: another machine that starts
    /// it within this time finds the lock busy. On a server leasehold does
    /// not wait for that; on file: it stays until the time is over.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, verbatim_doc_comment)]
    pub min_hold: Option<Duration>,
    /// Hold the lock together with others
    ///
    /// The read half of a read-write lock: several commands hold it, and none
    /// of them beside one with --exclusive. Do not mix it with runs that have
    /// neither option: on a server they are refused beside it, or wait.
    #[arg(long, group = "kind", verbatim_doc_comment)]
    pub shared: bool,
    /// Hold the lock alone, beside --shared
    ///
    /// The write half of a read-write lock: give it to the runs that must not
    /// overlap with those that have --shared.
    #[arg(long, group = "kind", verbatim_doc_comment)]
    pub exclusive: bool,
    /// Let N commands run at a time
    ///
    /// The command holds one permit of a semaphore with N permits, which is
    /// made if there is none; one that exists keeps its own number. On file:
    /// the command does not inherit it, as with --close.
    #[arg(long, group = "kind", value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000), verbatim_doc_comment)]
    pub permits: Option<u32>,
    /// Serve runs in the order of their arrival
    ///
    /// On all machines together. All runs that wait for this name should have
    /// it; not on file:, which has no such order.
    #[arg(long, group = "kind", verbatim_doc_comment)]
    pub fair: bool,
    /// Pass a fencing token to the command
    ///
    /// LEASEHOLD_TOKEN is a number that rises with each hold of this name, by
    /// which a store can refuse late writes of an earlier holder. The counter
    /// of the name stays on the server for ever, so it is not the default.
    #[arg(long, conflicts_with_all = ["shared", "permits"], verbatim_doc_comment)]
    pub fenced: bool,
    /// What names of locks begin with
    ///
    /// Put before the name, so that programs which share a server do not
    /// share locks. The same as LEASEHOLD_NAMESPACE.
    #[arg(long, value_name = "PREFIX", verbatim_doc_comment)]
    pub namespace: Option<String>,
    /// How long to wait while the server is away
    ///
    /// Of a wait without --wait; 30s unless given here, in the configuration
    /// or as LEASEHOLD_OUTAGE_LIMIT. Then the exit code is 69.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, verbatim_doc_comment)]
    pub outage_limit: Option<Duration>,
    /// How long before a loss to send SIGTERM
    ///
    /// How long before the loss of the lock the command receives SIGTERM;
    /// 2s unless given, and at most a third of --lease or --max-hold. With
    /// 0 the command is killed without SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, verbatim_doc_comment)]
    pub grace: Option<Duration>,
    /// Do not pass the lock's file to the command
    ///
    /// For commands that start daemons; file: only. The lock is free when
    /// the command itself has ended, or leasehold is killed, whatever other
    /// processes the command has started.
    #[arg(long, verbatim_doc_comment)]
    pub close: bool,
    /// Write nothing but errors and warnings
    ///
    /// Neither that the command is skipped, nor that it waits. That the lock
    /// is on this machine only is said all the same.
    #[arg(short, long, conflicts_with = "verbose", verbatim_doc_comment)]
    pub quiet: bool,
    /// Write when the lock is acquired and released, too
    #[arg(short, long)]
    pub verbose: bool,
    /// Write each message as a JSON object
    ///
    /// One in each line of the standard error, at once: event, lock, server,
    /// text, and what belongs to the event. Events are machine_only, warning,
    /// waiting, outage, back, acquired (waited_ms, owner, token), ending,
    /// released (held_ms), unreleased, skipped and error. The last one has
    /// the exit_code. With --quiet only warnings and errors.
    #[arg(long, verbatim_doc_comment)]
    pub json: bool,
    /// The command and its arguments
    ///
    /// Options of leasehold come before it; a `--` may stand between.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What to do if another owner holds the lock.
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
    /// Write an error as a JSON object.
    #[arg(long)]
    pub json: bool,
    /// From when on it is too late to begin, in nanoseconds since the start of the machine.
    pub until: u64,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Reads a time for which a lock is held.
pub(super) fn lease(text: &str) -> Result<Duration, String> {
    let length = duration::parse(text).map_err(|error| error.to_string())?;
    if length < SHORTEST_LEASE {
        let least = duration::human(SHORTEST_LEASE);
        return Err(format!("too short to end a command in time: the least is {least}"));
    }
    if length > leasehold::limits::LONGEST_LEASE {
        return Err("longer than a hundred years".into());
    }
    Ok(length)
}
