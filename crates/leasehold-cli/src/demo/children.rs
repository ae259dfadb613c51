//! The users of a phase, spread over child processes. This is the side of the parent.

use std::path::Path;
use std::process::Stdio;
use std::{io, panic};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::gathering::Gathering;
use super::kind::Kind;
use super::phase::{Outcome, Phase, Tally};
use super::progress::Progress;
use super::worker::{READY, START};
use crate::error::Error;
use crate::url::Url;

/// Child processes that run one phase together.
///
/// The parent starts all of them once all are ready. When the parent fails, the remaining children are killed.
#[derive(Debug)]
pub struct Children<'a> {
    /// The `leasehold` program.
    pub program: &'a Path,
    /// How many children.
    pub processes: u32,
    /// How many users all of them have together.
    pub users: u32,
    /// How many seats the gathering has.
    pub seats: u32,
    /// The engine that keeps the lock.
    pub url: &'a Url,
    /// The gathering that the users join.
    pub gathering: &'a Gathering,
    /// With the lock, or without.
    pub phase: Phase,
    /// The kind of the lock.
    pub kind: Kind,
}

impl Children<'_> {
    /// Runs the phase, and adds up the counts of the children.
    ///
    /// # Errors
    ///
    /// When a child could not be started, failed, or wrote something else than its count.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the children.
    pub async fn run(&self, progress: &Progress) -> Result<Outcome, Error> {
        let mut workers =
            (1..=self.processes).map(|number| self.start(number)).collect::<Result<Vec<_>, _>>()?;
        for worker in &mut workers {
            worker.ready().await?;
        }

        let start = Instant::now();
        let mut answers = JoinSet::new();
        for mut worker in workers {
            worker.go().await?;
            answers.spawn(worker.answer());
        }
        let mut tally = Tally::default();
        while let Some(answer) = answers.join_next().await {
            let answer = answer.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))?;
            tally.add(answer);
            progress.advance(answer.joined + answer.refused);
        }
        Ok(Outcome::since(start, tally))
    }

    fn start(&self, number: u32) -> Result<Worker, Error> {
        let failed = |source| Error::Child { number, source };
        let mut process = Command::new(self.program)
            .arg("demo-worker")
            .args(["--users", &self.share(number).to_string()])
            .args(["--seats", &self.seats.to_string()])
            .args(["--phase", self.phase.option()])
            .args(["--kind", self.kind.option()])
            .args(["--gathering", self.gathering.lock()])
            // Not as an argument: the process list shows arguments to every user, password included.
            .env(Url::VARIABLE, self.url.secret())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(stdin), Some(stdout)) => {
                Ok(Worker { number, process, stdin, stdout: BufReader::new(stdout).lines() })
            }
            _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// How many of the users belong to this child. The first children take the remainder.
    fn share(&self, number: u32) -> u32 {
        self.users / self.processes + u32::from(number <= self.users % self.processes)
    }
}

/// One child process that has been started.
#[derive(Debug)]
struct Worker {
    number: u32,
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    async fn ready(&mut self) -> Result<(), Error> {
        let answer = self.line().await?;
        if answer == READY { Ok(()) } else { Err(Error::ChildAnswer { number: self.number, answer }) }
    }

    async fn go(&mut self) -> Result<(), Error> {
        let number = self.number;
        self.stdin.write_all(START.as_bytes()).await.map_err(|source| Error::Child { number, source })
    }

    async fn answer(mut self) -> Result<Tally, Error> {
        let answer = self.line().await?;
        let tally =
            serde_json::from_str(&answer).map_err(|_| Error::ChildAnswer { number: self.number, answer })?;
        self.ended_well().await?;
        Ok(tally)
    }

    /// The next line that the child writes.
    async fn line(&mut self) -> Result<String, Error> {
        let number = self.number;
        if let Some(line) = self.stdout.next_line().await.map_err(|source| Error::Child { number, source })? {
            return Ok(line);
        }
        self.ended_well().await?;
        Err(Error::ChildAnswer { number, answer: String::new() })
    }

    async fn ended_well(&mut self) -> Result<(), Error> {
        let number = self.number;
        let status = self.process.wait().await.map_err(|source| Error::Child { number, source })?;
        if status.success() { Ok(()) } else { Err(Error::ChildFailed { number, status }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_the_children_add_up_to_all_users_and_differ_by_one_at_most() {
        let url = Url::from("memory:".to_owned());
        let gathering = Gathering::new("test", Phase::Locked);
        for (users, processes) in [(1, 1), (100, 4), (10, 3), (11, 3), (2, 5), (100_000, 256)] {
            let program = Path::new("leasehold");
            let children = Children {
                program,
                processes,
                users,
                seats: 0,
                url: &url,
                gathering: &gathering,
                phase: Phase::Locked,
                kind: Kind::Plain,
            };
            let shares: Vec<_> = (1..=processes).map(|number| children.share(number)).collect();
            assert_eq!(shares.iter().sum::<u32>(), users);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
    }
}
