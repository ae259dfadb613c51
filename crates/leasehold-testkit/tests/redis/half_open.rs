//! Connections whose other end is gone without a close.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{SECOND, alone, renewed, until};

/// The lease is renewed on a new connection, although only renewals use the old one.
async fn a_hold_survives_one_half_open_connection(lease: Duration, response_timeout: Duration) {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client =
        Client::connect(proxy.url()).watchdog(lease).response_timeout(response_timeout).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let before = proxy.counts().connections;
    proxy.half_open(Which::All);
    until("another connection", || proxy.counts().connections > before || !guard.is_held()).await;
    assert!(guard.is_held(), "lost after {} new connections", proxy.counts().connections - before);
    renewed(&server, "n").await;
    assert!(guard.is_held());
    assert_eq!(server.cli(&["HGET", "n", &guard.owner().to_string()]), "1");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_shorter_than_the_response_time_out_survives_a_half_open_connection() {
    a_hold_survives_one_half_open_connection(SECOND * 6, SECOND * 10).await;
}

#[tokio::test]
async fn a_lease_slightly_longer_than_the_response_time_out_survives_a_half_open_connection() {
    a_hold_survives_one_half_open_connection(SECOND * 3, SECOND * 2).await;
}

#[tokio::test]
async fn a_lease_three_times_as_long_as_the_response_time_out_survives_a_half_open_connection() {
    a_hold_survives_one_half_open_connection(SECOND * 6, SECOND * 2).await;
}

/// After a caller has given up, its request still counts for the health of the connection.
#[tokio::test]
async fn an_abandoned_request_still_ends_a_silent_connection() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let limit = SECOND / 5;
    let client = Client::connect(proxy.url()).response_timeout(limit).await.unwrap();
    let before = proxy.counts().connections;
    proxy.half_open(Which::All);
    let lock = client.lock("n");
    // A query leaves no undo for which the client would wait.
    assert!(tokio::time::timeout(limit / 10, lock.is_locked().into_future()).await.is_err());
    let begun = Instant::now();
    until("another connection", || proxy.counts().connections > before).await;
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    until("it is in use", || proxy.open(Which::Command) == 2).await;
    crate::acquired(&lock).await.release().await.unwrap();
}

/// The server still has the keys of all of them, so a pause would only let leases expire.
#[tokio::test]
async fn the_first_connection_after_a_disconnect_is_opened_at_once() {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).await.unwrap();
    let lock = client.lock("n");
    let mut pauses = Vec::new();
    for _ in 0..10 {
        // Long enough that the connection was of use.
        sleep(Duration::from_millis(150)).await;
        lock.acquire().await.unwrap().release().await.unwrap();
        let before = proxy.counts().connections;
        proxy.cut(Which::All);
        let begun = Instant::now();
        while proxy.counts().connections == before {
            assert!(begun.elapsed() < SECOND * 10, "no other connection");
        }
        pauses.push(begun.elapsed());
        crate::acquired(&lock).await.release().await.unwrap();
    }
    // A pause would be 10 ms at least, each time.
    assert!(pauses.iter().any(|pause| *pause < Duration::from_millis(10)), "{pauses:?}");
}

/// A server that accepts connections and closes them is not flooded with new ones.
#[tokio::test]
async fn connections_that_are_closed_at_once_are_reopened_after_growing_pauses() {
    let mut server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).await.unwrap();
    // The proxy accepts connections and closes them, because there is no server behind it.
    server.kill();
    proxy.cut(Which::All);
    let before = proxy.counts().connections;
    sleep(SECOND).await;
    let tried = proxy.counts().connections - before;
    assert!((2..=12).contains(&tried), "{tried} connections in a second");
    server.restart();
    crate::acquired(&client.lock("n")).await.release().await.unwrap();
}
