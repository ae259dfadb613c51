//! Refusals mean the same on every server, though Redis before 7 puts the code of an error inside a script behind another text.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectError, ServerError};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::{Flavour, Server};

use crate::{acquired, connect, keys, soon, until};

on_both! {
    a_server_that_accepts_no_writes_for_now_is_an_outage
    a_replica_is_an_outage_and_its_connection_is_replaced
    a_denial_is_final_and_its_connection_stays
    a_missing_password_is_a_denial
}

/// All but the last acquire by a script.
const KINDS: [&str; 8] = ["lock", "fenced", "fair", "read", "write", "group", "multi", "setnx"];

/// Tries once to acquire a lock of this kind, and drops it.
async fn acquire(client: &Client, kind: &str) -> Result<(), AcquireError> {
    soon(kind, acquiring(client, kind)).await
}

async fn acquiring(client: &Client, kind: &str) -> Result<(), AcquireError> {
    match kind {
        "lock" => client.lock("n").acquire().wait(Duration::ZERO).await.map(drop),
        "fenced" => client.fenced_lock("n").acquire().wait(Duration::ZERO).await.map(drop),
        "fair" => client.fair_lock("n").acquire().wait(Duration::ZERO).await.map(drop),
        "read" => client.rw_lock("n").read().acquire().wait(Duration::ZERO).await.map(drop),
        "write" => client.rw_lock("n").write().acquire().wait(Duration::ZERO).await.map(drop),
        "group" => client.group_lock("n", ["a", "b"]).acquire().wait(Duration::ZERO).await.map(drop),
        "multi" => client.multi_lock(["n", "m"]).acquire().wait(Duration::ZERO).await.map(drop),
        "setnx" => client.setnx_lock("n").acquire().wait(Duration::ZERO).await.map(drop),
        other => panic!("no such kind of lock: {other}"),
    }
}

/// Acquires a lock and releases it.
async fn works(client: &Client) {
    acquired(&client.lock("n")).await.release().await.unwrap();
}

/// Checks that an acquire failed with an outage whose text is ours, and ends with this code.
fn is_outage(outcome: Result<(), AcquireError>, code: &str, context: &str) {
    match outcome {
        Err(AcquireError::Server { cause: ServerError::Unavailable(text), .. }) => {
            assert!(text.ends_with(&format!(" ({code})")) && !text.contains("script"), "{context}: {text}");
        }
        other => panic!("{context}, {code}: {other:?}"),
    }
}

fn set(server: &Server, command: &[&str]) {
    assert_eq!(server.cli(command), "OK", "{command:?}");
}

/// Makes a server fail to save its data, as it would on a full disk.
async fn fail_to_save(server: &Server) {
    fs::create_dir(server.directory().join("dump.rdb")).unwrap();
    set(server, &["CONFIG", "SET", "save", "900 1"]);
    server.cli(&["BGSAVE"]);
    let status = || server.cli(&["INFO", "persistence"]).as_str().unwrap().to_owned();
    until("the save fails", || status().contains("rdb_last_bgsave_status:err")).await;
}

async fn a_server_that_accepts_no_writes_for_now_is_an_outage(flavour: Flavour) {
    let server = Server::builder(flavour).config("maxmemory-policy noeviction").start();
    fail_to_save(&server).await;
    set(&server, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    works(&client).await;
    let connections = proxy.counts().connections;
    for (code, setting, refuses, accepts) in [
        ("OOM", "maxmemory", "1", "0"),
        ("NOREPLICAS", "min-replicas-to-write", "1", "0"),
        ("MISCONF", "stop-writes-on-bgsave-error", "yes", "no"),
    ] {
        set(&server, &["CONFIG", "SET", setting, refuses]);
        for kind in KINDS {
            is_outage(acquire(&client, kind).await, code, kind);
        }
        set(&server, &["CONFIG", "SET", setting, accepts]);
        works(&client).await;
    }
    assert_eq!(proxy.counts().connections, connections, "the connection stays");
}

async fn a_replica_is_an_outage_and_its_connection_is_replaced(flavour: Flavour) {
    let (primary, server) = (Server::start(flavour), Server::start(flavour));
    let ports = [primary.port(), 1].map(|port| port.to_string());
    for (primary, stale, codes) in [
        (&ports[0], "yes", ["READONLY"; 2]),
        // Redis and Valkey execute no script there; they check a write for the first of the two errors.
        (&ports[1], "no", ["MASTERDOWN", "READONLY"]),
    ] {
        for kind in KINDS {
            let proxy = Proxy::start(server.port());
            let client = connect(proxy.url()).await;
            works(&client).await;
            let connections = proxy.counts().connections;
            set(&server, &["CONFIG", "SET", "replica-serve-stale-data", stale]);
            set(&server, &["REPLICAOF", &Ipv4Addr::LOCALHOST.to_string(), primary]);
            is_outage(acquire(&client, kind).await, codes[usize::from(kind == "setnx")], kind);
            until("another connection", || proxy.counts().connections > connections).await;
            set(&server, &["REPLICAOF", "NO", "ONE"]);
            works(&client).await;
        }
    }
}

async fn a_denial_is_final_and_its_connection_stays(flavour: Flavour) {
    let server = Server::start(flavour);
    for (user, rule, kinds) in [
        ("ann", &["~*", "-evalsha", "-set"][..], &KINDS[..]),
        ("ben", &["~other:*"], &KINDS),
        // Inside the script: all but the last two write by one of these.
        ("cal", &["~*", "-hincrby", "-hset", "-incr"], &KINDS[..6]),
    ] {
        let rule = [&["ACL", "SETUSER", user, "on", ">secret", "&*", "+@all"], rule].concat();
        set(&server, &rule);
        let proxy = Proxy::start(server.port());
        let client = connect(proxy.url().replace("redis://", &format!("redis://{user}:secret@"))).await;
        let connections = proxy.counts().connections;
        for kind in kinds {
            let error = acquire(&client, kind).await.unwrap_err();
            let denied = matches!(error, AcquireError::Server { cause: ServerError::Denied(_), .. });
            assert!(denied && !error.is_transient(), "{user}, {kind}: {error:?}");
        }
        assert_eq!((proxy.counts().connections, keys(&server)), (connections, vec![]), "{user}");
    }
}

async fn a_missing_password_is_a_denial(flavour: Flavour) {
    let server = Server::builder(flavour).password("sesame").start();
    let error = Client::connect(server.url().replace(":sesame@", "")).await.unwrap_err();
    let ConnectError::Server { cause: ServerError::Denied(text), .. } = &error else { panic!("{error:?}") };
    assert!(text.ends_with("(NOAUTH)"), "{text}");
    connect(server.url()).await;
}
