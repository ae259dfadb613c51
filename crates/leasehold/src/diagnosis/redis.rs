//! What a Redis or Valkey server says about itself, and what of it endangers locks.

use std::time::Duration;

use super::{Diagnosis, Severity};
use crate::client::Client;
use crate::engine::{Probe, Probed};
use crate::env;

/// So many requests are sent at most to count the counters of tokens, and for so long.
const MOST_STEPS: u32 = 200;
const LONGEST: Duration = Duration::from_secs(2);
/// So many counters are a finding.
const MANY_TOKENS: usize = 10_000;
/// A server whose clock differs by more is not kept in time.
const CLOSE_CLOCKS: i64 = 2000;

/// Adds what is known; what the user may not ask is not known.
pub(super) async fn examine(client: &Client, report: &mut Diagnosis) {
    let Ok(hello) = client.probe(Probe::Hello).await else { return };
    identity(client, &hello, report).await;
    match client.probe(Probe::Info).await {
        Ok(info) => {
            memory(&info, report);
            let save = client.probe(Probe::Setting("save")).await.ok();
            persistence(&info, save.as_ref(), report);
            replication(&info, report);
        }
        Err(_) => {
            for name in ["eviction", "persistence", "replicas"] {
                report.not_known(name, "+info");
            }
        }
    }
    match client.probe(Probe::ClockOffset).await {
        Ok(offset) => clock(offset.number().unwrap_or(0), report),
        Err(_) => report.not_known("clock", "+time"),
    }
    tokens(client, report).await;
}

async fn identity(client: &Client, hello: &Probed, report: &mut Diagnosis) {
    let (server, version) = (hello.field("server").unwrap_or("redis"), hello.field("version").unwrap_or("?"));
    report.fact("server", format!("{server} {version}"));
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    if server == "redis" && (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 2) {
        report.find(
            Severity::Warning,
            "old-server",
            format!("{server} {version} cannot end stale connections by their number: requests of a broken connection may be executed late, and are rolled back"),
            "use Redis 6.2 or later, or Valkey",
        );
    }
    let url = report.server.clone().unwrap_or_default();
    report.fact("topology", if url.contains("+sentinel:") { "behind sentinels" } else { "one server" });
    let tls = ["rediss", "valkeys"].iter().any(|scheme| url.starts_with(scheme));
    report.fact("TLS", if tls { "yes" } else { "no" });
    let mut ids = vec![hello.field("id").and_then(|id| id.parse().ok())];
    for _ in 0..3 {
        match client.probe(Probe::ConnectionId).await {
            Ok(id) => ids.push(id.number()),
            Err(_) => return report.not_known("proxy", "+client|id"),
        }
    }
    same_connection(&ids, report);
}

fn same_connection(ids: &[Option<i64>], report: &mut Diagnosis) {
    if ids.windows(2).all(|pair| pair[0] == pair[1]) {
        return report.fact("proxy", "none seen");
    }
    report.find(
        Severity::Danger,
        "proxy",
        "requests of one connection reach the server by several: a proxy is in between, which keeps neither the order of requests nor the subscriptions of waiters",
        "connect to the server itself, or make the proxy keep one connection for each client",
    );
}

fn memory(info: &Probed, report: &mut Diagnosis) {
    let Some(policy) = info.field("maxmemory_policy") else { return };
    report.fact("eviction", policy);
    if policy == "noeviction" {
        return;
    }
    let limited = info.field("maxmemory").is_some_and(|limit| limit != "0");
    let (severity, when) = if limited {
        (Severity::Danger, "when its memory is full")
    } else {
        (Severity::Warning, "as soon as it gets a `maxmemory`")
    };
    report.find(
        severity,
        "eviction",
        format!(
            "the server may delete locks that are held {when} ({policy}), and then two owners hold a lock"
        ),
        "maxmemory-policy noeviction",
    );
}

fn persistence(info: &Probed, save: Option<&Probed>, report: &mut Diagnosis) {
    let appends = info.field("aof_enabled") == Some("1");
    let snapshots = save.and_then(|save| save.field("save")).map(|save| !save.is_empty());
    let kept = match (appends, snapshots) {
        (true, _) => "append-only file",
        (false, Some(true)) => "snapshots",
        (false, Some(false)) => "none",
        (false, None) => return report.not_known("persistence", "+config|get"),
    };
    report.fact("persistence", kept);
    let (severity, code, what) = match kept {
        "none" => (
            Severity::Danger,
            "no-persistence",
            "a server that restarts has no locks, so a second owner gets each lock that is held",
        ),
        "snapshots" => (
            Severity::Warning,
            "snapshots-only",
            "a server that crashes has no locks that were acquired after its last snapshot, so a second owner gets them",
        ),
        _ => return,
    };
    report.find(severity, code, what, "appendonly yes");
}

