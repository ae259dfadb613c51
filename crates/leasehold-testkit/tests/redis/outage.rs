//! Servers that stop, die, lose their data and stop replying.

use std::thread;
use std::time::Duration;

use leasehold::{AcquireError, Client, Loss, Owner};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    SECOND, acquired, alone, connect, free_as_redisson, granted, keys, ms, number, pttl, renewed, soon,
    subscribed, take_as_redisson, until, waiting,
};

const CHANNEL: &str = "redisson_lock__channel:{n}";

/// A moment until which the server is certain to keep a key without a renewal.
fn kept_until(server: &Server) -> Instant {
    let asked = Instant::now();
    let left = u64::try_from(pttl(server, "n")).expect("the key is there");
    asked + Duration::from_millis(left)
}

/// The loss of a guard and when it was reported, observed by a thread that does nothing else.
fn told(guard: &leasehold::Guard) -> thread::JoinHandle<(Loss, Instant)> {
    let lost = guard.lost();
    thread::spawn(move || {
        let loss = lost.block();
        (loss, Instant::now())
    })
}

#[tokio::test]
async fn a_waiter_acquires_the_lock_after_a_restart_of_the_server() {
    let mut server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    take_as_redisson(&server, "n", SECOND * 60);
    let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
    server.kill();
    sleep(SECOND / 2).await;
    assert!(!waiter.is_finished());
    server.restart();
    let guard = granted(waiter).await;
    assert_eq!(keys(&server), ["n"]);
    assert!(guard.is_held());
}

#[tokio::test]
async fn wd_01_a_restart_without_data_is_reported_to_the_holder_at_once() {
    let mut server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    let guard = client.lock("n").acquire().await.unwrap();
    server.restart();
    let begun = Instant::now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    assert!(begun.elapsed() < SECOND * 5, "it is not the end of the lease, nor a third of it");
}

#[tokio::test]
async fn a_restart_with_data_loses_no_hold_and_no_waiter() {
    let mut server = Server::builder(Flavour::Redis).persistent().start();
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let guard = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&server, &other.lock("n"), CHANNEL).await;
    server.restart();
    subscribed(&server, CHANNEL, 1).await;
    sleep(SECOND / 2).await;
    assert!(guard.is_held() && !waiter.is_finished());
    assert_eq!(server.cli(&["HGET", "n", &guard.owner().to_string()]), "1");
    drop(guard);
    granted(waiter).await.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_network_silence_of_half_the_lease_loses_no_hold() {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let lease = SECOND * 5;
    let client = Client::connect(proxy.url()).watchdog(lease).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    // Once right after the lease has begun, and once just before the next renewal.
    for after in [Duration::ZERO, Duration::from_millis(1450)] {
        sleep(after).await;
        proxy.blackhole(Which::All);
        let (begun, remaining) = (Instant::now(), guard.remaining());
        sleep(lease / 2).await;
        let what = format!("{remaining:?} were left {:?} ago", begun.elapsed());
        assert!(guard.is_held(), "{what}");
        proxy.heal();
        renewed(&server, "n").await;
        assert!(guard.is_held(), "{what}");
        // The renewal may be a request that was delayed on the previous connection.
        while client.lock("m").is_locked().await.is_err() {
            assert!(begun.elapsed() < lease * 3, "no connection: {what}");
            sleep(SECOND / 100).await;
        }
    }
    assert_eq!(server.cli(&["HGET", "n", &guard.owner().to_string()]), "1");
    guard.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_network_silence_beyond_the_lease_is_reported_before_the_lease_ends_on_the_server() {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).watchdog(SECOND * 5).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let told = told(&guard);
    proxy.blackhole(Which::All);
    // Requests that had passed the proxy are executed by now.
    sleep(SECOND / 10).await;
    let kept_until = kept_until(&server);
    sleep_until(kept_until - Duration::from_millis(10)).await;
    assert!(!guard.is_held(), "the clock decides, with or without a listener");
    let (loss, at) = told.join().unwrap();
    assert_eq!(loss, Loss::Unreachable);
    assert!(at < kept_until, "notified {:?} too late", at - kept_until);
    until("the lock expires on the server", || keys(&server).is_empty()).await;

    proxy.heal();
    let next = acquired(&client.lock("n")).await;
    drop(guard);
    sleep(SECOND / 5).await;
    assert!(next.is_held());
    assert_eq!(server.cli(&["HGET", "n", &next.owner().to_string()]), "1");
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_server_pause_beyond_the_lease_is_reported_before_a_waiter_acquires_the_lock() {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let lease = SECOND * 3;
    let client = Client::connect(server.url()).watchdog(lease).await.unwrap();
    let other = connect(server.url()).await;
    let guard = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&server, &other.lock("n"), CHANNEL).await;
    let told = told(&guard);
    renewed(&server, "n").await;
    let kept_until = kept_until(&server);
    server.pause();
    sleep_until(kept_until - Duration::from_millis(10)).await;
    assert!(!guard.is_held(), "the clock decides, with or without a listener");
    let (loss, at) = told.join().unwrap();
    assert_eq!(loss, Loss::Unreachable);
    assert!(at < kept_until, "notified {:?} too late", at - kept_until);
    sleep(SECOND).await;
    assert!(!waiter.is_finished());
    server.resume();

    let next = granted(waiter).await;
    drop(guard);
    assert!(next.is_held());
    assert_eq!(server.cli(&["HGET", "n", &next.owner().to_string()]), "1");
    drop(next);
    acquired(&client.lock("n")).await.release().await.unwrap();
    until("nothing is left", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn scripts_are_sent_again_to_a_server_that_lost_its_scripts() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).watchdog(SECOND).await.unwrap();
    let (lock, other) = (client.lock("n"), connect(server.url()).await);
    let flush = || assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    flush();
    let guard = lock.acquire().await.unwrap();
    let waiter = waiting(&server, &other.lock("n"), CHANNEL).await;
    flush();
    renewed(&server, "n").await;
    flush();
    let inner = guard.reenter().await.unwrap();
    flush();
    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    flush();
    assert!(lock.is_locked().await.unwrap());
    flush();
    guard.release().await.unwrap();
    let guard = granted(waiter).await;
    flush();
    drop(guard);
    until("the guard is given back", || keys(&server).is_empty()).await;
    take_as_redisson(&server, "n", SECOND * 60);
    flush();
    assert!(lock.force_unlock().await.unwrap());
}

