//! `leasehold demo`: many users rush for a few seats, first without a lock, then with it.

pub mod children;
pub mod worker;

mod directory;
mod engine;
mod gathering;
mod kind;
mod phase;
mod progress;
mod seats;
mod summary;

use std::env;

use leasehold::QueryError;

use self::children::Children;
use self::engine::Engine;
pub use self::gathering::Gathering;
pub use self::kind::Kind;
use self::phase::Rush;
pub use self::phase::{Outcome, Phase, Tally};
pub use self::progress::Progress;
use self::seats::Seats;
pub use self::summary::Report;
use crate::error::Error;
use crate::options::DemoOptions;
use crate::output;
use crate::url::Url;

/// Runs both phases and prints their results.
///
/// # Errors
///
/// When the engine or a child process failed, when the engine does not have the kind of lock, and when the lock did not admit
/// exactly as many users as it should have.
pub async fn run(options: &DemoOptions) -> Result<(), Error> {
    let on_files = options.url.as_ref().map_or(options.processes > 1, Url::is_file);
    if !on_files {
        return run_to_end(options).await;
    }
    tokio::select! {
        biased;
        // First, so that no signal has its default effect, which would leave a directory behind.
        signal = ended_by_signal() => Err(signal),
        done = run_to_end(options) => done,
    }
}

async fn run_to_end(options: &DemoOptions) -> Result<(), Error> {
    let engine = &Engine::open(options).await?;
    // A kind that the engine lacks is an error of the options, also where child processes would report it.
    let lock = options.kind.lock(&engine.client, Gathering::new(&engine.client.id(), Phase::Locked).lock());
    if let Err(error @ QueryError::Invalid { .. }) = lock.is_locked().await {
        return Err(Error::Kind(error));
    }
    let unlocked = run_phase(Phase::Unlocked, options, engine).await?;
    let locked = run_phase(Phase::Locked, options, engine).await?;
    let report = Report {
        users: options.users,
        seats: options.seats,
        processes: options.processes,
        kind: options.kind,
        url: engine.shown.clone(),
        unlocked,
        locked,
    };
    if options.json { output::print_json(&report) } else { output::print(&report) }?;
    report.check()
}

async fn run_phase(phase: Phase, options: &DemoOptions, engine: &Engine) -> Result<Outcome, Error> {
    let &DemoOptions { users, seats: limit, processes, kind, .. } = options;
    let Engine { client, url, .. } = engine;
    let progress = if options.json { Progress::hidden() } else { Progress::on_stderr(phase, users) };
    let gathering = Gathering::new(&client.id(), phase);
    if processes == 1 {
        let seats = Seats::open(url, &gathering).await?;
        let lock = kind.lock(client, gathering.lock());
        let outcome = Rush { phase, lock, seats, users, limit }.run(&progress).await;
        Seats::open(url, &gathering).await?.remove().await?;
        return outcome;
    }
    let program = env::current_exe().map_err(Error::OwnProgram)?;
    let children = Children {
        program: &program,
        processes,
        users,
        seats: limit,
        url,
        gathering: &gathering,
        phase,
        kind,
    };
    let outcome = children.run(&progress).await;
    Seats::open(url, &gathering).await?.remove().await?;
    outcome
}

/// Resolves when a signal requests this process to end.
#[cfg(unix)]
async fn ended_by_signal() -> Error {
    use crate::run::signals::Signals;
    use nix::sys::signal::Signal;
    match Signals::listen(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]) {
        Ok(mut signals) => Error::Signal(signals.next().await),
        Err(error) => Error::Runtime(error),
    }
}

/// Where there are no files to remove.
#[cfg(not(unix))]
async fn ended_by_signal() -> Error {
    std::future::pending().await
}
