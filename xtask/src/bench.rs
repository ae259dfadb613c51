//! `cargo xtask bench`: builds all drivers of the comparison, and runs it.

use crate::{
    command,
    setup::{self, Source, Tool},
    step::Steps,
    tools,
};

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install missing programs without asking.
    #[arg(long)]
    yes: bool,
    /// What the comparison itself takes: `--quick`, `--only U1,C1`, `--contenders leasehold,redisson`, `--out FOLDER`,
    /// `--list` and more, which `-- --help` shows.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

const TOOLS: &[Tool] = &[
    Tool { reason: "all contenders are measured on one server", ..tools::REDIS },
    Tool {
        name: "mariadbd",
        probe: "mariadbd --version",
        reason: "the gathering is also held with GET_LOCK",
        source: Source::Debian("mariadb-server"),
    },
    Tool {
        name: "go",
        probe: "go version",
        reason: "rueidislock and redsync are written in it; from 1.21 on it fetches the version they need",
        source: Source::Debian("golang-go"),
    },
    Tool { reason: "Redisson and Lettuce run on it", ..tools::JAVA },
    Tool { reason: "it fetches Redisson and Lettuce", ..tools::MAVEN },
    Tool {
        name: "node",
        probe: "node --version",
        reason: "redlock runs on it",
        source: Source::Debian("nodejs"),
    },
    Tool { name: "npm", probe: "npm --version", reason: "it fetches redlock", source: Source::Debian("npm") },
    Tool { reason: "redis-py gets a virtual environment of its own", ..tools::VENV },
];

/// Each fetches what its lock file says, so only the first run takes long.
const BUILDS: &[(&str, &str)] = &[
    ("Rust", "cargo build --release --locked --manifest-path bench/Cargo.toml"),
    ("Go", "go build -C bench/go -o ../target/drivers/go/bench ."),
    ("Java", "mvn --quiet --batch-mode --file bench/java/pom.xml process-classes"),
    ("Node", "npm ci --prefix bench/node --no-audit --no-fund --silent"),
    ("Python", "python3 -m venv bench/target/drivers/python"),
    (
        "redis-py",
        "bench/target/drivers/python/bin/pip install --quiet --requirement bench/python/requirements.txt",
    ),
];

/// Builds everything, then measures.
///
/// # Errors
///
/// When a tool is missing, something does not build, or a target is missed.
pub(crate) fn run(Args { yes, rest }: &Args) -> Result<(), String> {
    let lists = rest.iter().any(|word| ["--list", "--help"].contains(&word.as_str()));
    if !lists {
        setup::ensure(TOOLS, *yes)?;
        let mut steps = Steps::default();
        if !BUILDS.iter().all(|(name, line)| steps.run(name, || command::run(line))) {
            return steps.finish();
        }
    }
    // The harness finds the drivers in Rust beside itself.
    let harness =
        "cargo run --quiet --release --locked --manifest-path bench/Cargo.toml --package bench-harness --";
    command::run(&format!("{harness} {}", rest.join(" ")))
}