fn replication(info: &Probed, report: &mut Diagnosis) {
    let replicas: usize = info.field("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0);
    report.fact("replicas", replicas.to_string());
    if replicas == 0 {
        return;
    }
    if info.field("min_slaves_good_slaves").is_none() {
        report.find(
            Severity::Danger,
            "no-min-replicas",
            "a primary that was replaced goes on accepting locks which the new one does not have, so two owners hold a lock",
            "min-replicas-to-write 1 and min-replicas-max-lag 2",
        );
    }
    for number in 0..replicas {
        let Some(replica) = info.field(&format!("slave{number}")) else { continue };
        let value =
            |name: &str| replica.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let lag: i64 = value("lag").and_then(|lag| lag.parse().ok()).unwrap_or(0);
        if value("state") != Some("online") || lag > 2 {
            let (ip, port) = (value("ip").unwrap_or("?"), value("port").unwrap_or("?"));
            report.find(
                Severity::Warning,
                "replication-lag",
                format!("the replica {ip}:{port} is {lag} s behind: if it becomes the primary, the locks of that time are missing"),
                "check the network to the replica and its load (INFO replication)",
            );
        }
    }
}

fn clock(offset: i64, report: &mut Diagnosis) {
    report.fact("clock", format!("{offset:+} ms against this machine"));
    if offset.abs() > CLOSE_CLOCKS {
        report.find(
            Severity::Warning,
            "clock-offset",
            format!("the clock of the server differs from ours by {offset:+} ms: if it is set while locks are held, leases end early or late"),
            "let chrony or ntpd slew both clocks, and step neither",
        );
    }
}

async fn tokens(client: &Client, report: &mut Diagnosis) {
    let (begun, mut cursor, mut found, mut complete) = (env::now(), 0, 0, false);
    for _ in 0..MOST_STEPS {
        match client.probe(Probe::TokenKeys(cursor)).await {
            Ok(Probed::Found(next, keys)) => (cursor, found) = (next, found + keys),
            _ => return report.not_known("token counters", "+scan"),
        }
        complete = cursor == 0;
        if complete || env::now().saturating_duration_since(begun) > LONGEST {
            break;
        }
    }
    let sample = if complete { "" } else { ", in a sample of the keys" };
    report.fact("token counters", format!("{found}{sample}"));
    if found >= MANY_TOKENS {
        report.find(
            Severity::Warning,
            "token-keys",
            format!("there are {found} counters of fencing tokens{sample}, which fill the memory"),
            "let them expire by the option token_retention of all clients, and lock only a bounded set of names with tokens",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Diagnosis {
        Diagnosis { engine: "redis", server: None, facts: Vec::new(), findings: Vec::new() }
    }

    fn codes(report: &Diagnosis) -> Vec<&str> {
        report.findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_connection_whose_number_changes_is_that_of_a_proxy() {
        for (ids, expected) in [([Some(7); 4], vec![]), ([Some(7), Some(7), Some(8), Some(7)], vec!["proxy"])]
        {
            let mut report = report();
            same_connection(&ids, &mut report);
            assert_eq!(codes(&report), expected);
        }
    }

    #[test]
    fn a_replica_that_is_late_or_not_online_is_found() {
        for (replica, expected) in [
            ("ip=::1,port=7,state=online,offset=1,lag=1", vec![]),
            ("ip=::1,port=7,state=online,offset=1,lag=3", vec!["replication-lag"]),
            ("ip=::1,port=7,state=wait_bgsave,offset=0,lag=0", vec!["replication-lag"]),
        ] {
            let fields = [("connected_slaves", "1"), ("min_slaves_good_slaves", "1"), ("slave0", replica)];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let mut report = report();
            replication(&Probed::Fields(fields.to_vec()), &mut report);
            assert_eq!(codes(&report), expected, "{replica}");
        }
    }

    #[test]
    fn clocks_that_differ_by_seconds_are_found() {
        for (offset, expected) in
            [(-2000, vec![]), (2001, vec!["clock-offset"]), (-5000, vec!["clock-offset"])]
        {
            let mut report = report();
            clock(offset, &mut report);
            assert_eq!(codes(&report), expected);
        }
    }
}
