//! Clients that are made before they are connected.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::{AcquireError, ChangeError, Client, ConnectError, QueryError, ServerError};
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use leasehold_testkit::waits::Wait;
use tokio::time::sleep;

use crate::{
    LONG, SECOND, acquired, connect, free_as_redisson, granted, keys, soon, take_as_redisson, until,
};

on_both! {
    own_316_a_lazy_client_waits_for_its_server
    a_try_before_the_first_connection_says_why_there_is_none
    own_317_a_lazy_client_with_a_wrong_password_is_refused_and_goes_on_trying
    a_waiter_from_before_the_first_connection_misses_no_release
}

#[test]
fn a_lazy_client_needs_no_runtime_and_no_server() {
    for flavour in Flavour::ALL {
        let mut server = Server::start(flavour);
        server.kill();
        let begun = Stopwatch::start();
        let client = Client::connect(server.url()).lazy().unwrap();
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        let waiter = std::thread::spawn({
            let acquire = client.lock("n").acquire().wait(SECOND * 15);
            move || acquire.block()
        });
        server.restart();
        let guard = waiter.join().unwrap().unwrap();
        assert_eq!(keys(&server), ["n"], "{flavour:?}");
        guard.release().block().unwrap();
    }
}

#[tokio::test]
async fn a_lazy_client_with_a_bad_url_or_option_is_refused() {
    for url in ["nonsense", "redis://host:port", "redis://127.0.0.1/x", "memcached://127.0.0.1"] {
        assert!(matches!(Client::connect(url).lazy(), Err(ConnectError::Url(_))), "{url}");
    }
    let short = Client::connect("redis://127.0.0.1:1").watchdog(Duration::ZERO).lazy();
    assert!(matches!(short, Err(ConnectError::Invalid(_))), "{short:?}");
}

#[tokio::test]
async fn a_lazy_client_dropped_before_its_first_connection_stops_trying() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    proxy.refuse();
    let client = Client::connect(proxy.url()).lazy().unwrap();
    until("it has tried", || client.status().last_error.is_some()).await;
    drop(client);
    proxy.heal();
    sleep(SECOND).await;
    assert_eq!(proxy.counts().connections, 0);
}

async fn own_316_a_lazy_client_waits_for_its_server(flavour: Flavour) {
    let mut server = Server::start(flavour);
    server.kill();
    let client = Client::connect(server.url()).lazy().unwrap();
    let waits: Vec<_> = Wait::ALL
        .iter()
        .filter(|of| !matches!(of, Wait::Semaphore | Wait::Leased))
        .map(|of| (of, tokio::spawn(of.begin(&client, Some(SECOND * 14), false))))
        .collect();
    // A change of a count waits as long as an outage may last.
    let counted = tokio::spawn(client.semaphore("s").try_set_permits(1).into_future());
    sleep(SECOND / 2).await;
    for (of, waiter) in &waits {
        assert!(!waiter.is_finished(), "{of:?}");
    }
    assert!(!counted.is_finished() && !client.status().connected);
    server.restart();
    for (of, waiter) in waits {
        let done = soon("the wait", waiter).await.unwrap();
        done.unwrap_or_else(|error| panic!("{of:?}: {error}"));
    }
    assert_eq!(soon("the count", counted).await.unwrap(), Ok(true));
    assert!(client.status().connected);
}

