//! Servers that are full, and servers that say no.

use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectError, Failure, Loss, QueryError, ReleaseError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{SECOND, channels, connect, granted, keys, soon, take_as_redisson, until, waiting};

const CHANNEL: &str = "redisson_lock__channel:{n}";

fn set(server: &Server, command: &[&str]) {
    assert_eq!(server.cli(command), "OK", "{command:?}");
}

#[tokio::test]
async fn a_full_server_still_lets_go() {
    let server = Server::builder(Flavour::Redis).config("maxmemory-policy noeviction").start();
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let outer = client.lock("n").acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let dropped = client.lock("dropped").acquire().await.unwrap();
    let forced = client.lock("forced").acquire().await.unwrap();
    let waiter = waiting(&server, &other.lock("n"), CHANNEL).await;
    set(&server, &["CONFIG", "SET", "maxmemory", "1"]);

    let error = client.lock("m").acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(outer.reenter().await.is_err_and(|error| error.is_unavailable()));
    assert_eq!(client.lock("n").hold_count(&outer.owner()).await.unwrap(), 2);
    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    drop(dropped);
    assert!(client.lock("forced").force_unlock().await.unwrap());
    assert!(!forced.is_held());
    until("everything is given back", || keys(&server).is_empty()).await;

    // Somebody who has waited for it goes on until there is room.
    sleep(SECOND / 2).await;
    assert!(!waiter.is_finished());
    set(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    granted(waiter).await.release().await.unwrap();
    client.lock("m").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_still_lets_readers_and_writers_go() {
    let server = Server::builder(Flavour::Redis).config("maxmemory-policy noeviction").start();
    let client = Client::connect(server.url()).watchdog(SECOND * 2).await.unwrap();
    let lock = |name: &str| client.rw_lock(name);
    let outer = lock("n").read().acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let written = lock("m").write().acquire().await.unwrap();
    let also_read = lock("m").read().acquire().as_owner(&written.owner()).await.unwrap();
    let dropped = (lock("d").write().acquire().await.unwrap(), lock("e").read().acquire().await.unwrap());
    set(&server, &["CONFIG", "SET", "maxmemory", "1"]);

    assert!(lock("o").read().acquire().await.is_err_and(|error| error.is_unavailable()));
    assert!(outer.try_upgrade().await.is_err_and(|error| error.is_unavailable()));
    sleep(SECOND * 3).await;
    assert!(outer.is_held() && written.is_held(), "they are renewed");
    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    assert_eq!(written.release().await.unwrap().holds_left, 0);
    assert!(!lock("m").write().is_locked().await.unwrap() && also_read.is_held());
    assert!(lock("m").read().force_unlock().await.unwrap());
    drop(dropped);
    until("everything is given back", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn a_full_server_goes_on_renewing() {
    let server = Server::builder(Flavour::Redis).config("maxmemory-policy noeviction").start();
    let client = Client::connect(server.url()).watchdog(SECOND).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    set(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    sleep(SECOND * 2).await;
    assert!(guard.is_held());
    assert_eq!(keys(&server), ["n"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn where_nobody_may_subscribe_waiters_look_from_time_to_time() {
    for denied in [["-subscribe"].as_slice(), &["-subscribe", "-unsubscribe"], &["resetchannels"]] {
        let server = Server::start(Flavour::Redis);
        set(&server, &[&["ACL", "SETUSER", "default"], denied].concat());
        let client = connect(server.url()).await;
        let lock = client.lock("n");
        for _ in 0..3 {
            take_as_redisson(&server, "n", SECOND * 60);
            let waiters = [0, 1, 2].map(|_| tokio::spawn(lock.acquire().into_future()));
            sleep(SECOND / 2).await;
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            assert_eq!(channels(&server), [""; 0]);
            server.cli(&["DEL", "n"]);
            let begun = Instant::now();
            for waiter in waiters {
                drop(granted(waiter).await);
            }
            assert!(begun.elapsed() < SECOND * 5, "{denied:?}: {:?}", begun.elapsed());
        }
    }
}

#[tokio::test]
async fn where_scripts_are_forbidden_everything_is_denied() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).watchdog(SECOND * 2).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&server, &connect(server.url()).await.lock("n"), CHANNEL).await;
    set(&server, &["ACL", "SETUSER", "default", "-evalsha"]);
    let lock = client.lock("m");
    let denied = |failure: &Failure| matches!(failure, Failure::Denied(_));
    for error in [lock.acquire().await.unwrap_err(), lock.acquire().wait(SECOND).await.unwrap_err()] {
        assert!(matches!(&error, AcquireError::Failure(failure) if denied(failure)), "{error:?}");
        assert!(!error.is_transient());
    }
    assert!(matches!(lock.is_locked().await, Err(QueryError::Failure(failure)) if denied(&failure)));
    // What cannot be renewed is lost in time, and a waiter is told as soon as it asks.
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Unreachable);
    let waited = soon("the waiter is told", waiter).await.unwrap();
    assert!(matches!(&waited, Err(AcquireError::Failure(failure)) if denied(failure)), "{waited:?}");
    let released = guard.release().await;
    assert!(matches!(released, Err(ReleaseError::NotHeld(Loss::Unreachable))), "{released:?}");
    set(&server, &["ACL", "SETUSER", "default", "+evalsha"]);
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_repeated() {
    let server = Server::builder(Flavour::Redis).password("rightone").start();
    let address = server.url().replace("redis://:rightone@", "");
    for user in ["", "default", "nobody"] {
        let error = Client::connect(format!("redis://{user}:wrongone@{address}")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Failure(Failure::Denied(_))), "{error:?}");
        for text in [error.to_string(), format!("{error:?}"), format!("{error:#?}")] {
            assert!(!text.contains("wrongone"), "{text}");
        }
    }
    let error = Client::connect(format!("redis://{address}")).await.unwrap_err();
    assert!(matches!(error, ConnectError::Failure(Failure::Denied(_))), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_at_once() {
    let mut server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    server.kill();
    let begun = Instant::now();
    let error = Client::connect(server.url()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Failure(Failure::Unavailable(_))), "{error:?}");
    assert!(client.lock("n").acquire().await.unwrap_err().is_unavailable());
    assert!(begun.elapsed() < SECOND * 2);
    // A port at which somebody listens who says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    let error = Client::connect(url).connect_timeout(Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Failure(Failure::Unavailable(_))), "{error:?}");
    assert!(begun.elapsed() < SECOND * 3, "{:?}", begun.elapsed());
}
