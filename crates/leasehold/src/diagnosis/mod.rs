//! What is there, and what endangers locks: the report of [`Client::diagnose`].

#[cfg(feature = "etcd")]
mod etcd;
mod latency;
#[cfg(feature = "redis")]
mod redis;
mod rights;

use std::fmt;
use std::time::Duration;

use crate::client::Client;
use crate::env;
use crate::error::{Classified as _, PingError, ServerError, Subject};

/// The finding of a server that accepts no lock, whatever the rights of the user are.
const FULL: &str = "alarm-nospace";

/// A report about the engine of a client: [`Client::diagnose`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The name of the engine, such as `redis`.
    pub engine: &'static str,
    /// The URL of the server without credentials; `None` for an engine inside the process.
    pub server: Option<String>,
    /// What is there.
    pub facts: Vec<Fact>,
    /// What endangers locks, the worst first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The worst severity among the findings; `None` if nothing was found.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    fn fact(&mut self, name: &'static str, value: impl Into<String>) {
        self.facts.push(Fact { name, value: Some(value.into()), missing: None });
    }

    #[cfg(any(feature = "etcd", feature = "redis"))]
    fn not_known(&mut self, name: &'static str, missing: &'static str) {
        self.facts.push(Fact { name, value: None, missing: Some(missing) });
    }

    fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        meaning: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.findings.push(Finding { severity, code, meaning: meaning.into(), advice: advice.into() });
    }
}

/// One thing that a server says about itself, or that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// What it is, such as `version`.
    pub name: &'static str,
    /// `None` if it is not known.
    pub value: Option<String>,
    /// The right without which it is not known, as `ACL SETUSER` of Redis takes it, or a role of etcd.
    pub missing: Option<&'static str>,
}

/// One thing that endangers locks, or that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which one it is: stable, for programs.
    pub code: &'static str,
    /// What it means for locks.
    pub meaning: String,
    /// What to change, as the line of a configuration where there is one.
    pub advice: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    Note,
    /// It costs time or availability, or endangers locks together with something else.
    Warning,
    /// Two owners may hold a lock at once, or locks do not work.
    Danger,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Danger => "danger",
        })
    }
}

/// Examines the engine of a client.
pub(crate) async fn diagnose(client: Client, watchdog: Duration) -> Result<Diagnosis, PingError> {
    let engine = client.engine_name();
    let (begun, server) = (env::now(), client.status().server);
    let mut report = Diagnosis { engine, server, facts: Vec::new(), findings: Vec::new() };
    latency::measure(&client, watchdog, &mut report).await?;
    match engine {
        "memory" => report.find(
            Severity::Note,
            "memory-only",
            "the locks are inside this process, and exclude no other one: for tests and for programs of one process",
            "connect to redis://host:port for several machines, or to file: for this machine",
        ),
        "file" => {
            for warning in client.warnings() {
                report.find(
                    Severity::Danger,
                    "network-file-system",
                    warning,
                    "use a directory on a disk of this machine, or a server",
                );
            }
        }
        _ => {}
    }
    #[cfg(feature = "redis")]
    redis::examine(&client, &mut report).await;
    #[cfg(feature = "etcd")]
    etcd::examine(&client, watchdog, &mut report).await;
    if ["etcd", "redis"].contains(&engine) {
        // Otherwise all of them fail, and not because of a right.
        if !report.findings.iter().any(|finding| finding.code == FULL) {
            rights::check(&client, &mut report).await;
        }
        // What failed because there was no connection is no finding.
        client.ping().await?;
        if client.status().lasting < env::now().saturating_duration_since(begun) {
            let cause = ServerError::Unavailable(
                "the connection was replaced during the diagnosis: repeat it".into(),
            );
            return Err(PingError::from(cause)
                .about(&Subject::server_alone(report.server.as_deref().map(Into::into))));
        }
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(report)
}
