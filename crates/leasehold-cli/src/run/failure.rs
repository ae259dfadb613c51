//! Why the command did not run, or not to its end, and how to fix it.

use std::time::Duration;
use std::{fmt, io};

use leasehold::{Holder, Loss, QueryError, ServerError};
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::time::timeout;

use super::SHORTEST_LEASE;
use super::lock::RunLock;
use crate::config::SettingsError;
use crate::duration::human;
use crate::options::{IfBusy, RunOptions};
use crate::url::{EmptyUrl, Url};

/// What `run` ends with instead of the command's own exit code.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The URL is empty.
    #[error(transparent)]
    EmptyUrl(#[from] EmptyUrl),
    /// The configuration is malformed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A time of the configuration is too short for a command.
    #[error("the watchdog of {} in the configuration is too short to end a command in time: the least is {}", human(*.0), human(SHORTEST_LEASE))]
    WatchdogTooShort(Duration),
    /// An engine that no other process can reach.
    #[error(
        "`memory:` lives and dies with this one process, so its lock would exclude no other process: write --url file: to \
         lock on this machine, or give the --url of a server, such as redis://host:port"
    )]
    Memory,
    /// `--close` with an engine whose locks are no files.
    #[error(
        "--close is about the file of the lock, and a lock on {0} has none: leave --close out, or lock by file:"
    )]
    NothingToClose(Url),
    /// Two options that contradict each other.
    #[error("--wait limits the waiting, and --if-busy {} does not wait: leave one of them out", .0.option())]
    NothingToLimit(IfBusy),
    /// The command would be ended before the lock may be free.
    #[error(
        "--min-hold {} is longer than --max-hold {}, which ends the hold before: make one of them fit",
        human(*.min_hold),
        human(*.max_hold)
    )]
    MinHoldTooLong {
        /// How long the lock is to stay taken at least.
        min_hold: Duration,
        /// How long it is held at most.
        max_hold: Duration,
    },
    /// A run whose command is this run holds the lock.
    #[error(
        "{0} is held by the `leasehold run` that this one is inside of, and would wait for itself: leave the inner one out, \
         because its command runs under that lock already, or give it another name"
    )]
    Nested(LockText),
    /// The URL, the name or an option is invalid.
    #[error("{0}")]
    Invalid(leasehold::Error),
    /// The server is unreachable, or refuses.
    #[error("{0}{hint}", hint = hint(.0))]
    Server(leasehold::Error),
    /// Another owner holds the lock, and `run` is not to wait.
    #[error("{lock} is busy{held}: try again later, or wait with --if-busy wait")]
    Busy {
        /// The lock.
        lock: LockText,
        /// The holder, as text from `held`.
        held: String,
    },
    /// Another owner held the lock during the whole wait.
    #[error("{lock} stayed busy for {}{held}: try again later, or wait longer with --wait", human(*.waited))]
    TimedOut {
        /// The lock.
        lock: LockText,
        /// How long `run` waited.
        waited: Duration,
        /// The holder, as text from `held`.
        held: String,
    },
    /// A signal ended the wait.
    #[error("ended by {} while waiting for {lock}: the command was not started", .signal.as_str())]
    Interrupted {
        /// The lock.
        lock: LockText,
        /// The signal.
        signal: Signal,
    },
    /// The lock was lost, or about to be, and the command ended because of that.
    #[error(
        "{lock} is lost: {cause}{}. The command was ended: see what it left half done{}",
        in_brackets(.reason.as_ref()),
        .cause.advice(.lock, .reason.as_ref())
    )]
    Lost {
        /// The lock.
        lock: LockText,
        /// The cause of the loss.
        cause: Cause,
        /// The client's report about the server, if that was unreachable.
        reason: Option<ServerError>,
    },
    /// The command does not exist.
    #[error("the command {command:?} was not found: check its spelling and the PATH")]
    NotFound {
        /// Its name.
        command: String,
    },
    /// The command exists and cannot be run.
    #[error("the command {command:?} cannot be executed: {cause}: check its permissions and what it is")]
    NotExecutable {
        /// Its name.
        command: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// There is no command.
    #[error("there is no command to run: write it after `--`")]
    NoCommand,
    /// The lock expired before the command could begin.
    #[error("the lock was over before the command could begin: give a longer --lease or --max-hold")]
    TooLate,
    /// One of the hidden commands, run without its parent process.
    #[error(
        "the process that started this has ended: it is a part of `leasehold run` and does nothing by itself"
    )]
    Orphaned,
    /// A process, a thread or a pipe could not be made.
    #[error("cannot start the command: {0}: the system may be short of processes or memory")]
    Start(io::Error),
}

/// Why a command was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The hold was about to exceed `--max-hold`.
    #[error("it was held for as long as --max-hold allows")]
    MaxHold,
    /// The lease was about to expire, because no renewal succeeded.
    #[error("the lock server could not be reached to renew it")]
    NotRenewed,
    /// The warden has ended the command in time, because we did not report any renewal to it.
    #[error("leasehold was stopped, or got no CPU time on this machine to renew it")]
    Stalled,
    /// The server was away for a while, and came back without the lock.
    #[error(
        "the server does not have the lock any more since it was away: it has restarted without its data, or the lock was \
         deleted in the meantime"
    )]
    GoneAfterOutage,
    /// The lock was already lost when we noticed.
    #[error(transparent)]
    Lost(Loss),
}

impl Cause {
    /// Whether the server may have been unreachable.
    pub(super) fn is_unreachable(self) -> bool {
        matches!(self, Self::NotRenewed | Self::Lost(Loss::Unreachable | Loss::Expired))
    }