async fn a_try_before_the_first_connection_says_why_there_is_none(flavour: Flavour) {
    let mut server = Server::start(flavour);
    server.kill();
    let client = Client::connect(server.url()).lazy().unwrap();
    let is_early = |error: &ServerError| matches!(error, ServerError::Unavailable(text) if text.starts_with("not connected yet"));
    let error = client.lock("n").try_acquire().await.unwrap_err();
    assert!(matches!(&error, AcquireError::Server { cause, .. } if is_early(cause)), "{error:?}");
    until("it has tried", || client.status().last_error.is_some()).await;
    let begun = Stopwatch::start();
    let error = client.lock("n").try_acquire().await.unwrap_err();
    assert!(matches!(&error, AcquireError::Server { cause, .. } if is_early(cause)), "{error:?}");
    assert!(error.to_string().contains("not connected yet: connection refused"), "{error}");
    let error = client.lock("n").is_locked().await.unwrap_err();
    assert!(matches!(&error, QueryError::Server { cause, .. } if is_early(cause)), "{error:?}");
    assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());

    // An outage after the first connection is one like any other.
    server.restart();
    soon("the lock", client.lock("n").acquire().into_future()).await.unwrap().release().await.unwrap();
    server.kill();
    until("the client has noticed the outage", || client.status().last_error.is_some()).await;
    let error = client.lock("n").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("reconnecting: connection refused"), "{error}");
}

async fn own_317_a_lazy_client_with_a_wrong_password_is_refused_and_goes_on_trying(flavour: Flavour) {
    let server = Server::builder(flavour).password("right").start();
    let proxy = Proxy::start(server.port());
    proxy.refuse();
    let url = proxy.url().replace("redis://", "redis://:wrong@");
    let client = Client::connect(url).lazy().unwrap();
    let change = || client.semaphore("s").try_set_permits(1).into_future();
    let early = tokio::spawn(change());
    until("it has tried", || client.status().last_error.is_some()).await;
    sleep(SECOND / 10).await;
    assert!(!early.is_finished(), "the reason may pass");
    proxy.heal();
    let is_told = |error: &AcquireError| {
        let text = error.to_string();
        matches!(error, AcquireError::Server { cause: ServerError::Denied(_), .. })
            && text.contains("not connected yet: the user or the password is wrong")
            && !text.contains(":wrong")
    };
    for _ in 0..2 {
        let begun = Stopwatch::start();
        let waiting = client.lock("n").acquire().wait(SECOND * 60).into_future();
        let error = soon("the wait ends", waiting).await.unwrap_err();
        assert!(is_told(&error), "{error}");
        assert!(begun.elapsed() < SECOND * 5, "{:?}", begun.elapsed());
    }
    for change in [early, tokio::spawn(change())] {
        let change = soon("the change ends", change).await.unwrap();
        let is_refused = matches!(&change, Err(ChangeError::Server { cause: ServerError::Denied(_), .. }));
        assert!(is_refused, "{change:?}");
    }
    assert!(client.status().last_error.unwrap().contains("WRONGPASS"));
    assert_eq!(server.cli(&["CONFIG", "SET", "requirepass", "wrong"]), "OK");
    until("it is connected", || client.status().connected).await;
    client.lock("n").acquire().await.unwrap().release().await.unwrap();
}

/// The lock is released when the waiter knows that it is busy, and is not subscribed yet.
async fn a_waiter_from_before_the_first_connection_misses_no_release(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    // The server has the script from then on, so the first request is carried out.
    acquired(&connect(server.url()).await.lock("other")).await.release().await.unwrap();
    take_as_redisson(&server, "n", SECOND * 60);
    proxy.refuse();
    // Subscriptions do not arrive, and are waited for.
    proxy.blackhole(Which::PubSub);
    let client = Client::connect(proxy.url()).response_timeout(LONG).lazy().unwrap();
    let waiter = tokio::spawn(client.lock("n").acquire().into_future());
    until("it has tried", || client.status().last_error.is_some()).await;
    let mut monitor = server.monitor();
    proxy.accept();
    let mut sent = Vec::new();
    until("the waiter has found the lock busy", || {
        sent.extend(monitor.take_sent());
        sent.iter().any(|line| line.contains("\"EVALSHA\"") && line.contains("\"n\""))
    })
    .await;
    sleep(SECOND / 10).await;
    free_as_redisson(&server, "n", "redisson_lock__channel:{n}");
    sleep(SECOND / 10).await;
    assert!(!waiter.is_finished());
    proxy.heal();
    granted(waiter).await.release().await.unwrap();
}