#[tokio::test]
async fn cx_18_killed_connections_are_replaced() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
    let other = connect(server.url()).await;
    let mut guard = client.lock("n").acquire().await.unwrap();
    for _ in 0..3 {
        let waiter = waiting(&server, &other.lock("n"), CHANNEL).await;
        let killed = ["normal", "pubsub"]
            .map(|kind| number(&server.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])));
        assert!(killed[0] >= 2 && killed[1] >= 1, "{killed:?}");
        subscribed(&server, CHANNEL, 1).await;
        assert!(guard.is_held() && !waiter.is_finished());
        renewed(&server, "n").await;
        assert!(guard.is_held() && !waiter.is_finished());
        drop(guard);
        // Free before the next acquire, which would subscribe for a moment otherwise.
        granted(waiter).await.release().await.unwrap();
        subscribed(&server, CHANNEL, 0).await;
        guard = acquired(&client.lock("n")).await;
    }
}

#[tokio::test]
async fn cx_18_a_waiter_retries_when_the_message_of_a_release_was_lost_with_its_connection() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    for _ in 0..3 {
        // Longer than this test waits: the waiter does not retry because of an expired lease.
        take_as_redisson(&server, "n", SECOND * 60);
        let mut monitor = server.monitor();
        let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
        let mut sent = Vec::new();
        until("the retry that follows the subscription", || {
            sent.extend(monitor.take_sent());
            let subscribed = sent.iter().position(|line| line.contains("\"SUBSCRIBE\""));
            subscribed.is_some_and(|at| sent[at..].iter().any(|line| line.contains("\"EVALSHA\"")))
        })
        .await;
        // The message is in flight on a connection that ends before it arrives. The connection for commands stays.
        proxy.blackhole(Which::PubSub);
        free_as_redisson(&server, "n", CHANNEL);
        sleep(SECOND / 20).await;
        assert!(!waiter.is_finished(), "it was not notified");
        proxy.cut(Which::PubSub);
        proxy.heal();
        let granted = timeout(SECOND * 5, granted(waiter)).await;
        granted.expect("it retries when it is subscribed again").release().await.unwrap();
        subscribed(&server, CHANNEL, 0).await;
    }
}

#[tokio::test]
async fn a_lease_that_may_have_been_shortened_counts_as_shortened() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    let (lock, owner) = (client.lock("n"), Owner::unique());
    let guard = lock.acquire().as_owner(&owner).lease(SECOND * 60).await.unwrap();
    // The server re-enters the lock with a shorter lease for the whole hold, and the reply does not arrive.
    proxy.delay(Which::Command, SECOND * 30);
    let mut again = lock.acquire().as_owner(&owner).lease(SECOND * 4).into_future();
    assert!(timeout(SECOND / 4, &mut again).await.is_err());
    let ends_here = Instant::now() + guard.remaining();
    let left = pttl(&server, "n");
    assert!(left < 4000, "the server has done it");
    let ends_there = Instant::now() + Duration::from_millis(u64::try_from(left).expect("it is there") + 1);
    assert!(ends_here < ends_there, "{:?} too late", ends_here - ends_there);
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_an_error_and_no_guard() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    // So that the server has the script, and no request is sent twice.
    client.lock("n").acquire().lease(SECOND * 60).await.unwrap().release().await.unwrap();
    proxy.delay(Which::Command, SECOND / 2);
    for acquire in [client.lock("n").acquire(), client.lock("n").acquire().as_owner(Owner::number(1))] {
        let late = soon("the acquire", acquire.lease(SECOND / 5).into_future()).await;
        assert!(late.as_ref().is_err_and(AcquireError::is_unavailable), "{late:?}");
    }
    proxy.heal();
    until("nothing is left", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn a_pause_of_all_clients_shorter_than_the_lease_loses_no_hold() {
    let server = Server::start(Flavour::Redis);
    let lease = SECOND * 4;
    let client = Client::connect(server.url()).watchdog(lease).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    for _ in 0..2 {
        renewed(&server, "n").await;
        let pause = SECOND * 3 / 2;
        server.cli(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), "ALL"]);
        let begun = Instant::now();
        let other = soon("a lock", client.lock("m").acquire().into_future()).await.unwrap();
        assert!(begun.elapsed() > pause / 2);
        assert!(guard.is_held() && other.is_held());
        other.release().await.unwrap();
    }
    let left = pttl(&server, "n");
    assert!((1..=ms(lease)).contains(&left), "{left}");
    assert_eq!(server.cli(&["HGET", "n", &guard.owner().to_string()]), "1");
}
