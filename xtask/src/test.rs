//! `cargo xtask test`: every test of the workspace, or some of them.

mod selection;
mod server;

use self::selection::{ALL, Engine, FAST};
use self::server::{SERVERS, TOOLS};
use crate::{command, interop, package, search, setup, step::Steps, watch};

/// What `cargo xtask test` takes. Without anything it runs every test.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install missing programs without asking.
    #[arg(long)]
    yes: bool,
    /// Only the unit tests and the conformance suite that need no server: less than two minutes after the build.
    #[arg(long, conflicts_with_all = ["engine", "filter"])]
    fast: bool,
    /// Also the tests of the Redis engine on Redis 6.2, Redis 8 and Valkey 8: some 20 minutes more.
    #[arg(long, conflicts_with_all = ["fast", "engine"])]
    all_servers: bool,
    /// Only the tests about this engine: `memory`, `sim`, `etcd`, `file`, `redis` or `valkey`.
    #[arg(long, value_name = "NAME", value_parser = Engine::named, conflicts_with = "filter")]
    engine: Option<Engine>,
    /// Only the tests whose path contains this, such as `lease` or `conformance::memory::`.
    filter: Option<String>,
}

/// Installs the programs that the tests need, builds the tests, and runs every suite even after one failed.
///
/// # Errors
///
/// When a tool is missing, a build fails, or a test fails.
pub(crate) fn run(Args { yes, fast, all_servers, engine, filter }: Args) -> Result<(), String> {
    let selection = match engine {
        Some(engine) => engine.selection,
        None if fast => FAST,
        None => ALL,
    };
    setup::ensure(selection.tools, yes)?;
    let servers = if all_servers { SERVERS } else { &[] };
    if all_servers {
        setup::ensure(TOOLS, yes)?;
    }
    let mut steps = Steps::default();
    let redisson = !selection.redisson
        || (steps.run("redisson", || interop::build(interop::newest()))
            && steps.run("node-redisson", interop::install_node));
    // A failed build would fail every suite with the same errors.
    if redisson && selection.builds.iter().all(|(name, line)| steps.run(name, || command::run(line))) {
        for suite in selection.suites {
            steps.run(suite.name, || watch::run(&suite.line(filter.as_deref()), watch::LIMIT));
        }
        for server in servers {
            if steps.run(server.name, || server.check()) {
                for (name, line) in server.suites(filter.as_deref()) {
                    steps.run(&name, || watch::run(&line, watch::LIMIT));
                }
            }
        }
        if selection.searches && filter.is_none() {
            steps.run("simulated search", || {
                command::run(&format!("{} --no-run", search::SIMULATED))?;
                watch::run(&format!("{} -- --nocapture", search::SIMULATED), watch::LIMIT)
            });
            steps.run("package", package::run);
        }
    }
    steps.finish()
}
