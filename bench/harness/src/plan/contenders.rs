//! The contenders, how their drivers are started, and what they do not support.

use super::scenarios::{Job, Scenario};

/// A lock library or a baseline.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) id: &'static str,
    pub(crate) family: Family,
    pub(crate) program: Program,
    /// The arguments of its driver besides the job.
    pub(crate) words: &'static [&'static str],
    /// How its keys begin.
    pub(crate) key_prefix: &'static str,
    /// The channel of its waiters, by the part before the name in braces; nothing if they poll or are woken in another way.
    pub(crate) channel: Option<&'static str>,
    /// Plain commands that its client sends, and which share of their calls is not from its scripts; see `info.rs`.
    pub(crate) plain: &'static [(&'static str, f64)],
    /// Whether its connections are encrypted.
    pub(crate) tls: bool,
    /// The baselines that take turns with it, where the scenario has them.
    pub(crate) baselines: &'static [&'static str],
    /// Why it does not renew a lock, if it does not.
    keeps_none: Option<&'static str>,
    /// Why it does not wait for a lock, if it does not.
    waits_not: Option<&'static str>,
}

/// The groups that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// No lock logic.
    Baseline,
    /// The layout of Redisson.
    Hash,
    /// The layout of `SET … NX`.
    SetNx,
    /// Another server.
    Database,
    /// No server: inside one process.
    Memory,
    /// No server: files of this machine.
    File,
    /// A server of etcd.
    Etcd,
}

impl Family {
    /// Whether its contenders are measured on the harness' Redis server.
    pub(crate) fn needs_server(self) -> bool {
        !matches!(self, Self::Memory | Self::File | Self::Etcd)
    }
}

/// The program that is started.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    Rust(&'static str),
    Go,
    Java,
    Python,
    Node,
}

const USUAL: Contender = Contender {
    id: "",
    family: Family::SetNx,
    program: Program::Rust(""),
    words: &[],
    key_prefix: "",
    channel: None,
    plain: &[],
    tls: false,
    baselines: &[],
    keeps_none: None,
    waits_not: None,
};

/// Most take the lock by a plain `SET`, which none of their scripts calls.
const SET: &[(&str, f64)] = &[("set", 1.0)];

/// Why a baseline does not wait.
const NO_LOGIC: Option<&str> = Some("no lock logic, so it cannot wait");

