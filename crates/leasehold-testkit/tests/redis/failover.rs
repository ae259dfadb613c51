//! An address that leads to another server after a failover.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::time::Duration;

use leasehold::{Client, Loss};
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{
    SECOND, acquired, channels, connect, granted, number, renewed, soon, subscribed, until, waiting,
};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const QUEUE: &str = "redisson_lock_queue:{n}";

/// A primary and its replica, which is in sync.
fn pair(flavour: Flavour) -> (Server, Server) {
    let primary = Server::start(flavour);
    // Without a pause before the first copy.
    primary.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let replica = Server::builder(flavour).config(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    (primary, replica)
}

/// Waits until the replica has all data of the primary.
async fn in_step(primary: &Server, replica: &Server) {
    let offset = |server: &Server, field: &str| {
        let info = server.cli(&["INFO", "replication"]);
        let text = info.as_str().expect("a text").to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(field).map(str::to_owned));
        line.map(|value| value.trim_start_matches(':').to_owned())
    };
    until("the replica has everything", || {
        offset(replica, "master_link_status").as_deref() == Some("up")
            && offset(replica, "slave_repl_offset") == offset(primary, "master_repl_offset")
    })
    .await;
}

/// Promotes the replica to primary, and demotes the primary.
fn swap(old: &Server, new: &Server) {
    assert_eq!(new.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(old.cli(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]), "OK");
}

async fn a_client_continues_at_the_new_primary(flavour: Flavour) {
    let (old, new) = pair(flavour);
    let proxy = Proxy::start(old.port());
    let client = Client::connect(proxy.url()).watchdog(SECOND * 10).await.unwrap();
    let other = connect(proxy.url()).await;
    let held = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&old, &other.lock("n"), CHANNEL).await;
    in_step(&old, &new).await;
    proxy.lead_to(new.port());
    swap(&old, &new);
    let begun = Instant::now();
    let next = acquired(&client.lock("m")).await;
    assert!(begun.elapsed() < SECOND * 5, "{:?}", begun.elapsed());
    next.release().await.unwrap();
    assert!(held.is_held() && !waiter.is_finished());
    assert_eq!(new.cli(&["HGET", "n", &held.owner().to_string()]), "1");

    // Both connections of the waiter's client lead to the new primary as soon as one of its requests is refused.
    let _ = other.lock("m").try_acquire().await;
    subscribed(&new, CHANNEL, 1).await;
    held.release().await.unwrap();
    let guard = granted(waiter).await;
    assert_eq!(new.cli(&["HGET", "n", &guard.owner().to_string()]), "1");
    guard.release().await.unwrap();
}

async fn a_renewal_alone_reconnects_the_client_to_the_new_primary(flavour: Flavour) {
    let (old, new) = pair(flavour);
    let proxy = Proxy::start(old.port());
    let client = Client::connect(proxy.url()).watchdog(SECOND * 6).await.unwrap();
    let held = client.lock("n").acquire().await.unwrap();
    in_step(&old, &new).await;
    proxy.lead_to(new.port());
    swap(&old, &new);
    renewed(&new, "n").await;
    assert!(held.is_held(), "it was renewed at the new primary");
    assert_eq!(new.cli(&["HGET", "n", &held.owner().to_string()]), "1");
    held.release().await.unwrap();
}

/// The old primary keeps its connections, or closes them: both happen.
async fn waiters_continue_within_a_second_after_the_roles_were_swapped(flavour: Flavour) {
    let _alone = crate::alone().await;
    for closes in [false, true] {
        let (old, new) = pair(flavour);
        let proxy = Proxy::start(old.port());
        let [one, other] = [connect(proxy.url()).await, connect(proxy.url()).await];
        let held = one.lock("n").acquire().await.unwrap();
        let waiter = waiting(&old, &other.lock("n"), CHANNEL).await;
        in_step(&old, &new).await;
        proxy.lead_to(new.port());
        swap(&old, &new);
        if closes {
            proxy.cut(Which::All);
        }
        assert_eq!(new.cli(&["SET", "probe", "1"]), "OK");
        let grants = Stopwatch::start();
        // It finds the old one to be a replica, or has no connection, and is made at the new one in the background.
        let _ = soon("the release", held.release().into_future()).await;
        let guard = granted(waiter).await;
        let waited = grants.elapsed();
        assert!(waited < SECOND, "closes: {closes}, {waited:?}");
        assert_eq!(new.cli(&["HGET", "n", &guard.owner().to_string()]), "1");
    }
}

