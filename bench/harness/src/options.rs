//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::contenders::{CONTENDERS, Contender};
use crate::scenarios::{Scenario, scenarios};

/// Compares Leasehold with other lock libraries.
#[derive(Parser)]
pub(crate) struct Options {
    /// One round of short runs, in about six minutes, instead of three of long ones.
    #[arg(long)]
    quick: bool,
    /// Only these scenarios, such as `U1,C1` or `U2-128`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders, such as `leasehold,redisson`.
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<String>,
    /// How many rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// How long each run is, in seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// How long each driver warms up, in seconds; those in Java four times as long.
    #[arg(long)]
    warm_up: Option<f64>,
    /// Where the report goes.
    #[arg(long, default_value = "bench/target/report")]
    pub(crate) out: PathBuf,
    /// Say what would run, and end.
    #[arg(long)]
    pub(crate) list: bool,
    /// Where the drivers in Rust are; beside this program unless said.
    #[arg(long)]
    pub(crate) rust: Option<PathBuf>,
    /// Where the other drivers were built.
    #[arg(long, default_value = "bench/target/drivers")]
    pub(crate) drivers: PathBuf,
}

impl Options {
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// How long a run is that has a time.
    pub(crate) fn run(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 0.6 } else { 3.0 }))
    }

    /// How long a driver warms up.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up.unwrap_or(if self.quick { 0.25 } else { 1.5 }))
    }

    /// How long those who wait when the time is over may take until each has had its last turn.
    pub(crate) fn last_turns(&self) -> Duration {
        Duration::from_secs(if self.quick { 6 } else { 15 })
    }

    /// How many renewal periods are watched.
    pub(crate) fn periods(&self) -> u32 {
        if self.quick { 1 } else { 2 }
    }

    /// What runs in each round, in this order.
    pub(crate) fn plan(&self) -> Result<Vec<(Scenario, &'static Contender)>, String> {
        let scenarios = scenarios();
        if let Some(unknown) = self.only.iter().find(|only| !scenarios.iter().any(|known| known.is(only))) {
            return Err(format!("there is no scenario {unknown}; --list shows them"));
        }
        if let Some(unknown) =
            self.contenders.iter().find(|only| !CONTENDERS.iter().any(|known| known.id == **only))
        {
            return Err(format!("there is no contender {unknown}; --list shows them"));
        }
        let mut plan = Vec::new();
        for scenario in scenarios {
            if !self.only.is_empty() && !self.only.iter().any(|only| scenario.is(only)) {
                continue;
            }
            for contender in CONTENDERS {
                let wanted =
                    self.contenders.is_empty() || self.contenders.iter().any(|id| id == contender.id);
                if wanted && scenario.is_for(contender) {
                    plan.push((scenario.clone(), contender));
                }
            }
        }
        Ok(plan)
    }
}
