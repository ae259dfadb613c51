//! What a diagnosis finds, one danger after the other, and what it leaves.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::time::Duration;

use leasehold::{Client, Diagnosis, Severity};
use leasehold_testkit::server::{Flavour, Server};

use crate::{SECOND, until};

on_both! {
    own_420_nothing_is_found_on_a_healthy_server
    own_421_each_danger_is_found_and_named
    own_422_a_diagnosis_leaves_no_key
    own_423_what_a_user_may_not_ask_is_not_known
    own_424_what_a_user_may_not_do_is_found
    own_425_replicas_without_a_least_number_are_found
}

pub(crate) fn healthy(flavour: Flavour) -> Server {
    let keeps = "appendonly yes\nmaxmemory-policy noeviction\nrepl-diskless-sync-delay 0";
    Server::builder(flavour).config(keeps).start()
}

pub(crate) async fn diagnosed(url: &str) -> Diagnosis {
    Client::connect(url).await.unwrap().diagnose().await.unwrap()
}

/// The codes and severities of all findings.
pub(crate) fn found(diagnosis: &Diagnosis) -> Vec<(&'static str, Severity)> {
    diagnosis.findings.iter().map(|finding| (finding.code, finding.severity)).collect()
}

pub(crate) fn fact<'a>(diagnosis: &'a Diagnosis, name: &str) -> (Option<&'a str>, Option<&'static str>) {
    let fact = diagnosis.facts.iter().find(|fact| fact.name == name);
    let fact = fact.unwrap_or_else(|| panic!("no {name}: {diagnosis:?}"));
    (fact.value.as_deref(), fact.missing)
}

async fn own_420_nothing_is_found_on_a_healthy_server(flavour: Flavour) {
    let server = healthy(flavour);
    let diagnosis = diagnosed(&server.url()).await;
    assert_eq!(found(&diagnosis), [], "{diagnosis:?}");
    assert_eq!((diagnosis.engine, diagnosis.server.as_deref()), ("redis", Some(&*server.url())));
    assert_eq!(diagnosis.worst(), None);
    for (name, value) in [
        ("eviction", "noeviction"),
        ("persistence", "append-only file"),
        ("replicas", "0"),
        ("proxy", "none seen"),
        ("TLS", "no"),
        ("token counters", "0"),
        ("tried with success", "locks, fair locks, read locks, write locks, SET NX locks, fencing tokens"),
    ] {
        assert_eq!(fact(&diagnosis, name), (Some(value), None));
    }
    assert!(fact(&diagnosis, "server").0.unwrap().starts_with(if flavour == Flavour::Redis {
        "redis "
    } else {
        "valkey "
    }));
}

async fn own_421_each_danger_is_found_and_named(flavour: Flavour) {
    let server = healthy(flavour);
    let counters =
        "for i = 1, 10000 do redis.call('set', 'redisson_lock_token:{' .. i .. '}', i) end return 1";
    for (setting, value, back, expected) in [
        ("maxmemory-policy", "volatile-lru", "noeviction", ("eviction", Severity::Warning)),
        ("appendonly", "no", "yes", ("no-persistence", Severity::Danger)),
    ] {
        assert_eq!(server.cli(&["CONFIG", "SET", setting, value]), "OK");
        let diagnosis = diagnosed(&server.url()).await;
        assert_eq!(found(&diagnosis), [expected], "{setting}: {diagnosis:?}");
        assert!(diagnosis.findings[0].advice.starts_with(&format!("{setting} {back}")), "{diagnosis:?}");
        assert_eq!(server.cli(&["CONFIG", "SET", setting, back]), "OK");
    }
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]), "OK");
    assert_eq!(found(&diagnosed(&server.url()).await), [("eviction", Severity::Danger)]);
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction"]), "OK");
    assert_eq!(server.cli(&["CONFIG", "SET", "appendonly", "no", "save", "3600 1"]), "OK");
    assert_eq!(found(&diagnosed(&server.url()).await), [("snapshots-only", Severity::Warning)]);
    assert_eq!(server.cli(&["CONFIG", "SET", "save", "", "appendonly", "yes"]), "OK");
    assert_eq!(server.cli(&["EVAL", counters, "0"]), 1);
    assert_eq!(found(&diagnosed(&server.url()).await), [("token-keys", Severity::Warning)]);
}

