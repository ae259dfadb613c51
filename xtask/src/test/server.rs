//! The servers beside Redis 7 and Valkey 9, and the tests that run on each of them.

use super::selection::{ON_A_SERVER, Suite};
use crate::{command, setup::Tool, tools};

/// A server that `--all-servers` adds.
pub(super) struct Server {
    pub(super) name: &'static str,
    /// From the root of the repository.
    program: &'static str,
    /// The beginning of its version.
    version: &'static str,
}

pub(super) const TOOLS: &[Tool] = &[tools::VENV, tools::REDIS_6_2, tools::REDIS_8, tools::VALKEY_8];

pub(super) const SERVERS: &[Server] = &[
    Server { name: "Redis 6.2", program: "target/tools/redis-6.2/bin/redis-server", version: "6.2." },
    Server { name: "Redis 8", program: "target/tools/debian-13/redis-server", version: "8." },
    Server { name: "Valkey 8", program: "target/tools/debian-13/valkey-server", version: "8." },
];

impl Server {
    /// Checks that the program is this server.
    ///
    /// # Errors
    ///
    /// When it is missing or another one.
    pub(super) fn check(&self) -> Result<(), String> {
        let said = command::output(&format!("{} --version", self.program))?;
        let said = String::from_utf8_lossy(&said);
        println!("{}", said.trim_end());
        let kind = self.name.split(' ').next().unwrap_or_default();
        if said.starts_with(&format!("{kind} server v={}", self.version)) {
            Ok(())
        } else {
            Err(format!("{} is not {}", self.program, self.name))
        }
    }

    /// The names and command lines of its suites. All servers that these tests start are this one, also where a test asks for
    /// Redis and for Valkey.
    pub(super) fn suites(&self, filter: Option<&str>) -> Vec<(String, String)> {
        let program = self.program;
        let chosen = format!("LEASEHOLD_REDIS_SERVER={program} LEASEHOLD_VALKEY_SERVER={program}");
        let named = |suite: &Suite| {
            (format!("{}, {}", self.name, suite.name), format!("{chosen} {}", suite.line(filter)))
        };
        ON_A_SERVER.iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_runs_the_tests_of_the_redis_engine_on_itself_alone() {
        for server in SERVERS {
            let suites = server.suites(None);
            assert_eq!(suites.len(), 3);
            for (name, line) in suites {
                assert!(name.starts_with(server.name) && line.matches(server.program).count() == 2, "{line}");
            }
        }
        let (_, line) = &SERVERS[0].suites(Some("lease"))[1];
        assert!(line.contains(" -- lease --skip conformance::memory:: "), "{line}");
    }
}
