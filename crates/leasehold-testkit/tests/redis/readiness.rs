//! What a client says about its connection.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::time::Duration;

use leasehold::{Client, PingError, ServerError};
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use leasehold_testkit::waits::on_a_thread;
use tokio::time::{Instant, sleep};

use crate::{SECOND, connect, soon, until};

on_both! {
    own_318_ping_and_status_follow_an_outage
    a_ping_of_a_silent_server_fails_after_the_response_time_out
    a_ping_that_the_server_refuses_fails_with_its_reason
}

async fn own_318_ping_and_status_follow_an_outage(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    proxy.refuse();
    let client = Client::connect(proxy.url()).lazy().unwrap();
    let url = proxy.url();
    for is_first in [true, false] {
        // Before the first connection, and in a later outage.
        until("it has tried", || client.status().last_error.is_some()).await;
        let status = client.status();
        assert_eq!((status.connected, status.server.as_deref()), (false, Some(&*url)));
        assert!(status.last_error.unwrap().starts_with("connection refused"));
        let begun = Stopwatch::start();
        let error = client.ping().await.unwrap_err();
        assert!(error.is_unavailable() && error.server() == Some(&*url), "{error:?}");
        let state = if is_first { "not connected yet" } else { "reconnecting" };
        let text = error.to_string();
        assert!(text.starts_with(&format!("the ping of {url} failed: not connected")), "{text}");
        assert!(text.contains(&format!("{state}: connection refused")), "{text}");
        assert!(begun.elapsed() < SECOND / 2, "it does not wait: {:?}", begun.elapsed());

        let before = client.status().lasting;
        sleep(SECOND / 50).await;
        assert!(client.status().lasting > before);
        let healed = Instant::now();
        proxy.heal();
        until("it is connected", || client.status().connected).await;
        let status = client.status();
        assert_eq!((status.server.as_deref(), status.last_error), (Some(&*url), None));
        let before = healed.elapsed();
        assert!(
            status.lasting <= before,
            "it counts from the connection: {:?} of {before:?}",
            status.lasting
        );
        let begun = Instant::now();
        let took = client.ping().await.unwrap();
        assert!(took > Duration::ZERO && took <= begun.elapsed(), "{took:?}");
        let blocked = client.clone();
        soon("the ping", on_a_thread(move || blocked.ping().block())).await.unwrap();
        proxy.refuse();
    }
}

async fn a_ping_of_a_silent_server_fails_after_the_response_time_out(flavour: Flavour) {
    let server = Server::start(flavour);
    let limit = SECOND / 2;
    let client = Client::connect(server.url()).response_timeout(limit).await.unwrap();
    client.ping().await.unwrap();
    server.pause();
    let begun = Instant::now();
    let error = soon("the ping", client.ping()).await.unwrap_err();
    assert!(error.is_unavailable() && begun.elapsed() >= limit, "{error}: {:?}", begun.elapsed());
    assert!(error.to_string().contains("no reply within 500ms"), "{error}");
    server.resume();
    until("it is connected", || client.status().connected).await;
    soon("the ping", async { while client.ping().await.is_err() {} }).await;
}

async fn a_ping_that_the_server_refuses_fails_with_its_reason(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    assert_eq!(server.cli(&["ACL", "SETUSER", "default", "-ping"]), "OK");
    let error = client.ping().await.unwrap_err();
    let PingError::Server { cause: ServerError::Denied(text), .. } = &error else { panic!("{error:?}") };
    assert!(text.contains("ping"), "{text}");
    assert!(client.status().connected, "the connection is there");
}

#[tokio::test]
async fn a_ping_takes_as_long_as_the_reply() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    proxy.delay(Which::Command, SECOND / 5);
    let begun = Instant::now();
    let took = client.ping().await.unwrap();
    assert!((SECOND / 5..=begun.elapsed()).contains(&took), "{took:?}");
}
