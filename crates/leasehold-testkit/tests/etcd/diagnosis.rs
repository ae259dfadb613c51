//! What a diagnosis finds, one danger after the other, and what it leaves.

use std::time::Duration;

use leasehold::{Client, Diagnosis, Severity};
use leasehold_testkit::server::Etcd;
use tokio::time::timeout;

use crate::users::{url, with_users};
use crate::{calls, client, until};

const SECOND: Duration = Duration::from_secs(1);

const SINGLE: (&str, Severity) = ("single-member", Severity::Warning);

async fn diagnosed(url: &str, watchdog: Duration) -> Diagnosis {
    let client = Client::connect(url).watchdog(watchdog).await.expect("the server takes clients");
    client.diagnose().await.expect("the server replies")
}

/// The codes and severities of all findings but for the hole that old servers have.
fn found(diagnosis: &Diagnosis) -> Vec<(&'static str, Severity)> {
    let all = diagnosis.findings.iter().map(|finding| (finding.code, finding.severity));
    all.filter(|(code, _)| *code != HOLE).collect()
}

const HOLE: &str = "lease-revocation";

/// The severity of that hole, if the server has it: that of Debian 12.
fn hole(diagnosis: &Diagnosis) -> (bool, Option<Severity>) {
    let found = diagnosis.findings.iter().find(|finding| finding.code == HOLE);
    (fact(diagnosis, "server").starts_with("etcd 3.4.2"), found.map(|finding| finding.severity))
}

fn fact<'a>(diagnosis: &'a Diagnosis, name: &str) -> &'a str {
    let fact = diagnosis.facts.iter().find(|fact| fact.name == name);
    fact.and_then(|fact| fact.value.as_deref()).unwrap_or_else(|| panic!("no {name}: {diagnosis:?}"))
}

#[tokio::test]
async fn own_618_of_one_healthy_member_that_is_found_which_is_true_of_it() {
    let server = Etcd::start_with("");
    let diagnosis = client(&server).await.diagnose().await.unwrap();
    assert_eq!(found(&diagnosis), [SINGLE], "{diagnosis:?}");
    assert_eq!((diagnosis.engine, diagnosis.server.as_deref()), ("etcd", Some(&*server.url())));
    for (name, value) in [
        ("TLS", "no"),
        ("members", "1"),
        ("shortest lease", "1s"),
        ("tried with success", "locks, fair locks, read locks, write locks"),
    ] {
        assert_eq!(fact(&diagnosis, name), value);
    }
    let (is_old, severity) = hole(&diagnosis);
    assert_eq!(severity, is_old.then_some(Severity::Warning), "{diagnosis:?}");
    assert!(fact(&diagnosis, "round trips").starts_with("100: p50 "), "{diagnosis:?}");
}

#[tokio::test]
async fn own_619_a_member_of_three_that_has_stopped_is_found() {
    let mut members = Etcd::cluster::<3>();
    members.sort_by_key(|member| !member.is_leader());
    let [leader, other, down] = &members;
    let url = format!("{},127.0.0.1:{}", leader.url(), other.port());
    let client = Client::connect(url).response_timeout(2 * SECOND).await.unwrap();
    let healthy = client.diagnose().await.unwrap();
    assert_eq!(found(&healthy), [], "{healthy:?}");
    let (is_old, severity) = hole(&healthy);
    assert_eq!(severity, is_old.then_some(Severity::Danger), "{healthy:?}");
    assert_eq!(fact(&healthy, "members"), "3");
    down.pause();
    let diagnosis = client.diagnose().await.unwrap();
    down.resume();
    assert_eq!(found(&diagnosis), [("member-down", Severity::Warning)], "{diagnosis:?}");
    assert_eq!(fact(&diagnosis, "members"), "3, 1 of them without reply");
    let meaning = &diagnosis.findings.last().unwrap().meaning;
    assert!(meaning.starts_with("the member m") && meaning.ends_with("goes on without 0 more"), "{meaning}");
}

/// All keys with their values and revisions, and all leases.
fn all(server: &Etcd) -> (String, String) {
    (
        server.ctl(&["get", "", "--prefix", "-w", "json"]).replace(|c: char| !c.is_ascii_graphic(), ""),
        server.ctl(&["lease", "list"]),
    )
}

