//! The command-line options.

#[cfg(unix)]
mod doctor;
#[cfg(unix)]
mod look;
#[cfg(unix)]
mod run;

use clap::{Args, Parser, Subcommand, value_parser};
use clap_complete::Shell;

#[cfg(unix)]
pub use self::doctor::DoctorOptions;
#[cfg(unix)]
use self::doctor::{DOCTOR, DOCTOR_EXAMPLES};
#[cfg(unix)]
use self::look::{
    INSPECT, INSPECT_EXAMPLES, LS, LS_EXAMPLES, UNLOCK, UNLOCK_EXAMPLES, WAIT, WAIT_EXAMPLES, WATCH,
    WATCH_EXAMPLES,
};
#[cfg(unix)]
pub use self::look::{InspectOptions, LsOptions, TargetOptions, UnlockOptions, WaitOptions, WatchOptions};
#[cfg(unix)]
pub use self::run::{ExecOptions, IfBusy, RunOptions};
#[cfg(unix)]
use self::run::{RUN, RUN_EXAMPLES};
use crate::demo::{Gathering, Kind, Phase};
use crate::url::Url;
use crate::version;

/// Distributed locks that never lie about being held.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, long_version = version::LONG, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Whether an error is to be written as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            #[cfg(unix)]
            Command::Run(options) => options.json,
            #[cfg(unix)]
            Command::Exec(options) => options.json,
            #[cfg(unix)]
            Command::Ls(options) => options.json,
            #[cfg(unix)]
            Command::Inspect(options) => options.json,
            #[cfg(unix)]
            Command::Unlock(options) => options.json,
            #[cfg(unix)]
            Command::Wait(options) => options.json,
            _ => false,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  leasehold demo     100 users want 5 seats: first without a lock, then with it
  leasehold run nightly-report -- ./report.sh
                     one report at a time, on this machine
  leasehold run nightly-report --url redis://localhost -- ./report.sh
                     one report at a time, on all machines together";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a lock is for: many users rush for a few seats.
    #[command(long_about = DEMO, after_help = DEMO_EXAMPLES)]
    Demo(DemoOptions),
    /// Run a command while holding a lock.
    #[cfg(unix)]
    #[command(long_about = RUN, after_help = RUN_EXAMPLES)]
    Run(RunOptions),
    /// List the locks that are held.
    #[cfg(unix)]
    #[command(long_about = LS, after_help = LS_EXAMPLES)]
    Ls(LsOptions),
    /// Print what is known about a lock.
    #[cfg(unix)]
    #[command(long_about = INSPECT, after_help = INSPECT_EXAMPLES)]
    Inspect(InspectOptions),
    /// Show the locks that are held, or one lock, until Ctrl-C.
    #[cfg(unix)]
    #[command(long_about = WATCH, after_help = WATCH_EXAMPLES)]
    Watch(WatchOptions),
    /// Wait until a lock is free, without acquiring it.
    #[cfg(unix)]
    #[command(long_about = WAIT, after_help = WAIT_EXAMPLES)]
    Wait(WaitOptions),
    /// Free a lock in place of its holder.
    #[cfg(unix)]
    #[command(long_about = UNLOCK, after_help = UNLOCK_EXAMPLES)]
    Unlock(UnlockOptions),
    /// Say what endangers locks on a server.
    #[cfg(unix)]
    #[command(long_about = DOCTOR, after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorOptions),
    /// Print completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a manual page.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// A subcommand, such as run; without it the page of leasehold itself.
        page: Option<String>,
    },
    /// One child process of `demo --processes`.
    #[command(hide = true)]
    DemoWorker(WorkerOptions),
    /// The child process of `run` before it becomes the command.
    #[cfg(unix)]
    #[command(name = "__exec", hide = true)]
    Exec(ExecOptions),
    /// The second child process of `run`.
    #[cfg(unix)]
    #[command(name = "__warden", hide = true)]
    Warden,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  leasehold completions bash > /etc/bash_completion.d/leasehold
  leasehold completions zsh > ~/.zfunc/_leasehold
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  leasehold man > /usr/local/share/man/man1/leasehold.1
  leasehold man run > /usr/local/share/man/man1/leasehold-run.1
  leasehold man run | man -l -";

// With line breaks of its own, because the help is not wrapped.
const DEMO: &str = "\
Show what a lock is for: many users rush for a few seats.

A gathering has a few seats, and many users join at the same moment. Each reads
how many seats are taken, pauses for 5 ms, and writes that number plus one.
Without a lock too many users get a seat, because they read the number before
the other users have written it. Then the same happens under a lock: exactly as
many users get a seat as there are seats.

The kinds of locks, all of them exact, differ in how users wait for their turn:
  plain   until a message tells them that the lock is free: Redisson's RLock
  fair    the same, in the order in which they came: Redisson's fair lock
  spin    by trying again after pauses: Redisson's spin lock
  setnx   by polling a key of SET NX, as Lettuce, Spring and redis-py do
Not every engine has every kind: `file:` has plain and spin.

The exit code is 0 if the lock admitted the right number of users, 1 if it did
not or the engine failed, and 2 for a usage error.";

const DEMO_EXAMPLES: &str = "\
Examples:
  leasehold demo
  leasehold demo --users 1000 --seats 20
  leasehold demo --processes 4
  leasehold demo --url redis://localhost --kind setnx
  leasehold demo --json";

/// The options of `demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// How many users want to join.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=100_000))]
    pub users: u32,
    /// How many seats the gathering has.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(0..=100_000))]
    pub seats: u32,
    /// How many processes the users are spread over.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    pub processes: u32,
    /// Which kind of lock the users acquire.
    #[arg(long, value_name = "KIND", default_value = "plain", hide_possible_values = true)]
    pub kind: Kind,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
    /// URL of the engine
    ///
    /// Unless given, memory: for one process, and for several processes file:
    /// in a directory of its own, which is removed at the end.
    // Its value may contain a password, so the help must not show the value of the environment variable.
    #[arg(long, env = Url::VARIABLE, hide_env_values = true, verbatim_doc_comment)]
    pub url: Option<Url>,
}

/// The options of one child process of `demo`.
#[derive(Debug, Args)]
pub struct WorkerOptions {
    /// How many of the users belong to this child.
    #[arg(long)]
    pub users: u32,
    /// How many seats the gathering has.
    #[arg(long)]
    pub seats: u32,
    /// With the lock, or without.
    #[arg(long)]
    pub phase: Phase,
    /// The gathering that the users want to join.
    #[arg(long)]
    pub gathering: Gathering,
    /// Which kind of lock the users acquire.
    #[arg(long, default_value = "plain")]
    pub kind: Kind,
    /// URL of the engine that keeps the lock.
    #[arg(long, env = Url::VARIABLE, hide_env_values = true, default_value = "memory:")]
    pub url: Url,
}
