//! One rush for the seats: all users at once, with the lock or without.

use std::panic;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::Lock;
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::progress::Progress;
use super::seats::Seats;
use crate::error::Error;

/// How long a user pauses between reading the count and writing it. Without the lock this makes overbooking certain, because
/// meanwhile the other users read the same count.
const PAUSE: Duration = Duration::from_millis(5);

/// One of the two halves of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// All users at once, without the lock.
    Unlocked,
    /// One user at a time, under the lock.
    Locked,
}

impl Phase {
    /// The name of the phase in human-readable output.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unlocked => "without the lock",
            Self::Locked => "with the lock",
        }
    }

    /// The value of `--phase` for a child process.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Unlocked => "unlocked",
            Self::Locked => "locked",
        }
    }
}

/// How many users joined, and how many were refused because the gathering was full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Users that joined.
    pub joined: u32,
    /// Users that were refused.
    pub refused: u32,
}

impl Tally {
    fn count(&mut self, joined: bool) {
        if joined {
            self.joined += 1;
        } else {
            self.refused += 1;
        }
    }

    /// Adds the counts of another process.
    pub(crate) fn add(&mut self, other: Self) {
        self.joined += other.joined;
        self.refused += other.refused;
    }
}

/// How a phase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The counts of the users.
    #[serde(flatten)]
    pub tally: Tally,
    /// The milliseconds from the common start until the last user was done.
    pub ms: u64,
}

impl Outcome {
    pub(crate) fn since(start: Instant, tally: Tally) -> Self {
        Self { tally, ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX) }
    }
}

/// All users of one process in one phase, before the start.
pub(crate) struct Rush {
    pub(crate) phase: Phase,
    pub(crate) lock: Lock,
    pub(crate) seats: Seats,
    pub(crate) users: u32,
    /// How many seats there are.
    pub(crate) limit: u32,
}

impl Rush {
    /// Starts all users, and waits until each has joined or was refused.
    pub(crate) async fn run(self, progress: &Progress) -> Result<Outcome, Error> {
        let Self { phase, lock, seats, users, limit } = self;
        let seats = Arc::new(seats);
        // One more than users: the task that measures the time starts with them.
        let start = Arc::new(Barrier::new(users as usize + 1));
        let mut rush = JoinSet::new();
        for _ in 0..users {
            let (lock, seats, start) = (lock.clone(), Arc::clone(&seats), Arc::clone(&start));
            rush.spawn(async move {
                start.wait().await;
                match phase {
                    Phase::Unlocked => take_seat(&seats, limit).await,
                    Phase::Locked => take_seat_locked(&lock, &seats, limit).await,
                }
            });
        }
        start.wait().await;
        let start = Instant::now();

        let mut tally = Tally::default();
        while let Some(user) = rush.join_next().await {
            let joined = user.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))?;
            tally.count(joined);
            progress.advance(1);
        }
        Ok(Outcome::since(start, tally))
    }
}

/// The step of every user; two such steps at once lose an update. False if the gathering is full.
async fn take_seat(seats: &Seats, limit: u32) -> Result<bool, Error> {
    let taken = seats.taken().await?;
    if taken >= limit {
        return Ok(false);
    }
    sleep(PAUSE).await;
    seats.set_taken(taken + 1).await?;
    Ok(true)
}

/// The same, one user at a time.
async fn take_seat_locked(lock: &Lock, seats: &Seats, limit: u32) -> Result<bool, Error> {
    let guard = lock.acquire().await?;
    let joined = guard.run(take_seat(seats, limit)).await??;
    guard.release().await?;
    Ok(joined)
}
