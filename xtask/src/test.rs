//! `cargo xtask test`: every test of the workspace.

use std::time::Duration;

use crate::{
    command, interop,
    setup::{self, Tool},
    step::Steps,
    tools, watch,
};

const TOOLS: &[Tool] = &[
    tools::ENV,
    tools::SCRIPT,
    tools::REDIS,
    tools::VENV,
    tools::VALKEY,
    tools::REDIS_PY,
    tools::JAVA,
    tools::MAVEN,
];

/// Builds come first and apart, so that the time of a suite is the time of its tests.
const BUILDS: &[(&str, &str)] = &[
    ("build", "cargo test --workspace --all-features --no-run"),
    ("build without features", "cargo test -p leasehold --no-default-features --lib --no-run"),
    ("examples", "cargo build --workspace --all-features --examples"),
];

/// Several times what the slowest test takes.
const LIMIT: Duration = Duration::from_secs(180);

const SUITES: &[(&str, &str)] = &[
    ("unit", "cargo test --workspace --all-features --lib --bins --no-fail-fast"),
    ("unit without features", "cargo test -p leasehold --no-default-features --lib --no-fail-fast"),
    ("integration", "cargo test --workspace --all-features --test=* --no-fail-fast"),
    ("documentation", "cargo test --workspace --all-features --doc --no-fail-fast"),
];

/// Installs what the tests need, builds them, and runs every suite even after one failed.
///
/// # Errors
///
/// When a tool is missing, something does not build, or a test fails.
pub(crate) fn run(yes: bool) -> Result<(), String> {
    setup::ensure(TOOLS, yes)?;
    let mut steps = Steps::default();
    let redisson = steps.run("redisson", || interop::build(interop::newest()));
    // What does not build would fail every suite with the same errors.
    if redisson && BUILDS.iter().all(|(name, line)| steps.run(name, || command::run(line))) {
        for (name, line) in SUITES {
            steps.run(name, || watch::run(line, LIMIT));
        }
    }
    steps.finish()
}
