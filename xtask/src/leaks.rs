//! `cargo xtask leaks`: whether names, cancelled acquires and dropped guards leave anything behind.

use std::time::Duration;

use crate::watch;

const TEST: &str = "leaks::names_cancelled_acquires_and_dropped_guards_leave_nothing_behind";

/// What `cargo xtask leaks` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A million names, a hundred thousand cancelled acquires and ten thousand dropped guards, for some minutes.
    #[arg(long)]
    full: bool,
}

/// Runs the test of that name optimised, as in production, and shows its figures.
///
/// # Errors
///
/// When something is left behind.
pub(crate) fn run(Args { full }: &Args) -> Result<(), String> {
    let amount = if *full { "LEASEHOLD_LEAKS_FULL=1 " } else { "" };
    let test = "cargo test --release -p leasehold-testkit --all-features --test processes";
    let limit = Duration::from_secs(20 * 60);
    watch::run(&format!("{amount}{test} {TEST} -- --exact --nocapture"), limit)
}
