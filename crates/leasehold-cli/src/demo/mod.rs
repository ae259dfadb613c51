//! `leasehold demo`: many users rush for a few seats, first without a lock, then with it.

pub mod children;
pub mod worker;

mod gathering;
mod phase;
mod progress;
mod seats;
mod summary;

use std::env;

use leasehold::Client;

use self::children::Children;
pub use self::gathering::Gathering;
pub use self::phase::{Outcome, Phase, Tally};
pub use self::progress::Progress;
use self::seats::Seats;
pub use self::summary::Report;
use crate::error::Error;
use crate::options::DemoOptions;
use crate::output;

/// Runs both phases and prints their results.
///
/// # Errors
///
/// When the engine or a child process failed, and when the lock did not admit exactly as many users as it should have.
pub async fn run(options: &DemoOptions) -> Result<(), Error> {
    let url = &options.engine.url;
    // Also where child processes do the work: an error in the URL is reported once, not by each of them.
    let client = Client::connect(url.secret()).await?;
    if options.processes > 1 && url.is_memory() {
        return Err(Error::MemoryIsNotShared { processes: options.processes });
    }

    let unlocked = run_phase(Phase::Unlocked, options, &client).await?;
    let locked = run_phase(Phase::Locked, options, &client).await?;
    let report = Report {
        users: options.users,
        seats: options.seats,
        processes: options.processes,
        url: url.clone(),
        unlocked,
        locked,
    };
    if options.json { output::print_json(&report) } else { output::print(&report) }?;
    report.check()
}

async fn run_phase(phase: Phase, options: &DemoOptions, client: &Client) -> Result<Outcome, Error> {
    let &DemoOptions { users, seats: limit, processes, .. } = options;
    let url = &options.engine.url;
    let progress = if options.json { Progress::hidden() } else { Progress::on_stderr(phase, users) };
    let gathering = Gathering::new(&client.id(), phase);
    if processes == 1 {
        let seats = Seats::open(url, &gathering).await?;
        let outcome = phase::rush(phase, client, &gathering, seats, users, limit, &progress).await;
        Seats::open(url, &gathering).await?.remove().await?;
        return outcome;
    }
    let program = env::current_exe().map_err(Error::OwnProgram)?;
    let children =
        Children { program: &program, processes, users, seats: limit, url, gathering: &gathering, phase };
    let outcome = children.run(&progress).await;
    Seats::open(url, &gathering).await?.remove().await?;
    outcome
}