async fn own_422_a_diagnosis_leaves_no_key(flavour: Flavour) {
    let server = healthy(flavour);
    assert_eq!(server.cli(&["SET", "theirs", "1"]), "OK");
    let client = Client::connect(server.url()).namespace("app:").anonymous().await.unwrap();
    client.diagnose().await.unwrap();
    assert_eq!(server.cli(&["DBSIZE"]), 1);
    assert_eq!(server.cli(&["STRLEN", "theirs"]), 1);
    // Dropped at any point: what is left is released or ends by itself.
    for micros in (0..40).map(|step| step * 400) {
        let _ = tokio::time::timeout(Duration::from_micros(micros), client.diagnose()).await;
    }
    until("all that was tried is gone", || server.cli(&["DBSIZE"]) == 1).await;
}

/// A user with these rights, in the form of `ACL SETUSER`.
fn user(server: &Server, rights: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "worker", "on", ">secret", "resetchannels", "&*"], rights].concat();
    assert_eq!(server.cli(&words), "OK");
    server.url().replace("redis://", "redis://worker:secret@")
}

async fn own_423_what_a_user_may_not_ask_is_not_known(flavour: Flavour) {
    let server = healthy(flavour);
    let url = user(&server, &["~*", "+@all", "-info", "-config", "-scan", "-client|id"]);
    let diagnosis = diagnosed(&url).await;
    assert_eq!(found(&diagnosis), [], "{diagnosis:?}");
    for (name, right) in [
        ("eviction", "+info"),
        ("persistence", "+info"),
        ("replicas", "+info"),
        ("token counters", "+scan"),
        ("proxy", "+client|id"),
    ] {
        assert_eq!(fact(&diagnosis, name), (None, Some(right)));
    }
    assert!(!format!("{diagnosis:?}").contains("secret"), "{diagnosis:?}");
}

async fn own_424_what_a_user_may_not_do_is_found(flavour: Flavour) {
    let server = healthy(flavour);
    for (rights, expected) in [
        (&["~*", "+@all", "-hset", "-hincrby", "-pexpire"][..], Severity::Danger),
        (&["~*", "+@all", "-incr"][..], Severity::Warning),
        (&["resetkeys", "~other:*", "+@all"][..], Severity::Danger),
    ] {
        let url = user(&server, rights);
        let diagnosis = diagnosed(&url).await;
        assert_eq!(diagnosis.worst(), Some(expected), "{rights:?}: {diagnosis:?}");
        assert!(diagnosis.findings.iter().all(|finding| finding.code == "denied"), "{diagnosis:?}");
    }
    let url = user(&server, &["resetkeys", "~other:*", "~{other:*", "~*:{other:*", "+@all"]);
    let client = Client::connect(url).namespace("other:").await.unwrap();
    assert_eq!(found(&client.diagnose().await.unwrap()), [], "with the namespace of its names");
}

async fn own_425_replicas_without_a_least_number_are_found(flavour: Flavour) {
    let server = healthy(flavour);
    let port = server.port().to_string();
    let _replica = Server::builder(flavour).config(format!("replicaof 127.0.0.1 {port}")).start();
    let client = Client::connect(server.url()).watchdog(SECOND * 60).await.unwrap();
    // A replica is listed before it is online.
    assert_eq!(server.cli(&["WAIT", "1", "20000"]), 1);
    assert_eq!(found(&client.diagnose().await.unwrap()), [("no-min-replicas", Severity::Danger)]);
    assert_eq!(server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    let diagnosis = client.diagnose().await.unwrap();
    assert_eq!((found(&diagnosis), fact(&diagnosis, "replicas")), (vec![], (Some("1"), None)));
}