async fn a_replica_at_connect_is_tried_again_until_it_is_the_primary(flavour: Flavour) {
    let (primary, replica) = pair(flavour);
    in_step(&primary, &replica).await;
    let (begun, healthy) = (Instant::now(), Stopwatch::start());
    let error = Client::connect(replica.url()).connect_timeout(SECOND).await.unwrap_err().to_string();
    assert!(error.contains("it is a replica, which accepts no locks"), "{error}");
    assert!(begun.elapsed() >= SECOND / 2, "{:?}", begun.elapsed());
    assert!(healthy.elapsed() < SECOND * 2, "{:?}", healthy.elapsed());

    let proxy = Proxy::start(replica.port());
    let connecting = tokio::spawn(Client::connect(proxy.url()).connect_timeout(SECOND * 10).into_future());
    until("two attempts", || proxy.counts().connections >= 2).await;
    swap(&primary, &replica);
    let client = soon("a connection", connecting).await.unwrap().unwrap();
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}

/// A waiter for a fair lock sends nothing else meanwhile.
async fn a_queue_heartbeat_alone_reconnects_the_client_to_the_new_primary(flavour: Flavour) {
    let (old, new) = pair(flavour);
    let proxy = Proxy::start(old.port());
    let (client, other) = (connect(old.url()).await, connect(proxy.url()).await);
    let lease = SECOND * 600;
    let _held = client.fair_lock("n").acquire().lease(lease).await.unwrap();
    let waiter = tokio::spawn(other.fair_lock("n").acquire().into_future());
    until("it is queued", || number(&old.cli(&["LLEN", QUEUE])) == 1).await;
    in_step(&old, &new).await;
    proxy.lead_to(new.port());
    swap(&old, &new);
    until("the waiter is subscribed at the new primary", || channels(&new).len() == 1).await;
    assert!(new.cli(&["DEL", "n"]) == 1 && !waiter.is_finished());
    granted(waiter).await.release().await.unwrap();
}

async fn connections_to_a_replica_are_attempted_after_pauses(flavour: Flavour) {
    let (old, new) = pair(flavour);
    let proxy = Proxy::start(old.port());
    let client = Client::connect(proxy.url()).watchdog(SECOND * 30).await.unwrap();
    in_step(&old, &new).await;
    swap(&old, &new);
    let lock = client.lock("n");
    assert!(lock.try_acquire().await.unwrap_err().is_unavailable());
    let before = proxy.counts().connections;
    let begun = Instant::now();
    while begun.elapsed() < SECOND {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        sleep(Duration::from_millis(5)).await;
    }
    let error = lock.try_acquire().await.unwrap_err().to_string();
    assert!(error.contains(": not connected for "), "{error}");
    assert!(error.contains(", reconnecting: it is a replica"), "{error}");
    let tried = proxy.counts().connections - before;
    assert!((2..=12).contains(&tried), "{tried} connections in a second");
    proxy.lead_to(new.port());
    acquired(&lock).await.release().await.unwrap();
    assert_eq!(proxy.open(Which::Command), 1, "the connection to the replica is closed");
}

on_both! {
    waiters_continue_within_a_second_after_the_roles_were_swapped
    a_replica_at_connect_is_tried_again_until_it_is_the_primary
    a_client_continues_at_the_new_primary
    a_renewal_alone_reconnects_the_client_to_the_new_primary
    a_queue_heartbeat_alone_reconnects_the_client_to_the_new_primary
    connections_to_a_replica_are_attempted_after_pauses
}

#[tokio::test]
async fn a_hold_unknown_to_the_new_primary_is_reported_as_gone() {
    let (old, new) = (Server::start(Flavour::Redis), Server::start(Flavour::Redis));
    let proxy = Proxy::start(old.port());
    let client = Client::connect(proxy.url()).watchdog(SECOND * 6).await.unwrap();
    let held = client.lock("n").acquire().await.unwrap();
    proxy.lead_to(new.port());
    assert_eq!(old.cli(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]), "OK");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone, "it is not the end of the lease");
}