#[tokio::test]
async fn own_620_a_diagnosis_leaves_no_key_and_no_lease() {
    let server = Etcd::start_with("");
    let _ = server.ctl(&["put", "theirs", "1"]);
    let lock = server.lock("lock");
    // The header has the revision of the store, which goes on.
    let state = || {
        let (keys, leases) = all(&server);
        (keys.split_once("\"kvs\"").map(|(_, keys)| keys.to_owned()), leases)
    };
    let before = state();
    let client = client(&server).await;
    let grants = || ["LeaseGrant", "LeaseRevoke"].map(|method| calls(&server, method));
    let [granted, revoked] = grants();
    client.diagnose().await.unwrap();
    // One lease is of its own, and the others are of locks that it tries.
    let are_revoked = || {
        let [grants, revokes] = grants();
        grants > granted && grants - granted == revokes - revoked
    };
    until("it does not wait for the end of its leases", are_revoked).await;
    drop(client);
    until("it has left nothing", || state() == before).await;
    // Dropped at any point: what is left is released or ends by itself.
    let client = Client::connect(server.url()).anonymous().await.unwrap();
    for millis in (0..20).map(|step| step * 3) {
        let _ = timeout(Duration::from_millis(millis), client.diagnose()).await;
    }
    drop(client);
    until("all that was tried is gone", || state() == before).await;
    lock.release();
}

#[tokio::test]
async fn own_621_a_full_database_is_found() {
    let server = Etcd::start_with("quota-backend-bytes: 2000000");
    let client = client(&server).await;
    assert_eq!(found(&client.diagnose().await.unwrap()), [SINGLE]);
    let value = "x".repeat(100_000);
    let mut puts = 0;
    while server.etcdctl(&["put", &format!("other/{puts}"), &value]).output().unwrap().status.success() {
        puts += 1;
        assert!(puts < 100, "the quota is 2 MB");
    }
    let diagnosis = client.diagnose().await.unwrap();
    assert_eq!(found(&diagnosis), [("alarm-nospace", Severity::Danger), SINGLE], "{diagnosis:?}");
    let refused = Client::connect(server.url()).await.unwrap_err().to_string();
    assert!(refused.contains("database space exceeded"), "{refused}");
}

#[tokio::test]
async fn own_622_an_election_that_takes_as_long_as_the_lease_is_found() {
    let server = Etcd::start_with("heartbeat-interval: 100\nelection-timeout: 2000");
    let url = server.url();
    for (watchdog, expected) in [(2, true), (5, true), (6, false)] {
        let diagnosis = diagnosed(&url, watchdog * SECOND).await;
        let warned = [SINGLE, ("election-timeout", Severity::Warning)];
        assert_eq!(found(&diagnosis), warned[..=usize::from(expected)], "{diagnosis:?}");
        assert_eq!(fact(&diagnosis, "shortest lease"), "3s");
        if expected {
            assert!(
                diagnosis.findings.last().unwrap().advice.starts_with("give a watchdog of 6s or more"),
                "{diagnosis:?}"
            );
        }
    }
}

#[tokio::test]
async fn own_623_what_a_user_may_not_do_is_found() {
    let server = with_users();
    let login = url(&server, "app:s3cret@");
    let denied = diagnosed(&login, 30 * SECOND).await;
    let findings = found(&denied);
    let [lock, others @ ..] = findings.as_slice() else { panic!("{denied:?}") };
    assert_eq!(*lock, ("denied", Severity::Danger));
    let kinds = [("denied", Severity::Warning); 3];
    assert_eq!(others, [SINGLE].into_iter().chain(kinds).collect::<Vec<_>>(), "{denied:?}");
    assert!(denied.findings[0].advice.contains("_leasehold/"), "{denied:?}");
    assert!(!format!("{denied:?}").contains("s3cret"), "{denied:?}");

    let client = Client::connect(login).namespace("app/").await.unwrap();
    assert_eq!(found(&client.diagnose().await.unwrap()), [SINGLE], "with the namespace of its names");

    // An address that is not one of this machine only, though it leads there.
    let far = url(&server, "app:s3cret@").replace("127.0.0.1", "0.0.0.0");
    let diagnosis = Client::connect(far).namespace("app/").await.unwrap().diagnose().await.unwrap();
    assert_eq!(found(&diagnosis), [("password-in-clear", Severity::Danger), SINGLE], "{diagnosis:?}");
    assert!(!format!("{diagnosis:?}").contains("s3cret"), "{diagnosis:?}");
}
