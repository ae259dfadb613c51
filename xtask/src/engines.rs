//! `cargo xtask engines`: the engine on etcd with each version of the server, and with three members.

use crate::{
    command,
    setup::{self, Tool},
    step::Steps,
    tools, watch,
};

const TOOLS: &[Tool] =
    &[tools::ETCD, tools::ETCDCTL, tools::STRACE, tools::GO, tools::GO_1_23, tools::ETCD_3_5];

/// A server, the beginning of its version, how it is built, and the program.
struct Server {
    name: &'static str,
    version: &'static str,
    build: Option<&'static str>,
    /// From the root of the repository, or a name in the `PATH`.
    program: &'static str,
}

const SERVERS: &[Server] = &[
    Server { name: "etcd", version: "3.", build: None, program: "etcd" },
    Server { name: "etcd 3.5", version: "3.5.", build: None, program: "target/tools/debian-13/etcd" },
    Server {
        name: "etcd 3.6",
        version: "3.6.",
        build: Some("env -C interop/etcd/3.6 go build -buildvcs=false -o ../../../target/tools/etcd-3.6 ."),
        program: "target/tools/etcd-3.6",
    },
    Server {
        name: "etcd 3.7",
        version: "3.7.",
        build: Some("env -C interop/etcd/3.7 go build -buildvcs=false -o ../../../target/tools/etcd-3.7 ."),
        program: "target/tools/etcd-3.7",
    },
];

/// A name, and a target of tests with the ones that run.
const SUITES: &[(&str, &str)] = &[
    ("conformance", "suite --no-fail-fast -- conformance::etcd::"),
    ("faults and other programs", "etcd --no-fail-fast"),
];

/// Runs the suites on each server, all of them even after one failed.
///
/// # Errors
///
/// When a server is missing, a build fails, or a test fails.
pub(crate) fn run(yes: bool) -> Result<(), String> {
    setup::ensure(TOOLS, yes)?;
    let mut steps = Steps::default();
    let build = "cargo test -p leasehold-testkit --all-features --test suite --test etcd --no-run";
    let builds = [("Go", crate::interop::GO), ("build", build)];
    if !builds.iter().all(|(name, line)| steps.run(name, || command::run(line))) {
        return steps.finish();
    }
    for server in SERVERS {
        if !steps.run(server.name, || server.is_there()) {
            continue;
        }
        for members in [1, 3] {
            for (name, tests) in SUITES {
                let step = format!("{}, members: {members}, {name}", server.name);
                steps.run(&step, || watch::run(&server.line(members, tests), watch::LIMIT));
            }
        }
    }
    steps.finish()
}

impl Server {
    /// Builds it if it is built here, and checks that it is of this version.
    fn is_there(&self) -> Result<(), String> {
        self.build.map_or(Ok(()), command::run)?;
        let said = command::output(&format!("{} --version", self.program))?;
        let said = String::from_utf8_lossy(&said);
        println!("{}", said.trim_end());
        if said.starts_with(&format!("etcd Version: {}", self.version)) {
            Ok(())
        } else {
            Err(format!("{} is not {}", self.program, self.name))
        }
    }

    /// The command line of some tests on a cluster of this server.
    fn line(&self, members: u32, tests: &str) -> String {
        // The tests find the one in the `PATH` by themselves.
        let named = self.program.contains('/').then(|| format!("LEASEHOLD_ETCD_SERVER={} ", self.program));
        format!(
            "{}LEASEHOLD_ETCD_MEMBERS={members} cargo test -p leasehold-testkit --all-features --test {tests}",
            named.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_runs_on_one_and_three_members_and_only_those_that_are_not_installed_are_named() {
        assert_eq!(
            SERVERS[0].line(3, SUITES[0].1),
            "LEASEHOLD_ETCD_MEMBERS=3 cargo test -p leasehold-testkit --all-features --test suite --no-fail-fast -- conformance::etcd::"
        );
        assert!(SERVERS[1..].iter().all(|server| {
            let line = server.line(1, SUITES[1].1);
            line.starts_with(&format!("LEASEHOLD_ETCD_SERVER={} LEASEHOLD_ETCD_MEMBERS=1 ", server.program))
        }));
    }
}
