//! `cargo xtask mutants`: whether the tests detect deliberate errors in the library.
//!
//! It needs a tree whose tests pass: a test that fails anyway detects nothing.

mod points;
mod text;

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::watch;

/// What `cargo xtask mutants` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the mutations whose name contains one of these, or the file where it is.
    filters: Vec<String>,
    /// All that are marked in the code, not only those of the gate.
    #[arg(long)]
    all: bool,
    /// Those of `xtask/mutants.txt` instead, which are about Redis: half an hour.
    #[arg(long)]
    text: bool,
}

/// Makes each mutation in turn.
///
/// # Errors
///
/// When a mutant survives its tests or does not build.
pub(crate) fn run(Args { filters, all, text }: &Args) -> Result<(), String> {
    if *text { text::run(filters) } else { points::run(filters, *all) }
}

/// Longer than any of the tests takes. A mutant that makes one hang is detected.
const LIMIT: Duration = Duration::from_secs(150);

/// How a run of tests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
    /// The run exceeded the limit and was ended.
    Late,
}

/// Starts a run of `cargo test` whose output goes into a file.
fn start(mut cargo: Command, file: &str) -> Result<Child, String> {
    let output = fs::File::create(file).map_err(|error| format!("{file}: {error}"))?;
    let both = output.try_clone().map_err(|error| format!("{file}: {error}"))?;
    cargo.stdin(Stdio::null()).stdout(output).stderr(both);
    cargo.spawn().map_err(|error| format!("cargo cannot start: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "no test clock runs here")]
fn ended(mut cargo: Child, limit: Duration) -> Result<Ended, String> {
    let begun = Instant::now();
    loop {
        if let Some(status) =
            cargo.try_wait().map_err(|error| format!("cargo cannot be waited for: {error}"))?
        {
            return Ok(if status.success() { Ended::Well } else { Ended::Badly });
        }
        if begun.elapsed() > limit {
            watch::end_tests(&cargo);
            let _ = cargo.kill();
            let _ = cargo.wait();
            return Ok(Ended::Late);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
