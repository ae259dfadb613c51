//! `cargo xtask search`: seeds of the search for errors, as many as there is time for.

use crate::{command, setup, tools};

const TEST: &str = "cargo test -p leasehold-testkit --all-features --test search no_seed_finds_anything";

/// What `cargo xtask search` takes. Without anything it plays the seeds of the gate.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Goes on with one seed after the other for so many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Begins with a seed that was not played before, instead of the first; for ten minutes unless `--minutes` is given.
    #[arg(long, conflicts_with = "seed")]
    fresh: bool,
    /// Plays this seed once, or again and again for so many minutes.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the test of the gate with other seeds. It says which have found something, and what.
///
/// # Errors
///
/// When a server is missing, or a seed has found something.
pub(crate) fn run(&Args { minutes, fresh, seed }: &Args) -> Result<(), String> {
    setup::ensure(&[tools::REDIS, tools::VENV, tools::VALKEY], false)?;
    let minutes = minutes.or(fresh.then_some(10));
    let settings = [
        minutes.map(|minutes| format!("LEASEHOLD_SEARCH_MINUTES={minutes} ")),
        fresh.then(|| format!("LEASEHOLD_SEARCH_FROM={} ", unplayed())),
        seed.map(|seed| format!("LEASEHOLD_SEARCH_SEED={seed} ")),
    ];
    let settings: String = settings.into_iter().flatten().collect();
    // Built as for the gate, so that a seed finds here what it finds there.
    command::run(&format!("{settings}{TEST} -- --exact --nocapture"))
}

/// A seed that rises from one run to the next by more than a run can play.
#[expect(clippy::disallowed_methods, reason = "no lease is judged by it")]
fn unplayed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() * 100)
}
