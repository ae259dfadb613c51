//! The comparison: Leasehold against other lock libraries and against baselines without lock logic.
//!
//! `cargo xtask bench` builds everything and starts this.

mod against;
mod driver;
mod facts;
mod info;
mod machine;
mod mariadb;
mod markdown;
mod metrics;
mod plan;
mod progress;
mod ratio;
mod results;
mod runner;
mod svg;
mod targets;
mod wake;
mod zipf;

use std::process::ExitCode;

use clap::Parser as _;

use crate::plan::{Options, Step};
use crate::progress::Progress;
use crate::results::Results;
use crate::runner::Runner;

/// Compares Leasehold with other lock libraries.
#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    match run(&CommandLine::parse().options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every target holds, or nothing has become slower.
fn run(options: &Options) -> Result<bool, String> {
    if let Some(drivers) = &options.old {
        return against::run(options, drivers);
    }
    let plan = plan::plan(options)?;
    let runner = Runner::new(options, &plan)?;
    let by_turns = runner.for_turns(options);
    let mut results = Results::new(facts::gather(&runner, options));
    let (rounds, turns) = (options.rounds(), options.turns());
    let turns_of = |step: &Step| if step.is_by_turns() { turns } else { 1 };
    let runs: usize = plan.iter().map(|step| turns_of(step) * step.contenders.len()).sum();
    let mut progress = Progress::new(runs * rounds);
    for round in 0..rounds {
        for step in &plan {
            let (scenario, runner) = (&step.scenario, if step.is_by_turns() { &by_turns } else { &runner });
            for contender in (0..turns_of(step)).flat_map(|turn| step.turn(turn)) {
                progress.show(&format!("round {} of {rounds}: {} {}", round + 1, scenario.id, contender.id));
                results.add(scenario, contender, runner.run(scenario, contender));
                progress.step();
            }
        }
    }
    progress.end();
    let targets = targets::judge(&results);
    results.write(&options.out, &targets)?;
    print!("{}", targets::table(&targets));
    println!("The report is in {}.", options.out.display());
    Ok(targets.iter().all(|target| target.holds == Some(true)))
}