/// All of them, in the order in which they are shown.
pub(crate) const CONTENDERS: &[Contender] = &[
    Contender {
        id: "leasehold",
        family: Family::Hash,
        program: Program::Rust("leasehold"),
        channel: Some("redisson_lock__channel:"),
        baselines: &["client", "client-apart", "raw"],
        ..USUAL
    },
    Contender {
        id: "leasehold-setnx",
        program: Program::Rust("leasehold"),
        words: &["layout=setnx"],
        channel: Some("leasehold_setnx__channel:"),
        plain: SET,
        baselines: &["client-setnx", "client-apart-setnx", "raw-setnx"],
        ..USUAL
    },
    Contender {
        id: "leasehold-tls",
        family: Family::Hash,
        program: Program::Rust("leasehold"),
        tls: true,
        baselines: &["leasehold", "client", "client-tls"],
        ..USUAL
    },
    Contender { id: "client", family: Family::Baseline, program: Program::Rust("client"), ..USUAL },
    Contender {
        id: "client-tls",
        family: Family::Baseline,
        program: Program::Rust("client"),
        tls: true,
        ..USUAL
    },
    Contender {
        id: "client-setnx",
        family: Family::Baseline,
        program: Program::Rust("client"),
        words: &["layout=setnx"],
        plain: SET,
        ..USUAL
    },
    Contender {
        id: "client-apart",
        family: Family::Baseline,
        program: Program::Rust("client"),
        words: &["sockets=apart"],
        ..USUAL
    },
    Contender {
        id: "client-apart-setnx",
        family: Family::Baseline,
        program: Program::Rust("client"),
        words: &["layout=setnx", "sockets=apart"],
        plain: SET,
        ..USUAL
    },
    Contender {
        id: "raw",
        family: Family::Baseline,
        program: Program::Rust("raw"),
        waits_not: NO_LOGIC,
        ..USUAL
    },
    Contender {
        id: "raw-setnx",
        family: Family::Baseline,
        program: Program::Rust("raw"),
        words: &["layout=setnx"],
        plain: SET,
        waits_not: NO_LOGIC,
        ..USUAL
    },
    Contender {
        id: "redisson",
        family: Family::Hash,
        program: Program::Java,
        words: &["contender=redisson"],
        // For each release, one in the script and one that is sent after it.
        plain: &[("del", 0.5)],
        channel: Some("redisson_lock__channel:"),
        ..USUAL
    },
    Contender {
        id: "lettuce",
        program: Program::Java,
        words: &["contender=lettuce"],
        plain: &[("set", 1.0), ("del", 1.0)],
        keeps_none: Some("the spin lock of the tutorials does not renew"),
        ..USUAL
    },
    Contender {
        id: "rueidislock",
        program: Program::Go,
        words: &["contender=rueidislock"],
        key_prefix: "rueidislock:0:",
        ..USUAL
    },
    Contender {
        id: "redsync",
        program: Program::Go,
        words: &["contender=redsync"],
        plain: SET,
        keeps_none: Some("does not renew by itself"),
        ..USUAL
    },
    Contender {
        id: "rslock",
        program: Program::Rust("rslock"),
        plain: SET,
        keeps_none: Some("does not renew by itself"),
        ..USUAL
    },
    Contender { id: "rlock", program: Program::Rust("rlock"), plain: SET, ..USUAL },
    Contender {
        id: "distributed-lock",
        program: Program::Rust("distributed_lock"),
        key_prefix: "distributed-lock:",
        plain: SET,
        waits_not: Some("does not wait: with one server an acquire that finds the lock busy fails at once"),
        ..USUAL
    },
    Contender {
        id: "redis-py",
        program: Program::Python,
        plain: SET,
        keeps_none: Some("does not renew by itself"),
        ..USUAL
    },
    Contender { id: "redlock", program: Program::Node, ..USUAL },
    Contender { id: "mariadb", family: Family::Database, program: Program::Rust("mariadb"), ..USUAL },
    Contender {
        id: "leasehold-memory",
        family: Family::Memory,
        program: Program::Rust("memory"),
        words: &["layout=leasehold"],
        baselines: &["tokio-mutex"],
        ..USUAL
    },
    Contender {
        id: "tokio-mutex",
        family: Family::Memory,
        program: Program::Rust("memory"),
        words: &["layout=tokio"],
        ..USUAL
    },
    Contender {
        id: "leasehold-file",
        family: Family::File,
        program: Program::Rust("leasehold"),
        words: &["runtime=current_thread"],
        // Both ways to call take turns with one baseline.
        baselines: &["flock", "leasehold-file-block"],
        ..USUAL
    },
    Contender {
        id: "leasehold-file-block",
        family: Family::File,
        program: Program::Rust("leasehold"),
        words: &["calls=blocking"],
        baselines: &["flock"],
        ..USUAL
    },
    Contender { id: "flock", family: Family::File, program: Program::Rust("flock"), ..USUAL },
    Contender {
        id: "leasehold-etcd",
        family: Family::Etcd,
        program: Program::Rust("leasehold"),
        baselines: &["raw-etcd", "go-etcd"],
        ..USUAL
    },
    Contender {
        id: "raw-etcd",
        family: Family::Etcd,
        program: Program::Rust("raw_etcd"),
        waits_not: NO_LOGIC,
        ..USUAL
    },
    Contender {
        id: "go-etcd",
        family: Family::Etcd,
        program: Program::Go,
        words: &["contender=go-etcd"],
        ..USUAL
    },
];

impl Contender {
    /// Why it does not support a scenario, if it does not.
    pub(crate) fn cannot(&self, scenario: &Scenario) -> Option<&'static str> {
        match scenario.job {
            Job::Hold { .. } => self.keeps_none,
            Job::Wake { .. } if self.id == "lettuce" => Some("needs a thread for each waiter"),
            Job::Contend(_) | Job::Wake { .. } => self.waits_not,
            Job::Pairs { .. } => None,
        }
    }
}
