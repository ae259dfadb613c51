//! `cargo xtask search`: plays seeds of the search for errors, as many as the time allows.

use crate::{command, setup, tools};

const TEST: &str = "cargo test -p leasehold-testkit --all-features --test search no_seed_finds_a_violation";
/// The same on the simulated server: optimised, because it only computes.
pub(crate) const SIMULATED: &str =
    "cargo test --release -p leasehold-testkit --all-features --test simulated_search";

/// What `cargo xtask search` takes. Without anything it plays the seeds of the gate.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Plays one seed after the other for this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Begins with a seed that was not played before, instead of the first; for ten minutes unless `--minutes` is given.
    #[arg(long, conflicts_with = "seed")]
    fresh: bool,
    /// Plays this seed once, or repeatedly for this many minutes.
    #[arg(long)]
    seed: Option<u64>,
    /// Plays simulated rounds, which need no server and are deterministic: a seed finds the same errors each time.
    #[arg(long)]
    sim: bool,
}

/// Runs the test of the gate with other seeds. It prints the seeds that found errors, and the errors.
///
/// # Errors
///
/// When a server is missing, or a seed has found an error.
pub(crate) fn run(&Args { minutes, fresh, seed, sim }: &Args) -> Result<(), String> {
    if !sim {
        setup::ensure(&[tools::REDIS, tools::VENV, tools::VALKEY], false)?;
    }
    let minutes = minutes.or(fresh.then_some(10));
    let settings = [
        minutes.map(|minutes| format!("LEASEHOLD_SEARCH_MINUTES={minutes} ")),
        fresh.then(|| format!("LEASEHOLD_SEARCH_FROM={} ", unplayed())),
        seed.map(|seed| format!("LEASEHOLD_SEARCH_SEED={seed} ")),
    ];
    let settings: String = settings.into_iter().flatten().collect();
    // Built as for the gate, so that a seed finds the same errors here as there.
    let test = if sim { format!("{SIMULATED} no_seed_finds_a_violation") } else { TEST.to_owned() };
    command::run(&format!("{settings}{test} -- --exact --nocapture"))
}

/// A seed that increases from one run to the next by more than a run can play.
#[expect(clippy::disallowed_methods, reason = "no lease is judged by it")]
fn unplayed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() * 100)
}
