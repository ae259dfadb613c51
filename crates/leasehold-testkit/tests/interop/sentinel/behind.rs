//! A primary behind sentinels, and a process of each language that locks there.

use std::thread;

use leasehold_testkit::jvm;
use leasehold_testkit::peer::Peer;
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::Server;
use leasehold_testkit::watched::Watched;

use crate::driver;
use crate::setup::{Setup, until};

/// How the primary changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failover {
    /// By order of an operator. The old primary runs, and is demoted some seconds later.
    Planned,
    /// Its process is killed.
    Crash,
}

/// The servers and the processes. The value that the locks protect is on the server of the shared setup, which does not fail over.
pub(super) struct Behind<'a> {
    pub(super) data: &'a Server,
    watched: Watched,
    pub(super) java: Peer,
    pub(super) rust: Peer,
}

impl<'a> Behind<'a> {
    pub(super) fn start(setup: &'a Setup) -> Self {
        let (data, watched) = (&setup.server, Watched::start(setup.server.flavour()));
        let (java, rust) = thread::scope(|scope| {
            let java = scope.spawn(|| jvm::start_behind("java", &setup.version, data, &watched));
            let rust = driver::start_behind("rust", data, &watched);
            (java.join().expect("Java starts"), rust)
        });
        Self { data, watched, java, rust }
    }

    pub(super) fn peers(&self) -> [&Peer; 2] {
        [&self.java, &self.rust]
    }

    /// Both processes, in both orders.
    pub(super) fn pairs(&self) -> [(&Peer, &Peer); 2] {
        [(&self.java, &self.rust), (&self.rust, &self.java)]
    }

    /// Waits until the replicas have all that was written before.
    pub(super) fn replicate(&self) {
        let mut connection = self.primary().connect();
        assert_eq!(connection.call(&["SET", "probe", "1"]).unwrap(), "OK");
        assert_eq!(connection.call(&["WAIT", "2", "9000"]).unwrap(), 2, "both replicas have it");
    }

    /// Fails over, and returns the index of the old primary.
    pub(super) fn fail_over(&mut self, how: Failover) -> usize {
        let old = self.watched.primary();
        match how {
            Failover::Planned => {
                let _ = self.watched.fail_over();
            }
            Failover::Crash => {
                self.watched.servers[old].kill();
                let _ = self.watched.failed_over_from(old);
            }
        }
        old
    }

    /// Makes the old primary a replica of the new one.
    pub(super) fn repair(&mut self, old: usize) {
        if self.watched.servers[old].pid().is_none() {
            self.watched.servers[old].restart();
        }
        self.watched.settle();
    }

    pub(super) fn primary(&self) -> &Server {
        &self.watched.servers[self.watched.primary()]
    }

    /// How many scripts this server has run for clients. Each lock and each release is one. `None` if it does not run, or becomes
    /// a replica at this moment.
    pub(super) fn scripts(&self, server: usize) -> Option<u64> {
        let stats = self.watched.servers[server].try_cli(&["INFO", "commandstats"]).ok()?;
        let lines =
            stats.as_str().unwrap_or_default().lines().filter(|line| line.starts_with("cmdstat_eval"));
        let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
        Some(lines.map(|line| calls(line).unwrap_or_else(|| panic!("no number of calls: {line}"))).sum())
    }

    /// Waits until a waiter for a plain lock is subscribed at the primary.
    pub(super) async fn subscribed(&self, name: &str) {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let count = || self.primary().cli(&["PUBSUB", "NUMSUB", &channel]).elements()[1].clone();
        until(&format!("a waiter is subscribed to {channel}"), || count() != Value::Int(0)).await;
    }
}
