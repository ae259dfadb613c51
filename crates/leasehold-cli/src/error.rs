//! The errors of the command, and the exit code of each.

use std::error::Error as _;
use std::io;
use std::process::ExitStatus;

use leasehold::{AcquireError, ConnectError, LostError, QueryError, ReleaseError};
use thiserror::Error;

use crate::url::{EmptyUrl, Url};

/// Why a command failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no engine at the URL, or the kind of engine is unknown.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The URL is empty.
    #[error(transparent)]
    EmptyUrl(#[from] EmptyUrl),
    /// Child processes cannot share an engine that is inside one process.
    #[error(
        "`memory:` lives inside one process: {processes} child processes would each have seats and a lock of \
         their own. Leave --url out to show it over processes of this machine, or give --url redis://host:port."
    )]
    MemoryIsNotShared {
        /// How many processes were requested.
        processes: u32,
    },
    /// The count of the seats is a plain key, which the demo reads and writes by a connection of its own.
    #[error(
        "the demo counts its seats in a key of one server, without TLS, so it cannot use {0}: give it redis://host:port, \
         file: or memory:; `leasehold run` works with all URLs"
    )]
    NoSeats(Url),
    /// The count of the seats cannot be read or written.
    #[error("cannot read or write the count of the seats")]
    Seats(#[source] redis::RedisError),
    /// The same where the count is a file.
    #[error("cannot read or write the count of the seats")]
    SeatsFile(#[source] io::Error),
    /// The engine does not have this kind of lock.
    #[error(transparent)]
    Kind(QueryError),
    /// The directory of the demo cannot be made.
    #[error("cannot make a directory for the locks of the demo")]
    Directory(#[source] io::Error),
    /// A signal ended the demo.
    #[cfg(unix)]
    #[error("ended by {}", .0.as_str())]
    Signal(nix::sys::signal::Signal),
    /// A user did not get the lock.
    #[error("a user could not get the lock")]
    Acquire(#[from] AcquireError),
    /// A user acquired the lock, but lost it before the end.
    #[error("a user lost the lock while taking a seat")]
    Lost(#[from] LostError),
    /// A user could not release the lock.
    #[error("a user could not release the lock")]
    Release(#[from] ReleaseError),
    /// The lock admitted too many users, or too few.
    #[error("the lock failed: it admitted {joined} users instead of {expected}")]
    WrongCount {
        /// How many users joined.
        joined: u32,
        /// How many users should have joined.
        expected: u32,
    },
    /// The path of this program, which the child processes run, was not found.
    #[error("cannot find the path of this program to start child processes")]
    OwnProgram(#[source] io::Error),
    /// A child process could not be started, or its pipes broke.
    #[error("cannot start child process {number} or communicate with it")]
    Child {
        /// Which one, from 1.
        number: u32,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A child process ended before its work was done. It has written the reason to the standard error.
    #[error("child process {number} failed: {status}")]
    ChildFailed {
        /// Which one, from 1.
        number: u32,
        /// How it ended.
        status: ExitStatus,
    },
    /// A child process broke the protocol.
    #[error("unexpected output of child process {number}: {answer:?}")]
    ChildAnswer {
        /// Which one, from 1.
        number: u32,
        /// The line that it wrote.
        answer: String,
    },
    /// A child process received no start signal.
    #[error("no start signal was received: the parent process has ended")]
    NoStartSignal,
    /// The command of `run` did not run, or not to its end.
    #[cfg(unix)]
    #[error(transparent)]
    Run(#[from] crate::run::RunError),
    /// A subcommand that looks at locks failed.
    #[cfg(unix)]
    #[error(transparent)]
    Look(#[from] crate::look::LookError),
    /// `doctor` has no URL.
    #[error(
        "there is nothing to examine: give a URL, such as redis://host:port or file:, or set {}",
        Url::VARIABLE
    )]
    NothingToExamine,
    /// `doctor` could not connect.
    #[error("{0}")]
    Unreachable(leasehold::Error),
    /// There is no manual page of that name.
    #[error(
        "there is no manual page of {name:?}: there is one of each of {known}, and without a name that of leasehold"
    )]
    NoManual {
        /// What was asked for.
        name: String,
        /// The subcommands.
        known: String,
    },
    /// The event loop could not be started.
    #[error("cannot start: the system may be short of files or memory")]
    Runtime(#[source] io::Error),
    /// The standard input cannot be read.
    #[error("cannot read from the standard input")]
    Input(#[source] io::Error),
    /// The standard output cannot be written.
    #[error("cannot write to the standard output")]
    Output(#[source] io::Error),
}

impl Error {
    /// 2 if the options are invalid, as for options that clap refuses; otherwise 1, but `run` has a code for every failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::EmptyUrl(_)
            | Self::MemoryIsNotShared { .. }
            | Self::Kind(_)
            | Self::NoSeats(_)
            | Self::NoManual { .. }
            | Self::NothingToExamine
            | Self::Connect(ConnectError::Url(_) | ConnectError::Invalid(_)) => 2,
            #[cfg(unix)]
            Self::Run(error) => error.exit_code(),
            #[cfg(unix)]
            Self::Look(error) => error.exit_code(),
            #[cfg(unix)]
            Self::Signal(signal) => crate::run::killed_by(*signal as i32),
            Self::Unreachable(_) => 69,
            _ => 1,
        }
    }

    /// The error and its chain of sources, in one line.
    #[must_use]
    pub fn with_sources(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            let cause = error.to_string();
            // Some errors repeat their source in their own text.
            if !text.ends_with(&cause) {
                text = format!("{text}: {cause}");
            }
            source = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{Loss, ServerError};

    use super::*;

    #[test]
    fn every_source_is_shown_once() {
        let outage = ServerError::Unavailable("connection refused".into());
        for (error, text) in [
            (
                Error::from(AcquireError::from(outage.clone())),
                "a user could not get the lock: the lock was not acquired: the server is unavailable: connection refused",
            ),
            (
                Error::from(AcquireError::from(Loss::Expired)),
                "a user could not get the lock: the lock is lost: the lease ran out",
            ),
            (
                Error::from(LostError::from(Loss::TakenOver)),
                "a user lost the lock while taking a seat: the lock was lost: another owner took the lock over; the work \
                 under it was cancelled, or ended unprotected",
            ),
            (Error::from(ConnectError::from(outage)), "cannot connect to the server: connection refused"),
        ] {
            assert_eq!(error.with_sources(), text);
        }
    }
}
