//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// What the harness takes.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub(crate) struct Options {
    /// One round of short runs, in about eight minutes, instead of three of long ones.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these scenarios, such as `U1,C1` or `U2-128`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Locks on these engines in place of those on Redis, in memory and on files.
    #[arg(long, value_delimiter = ',', value_parser = ["etcd"])]
    pub(crate) engines: Vec<String>,
    /// Only these contenders, such as `leasehold,redisson`.
    #[arg(long, value_delimiter = ',')]
    pub(crate) contenders: Vec<String>,
    /// How many rounds.
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// How many turns contender and baseline have in each round, or old and new in all.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) turns: Option<u16>,
    /// How long each run is, in seconds; where there are turns, one at most.
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// How long each driver warms up, in seconds; those in Java four times as long.
    #[arg(long, value_parser = seconds)]
    pub(crate) warm_up: Option<f64>,
    /// Where the report goes.
    #[arg(long, default_value = "bench/target/report")]
    pub(crate) out: PathBuf,
    /// Where the drivers in Rust are; beside this program unless said.
    #[arg(long)]
    pub(crate) rust: Option<PathBuf>,
    /// Where the drivers of an older checkout are: compares that with this one, by turns, and does nothing else.
    #[arg(long, conflicts_with = "rounds")]
    pub(crate) old: Option<PathBuf>,
    /// Where the other drivers were built.
    #[arg(long, default_value = "bench/target/drivers")]
    pub(crate) drivers: PathBuf,
}

/// A valid duration of a run.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds @ 0.0..=3600.0) => Ok(seconds),
        _ => Err("not a number of seconds up to 3600".into()),
    }
}

impl Options {
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// The duration of a run with a time limit.
    pub(crate) fn run(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 0.6 } else { 3.0 }))
    }

    /// How long a driver warms up.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up.unwrap_or(if self.quick { 0.25 } else { 1.5 }))
    }

    /// How many turns there are in a round.
    pub(crate) fn turns(&self) -> usize {
        self.turns.map_or(if self.quick { 5 } else { 3 }, usize::from)
    }

    /// How many turns the old and the new library have.
    pub(crate) fn turns_against(&self) -> usize {
        self.turns.map_or(if self.quick { 3 } else { 9 }, usize::from)
    }

    /// The duration of a run by turns: short, so that a machine that becomes slower does so for both.
    pub(crate) fn slice(&self) -> Duration {
        self.run().min(Duration::from_secs(1))
    }

    /// How long a driver warms up for such a run.
    pub(crate) fn slice_warm_up(&self) -> Duration {
        self.warm_up().min(Duration::from_millis(500))
    }

    /// How long the remaining waiters may take after the time is over until each has had its last turn.
    pub(crate) fn last_turns(&self) -> Duration {
        Duration::from_secs(if self.quick { 6 } else { 15 })
    }

    /// How many renewal periods are watched.
    pub(crate) fn periods(&self) -> u32 {
        if self.quick { 1 } else { 2 }
    }
}
