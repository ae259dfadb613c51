//! `cargo xtask interop`: Leasehold beside the real Redisson, beside its port to Node.js, and beside the locks of Go and of `etcdctl`
//! on etcd.

use std::{fs, time::Duration};

use crate::{command, setup, step::Steps, tools, watch};

/// As `watch::LIMIT`, with all turns.
const FULL_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The project of the Java side, which specifies the versions of Redisson.
const POM: &str = include_str!("../../interop/java/pom.xml");
/// Where the Node.js side is installed: Node.js finds packages beside the program only.
const NODE: &str = "target/interop/node";

/// Builds the Go side where the tests expect it, with the versions of its lock file. Go older than 1.20 has no option for a folder, and
/// the state of the repository is of no interest in the program.
pub(crate) const GO: &str = "env -C interop/go go build -buildvcs=false -o ../../target/interop/go .";

/// What `cargo xtask interop` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Both lines of Redisson on Redis and on Valkey, with all turns: most of an hour.
    #[arg(long)]
    full: bool,
    /// Install missing programs without asking.
    #[arg(long)]
    yes: bool,
}

/// Builds the other sides, and runs the tests that need it.
///
/// # Errors
///
/// When a tool is missing, a build fails, or a test fails.
pub(crate) fn run(&Args { full, yes }: &Args) -> Result<(), String> {
    setup::ensure(&[tools::REDIS, tools::JAVA, tools::MAVEN, tools::NODE, tools::NPM], yes)?;
    setup::ensure(&[tools::ETCD, tools::ETCDCTL, tools::GO], yes)?;
    if full {
        setup::ensure(&[tools::VENV, tools::VALKEY], yes)?;
    }
    let suite = "cargo test -p leasehold-testkit --all-features --test interop";
    let on_etcd = "cargo test -p leasehold-testkit --all-features --test etcd opponents:: -- --nocapture";
    let mut steps = Steps::default();
    if steps.run("Go", || command::run(GO)) {
        let (longer, limit) = if full { ("LEASEHOLD_TURNS=5000 ", FULL_LIMIT) } else { ("", watch::LIMIT) };
        steps.run("interop on etcd", || watch::run(&format!("{longer}{on_etcd}"), limit));
    }
    if !steps.run("node-redisson", install_node) {
        return steps.finish();
    }
    if !full {
        if steps.run("redisson", || build(newest())) {
            steps.run("interop", || watch::run(&format!("{suite} -- --nocapture"), watch::LIMIT));
        }
        return steps.finish();
    }
    for version in [newest(), before()] {
        if steps.run(&format!("redisson {version}"), || build(version)) {
            for server in ["redis", "valkey"] {
                let setting = format!("LEASEHOLD_REDISSON={version} LEASEHOLD_INTEROP_SERVER={server}");
                steps.run(&format!("interop {version} {server}"), || {
                    let longer = "LEASEHOLD_TURNS=5000 LEASEHOLD_FAILOVERS=5";
                    let line = format!("{setting} {longer} {suite} -- --nocapture");
                    watch::run(&line, FULL_LIMIT)
                });
            }
        }
    }
    steps.finish()
}

/// Builds the Java side with this Redisson, where the tests expect it.
///
/// # Errors
///
/// When it does not build.
pub(crate) fn build(version: &str) -> Result<(), String> {
    command::run(&format!("mvn -q -B -f interop/java/pom.xml -Dredisson.version={version} compile"))
}

/// Installs the Node.js side with the versions of its lock file, where the tests expect it.
///
/// # Errors
///
/// When a package cannot be fetched.
pub(crate) fn install_node() -> Result<(), String> {
    fs::create_dir_all(NODE).map_err(|error| format!("cannot make {NODE}: {error}"))?;
    for file in ["package.json", "package-lock.json", "main.mjs"] {
        fs::copy(format!("interop/node/{file}"), format!("{NODE}/{file}"))
            .map_err(|error| format!("cannot copy {file} to {NODE}: {error}"))?;
    }
    // A peer of node-redisson is the compiler that it was built with.
    command::run(&format!(
        "npm ci --prefix {NODE} --omit=peer --prefer-offline --no-audit --no-fund --no-update-notifier"
    ))
}

/// The newest Redisson that is tested.
pub(crate) fn newest() -> &'static str {
    property("redisson.version")
}

/// The last version of the previous release line.
fn before() -> &'static str {
    property("redisson.before")
}

fn property(name: &str) -> &'static str {
    let value = POM.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once('<'));
    value.expect("the project has the versions").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_redisson_versions_are_of_the_major_versions_4_and_3() {
        assert!(newest().starts_with("4."), "{}", newest());
        assert!(before().starts_with("3."), "{}", before());
    }
}