    fn advice(self, lock: &LockText, reason: Option<&ServerError>) -> &'static str {
        match self {
            _ if matches!(reason, Some(ServerError::Denied(_))) => {
                ", and check the user and the password in the URL, and what that user may do"
            }
            Self::MaxHold | Self::Lost(Loss::MaxHold) => ", and give it more time with --max-hold",
            Self::NotRenewed | Self::Lost(Loss::Unreachable | Loss::Expired) => {
                ", and check the server and the network"
            }
            Self::Stalled => ", and check the load of this machine",
            Self::Lost(Loss::Gone) if lock.is_file() => {
                ", and find out which program removed or replaced the file of the lock"
            }
            Self::GoneAfterOutage => ", and check the log and the persistence of the server (`appendonly`)",
            Self::Lost(Loss::Gone) => ", and check the log, the memory and the persistence of the server",
            Self::Lost(Loss::TakenOver) => ", and find out which client took it over",
            Self::Lost(_) => ", and find out which client unlocked it",
        }
    }
}

/// The lock as messages name it: its name and the URL of its server or directory.
#[derive(Debug, Clone)]
pub struct LockText {
    name: String,
    url: Url,
    noun: &'static str,
}

impl LockText {
    pub(super) fn new(options: &RunOptions, url: &Url) -> Self {
        let noun = match options {
            RunOptions { permits: Some(_), .. } => "semaphore",
            RunOptions { shared: true, .. } => "read lock",
            RunOptions { exclusive: true, .. } => "write lock",
            _ => "lock",
        };
        Self { name: options.name.clone(), url: url.resolved(), noun }
    }

    /// Whether it is a lock on files.
    pub(super) fn is_file(&self) -> bool {
        self.url.is_file()
    }

    /// Without the server, for a line that is cut at the edge of the terminal.
    pub(super) fn brief(&self) -> String {
        format!("the {} {:?}", self.noun, self.name)
    }
}

impl LockText {
    /// The fields of an object that is about this lock.
    pub(super) fn fields(&self) -> Map<String, Value> {
        Map::from_iter([("lock".into(), json!(self.name)), ("server".into(), json!(self.url))])
    }
}

impl fmt::Display for LockText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {:?} on {}", self.noun, self.name, self.url)
    }
}

impl RunError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::EmptyUrl(_)
            | Self::Settings(_)
            | Self::WatchdogTooShort(_)
            | Self::Memory
            | Self::Nested(_)
            | Self::NothingToClose(_)
            | Self::MinHoldTooLong { .. }
            | Self::NothingToLimit(_)
            | Self::Invalid(_)
            | Self::NoCommand
            | Self::Orphaned => 2,
            Self::Server(_) => 69,
            Self::Busy { .. } | Self::TimedOut { .. } => 75,
            Self::Lost { .. } | Self::TooLate => 76,
            Self::NotExecutable { .. } | Self::Start(_) => 126,
            Self::NotFound { .. } => 127,
            Self::Interrupted { signal, .. } => killed_by(*signal as i32),
        }
    }
}

/// Where the URL comes from, if no connection was made. A directory that cannot be used is named by the error itself.
fn hint(error: &leasehold::Error) -> String {
    match error {
        _ if error.server().is_some_and(|server| server.starts_with("file:")) => String::new(),
        leasehold::Error::Connect(_) => format!(" (the URL is that of --url or {})", Url::VARIABLE),
        _ => String::new(),
    }
}

/// The exit code by which shells report a death by a signal.
pub(crate) fn killed_by(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
}

/// How long the client may take to report the state of the server: it has it at hand, or not at all.
const KNOWN: Duration = Duration::from_millis(200);

/// The client's report about a server that it cannot reach.
pub(super) async fn unreachable(lock: &RunLock) -> Option<ServerError> {
    match timeout(KNOWN, lock.check()).await {
        Ok(Err(QueryError::Server { cause, .. })) => Some(cause),
        _ => None,
    }
}

fn in_brackets(reason: Option<&ServerError>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({reason})"))
}

/// The holder of a lock, and the time left until its lease expires without a renewal. Empty if there is no holder, or the
/// query fails.
pub(super) async fn held(lock: &RunLock, text: &LockText) -> String {
    held_as(lock, text, |left| format!("its lease ends in {left} unless renewed")).await
}

/// The same for a line that is cut at the edge of the terminal: the time and the beginning of the holder fit into it.
pub(super) async fn held_briefly(lock: &RunLock, text: &LockText) -> String {
    held_as(lock, text, |left| format!("{left} left")).await
}

async fn held_as(lock: &RunLock, text: &LockText, time: impl FnOnce(String) -> String) -> String {
    if let RunLock::Permits(semaphore) = lock {
        let total = semaphore.total().await;
        return total
            .map_or_else(|_| String::new(), |total| format!(", all its permits are taken ({total})"));
    }
    let Ok(Some(Holder { client, owner, remaining, .. })) = lock.holder().await else { return String::new() };
    let other = if text.is_file() { "another program" } else { "another library" };
    // The owner tells less than its client: no machine and no process.
    let owner = owner.map(|owner| owner.to_string());
    let by = client.map(|client| client.to_string()).or(owner).unwrap_or_else(|| other.into());
    // A file has no lease: it is held until the last process has closed it.
    if text.is_file() {
        format!(", held by {by}")
    } else {
        format!(", held ({}) by {by}", time(human(remaining)))
    }
}
