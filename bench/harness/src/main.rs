//! The comparison: Leasehold against other lock libraries and against baselines without lock logic.
//!
//! `cargo xtask bench` builds everything and starts this.

mod contenders;
mod driver;
mod facts;
mod info;
mod machine;
mod mariadb;
mod markdown;
mod metrics;
mod options;
mod progress;
mod results;
mod runner;
mod scenarios;
mod svg;
mod targets;
mod wake;
mod zipf;

use std::process::ExitCode;

use clap::Parser as _;

use crate::options::Options;
use crate::progress::Progress;
use crate::results::Results;
use crate::runner::Runner;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every target holds.
fn run(options: &Options) -> Result<bool, String> {
    let plan = options.plan()?;
    if options.list {
        for (scenario, contender) in &plan {
            println!("{:<10} {}", scenario.id, contender.id);
        }
        return Ok(true);
    }
    let runner = Runner::new(options)?;
    let mut results = Results::new(facts::gather(&runner, options));
    let rounds = options.rounds();
    let mut progress = Progress::new(plan.len() * rounds);
    for round in 0..rounds {
        for (scenario, contender) in &plan {
            progress.show(&format!("round {} of {rounds}: {} {}", round + 1, scenario.id, contender.id));
            results.add(scenario, contender, runner.run(scenario, contender));
            progress.step();
        }
    }
    progress.end();
    let targets = targets::judge(&results);
    results.write(&options.out, &targets)?;
    print!("{}", targets::table(&targets));
    println!("The report is in {}.", options.out.display());
    Ok(targets.iter().all(|target| target.holds == Some(true)))
}
