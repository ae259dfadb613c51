//! Servers that are full, and servers that refuse.

use std::time::Duration;

use leasehold::{
    AcquireError, ChangeError, Client, ConnectError, Loss, QueryError, ReleaseError, ServerError,
};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{SECOND, channels, connect, granted, keys, number, soon, take_as_redisson, until, waiting};

const CHANNEL: &str = "redisson_lock__channel:{n}";

fn set(server: &Server, command: &[&str]) {
    assert_eq!(server.cli(command), "OK", "{command:?}");
}

#[tokio::test]
async fn a_server_out_of_memory_still_releases_locks() {
    let server = Server::builder(Flavour::Redis).config("maxmemory-policy noeviction").start();
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let outer = client.lock("n").acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let dropped = client.lock("dropped").acquire().await.unwrap();
    let forced = client.lock("forced").acquire().await.unwrap();
    let waiter = waiting(&server, &other.lock("n"), CHANNEL).await;
    set(&server, &["CONFIG", "SET", "maxmemory", "1"]);

    let error = client.lock("m").try_acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(outer.reenter().await.is_err_and(|error| error.is_unavailable()));
    assert_eq!(client.lock("n").hold_count(outer.owner()).await.unwrap(), 2);
    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    drop(dropped);
    assert!(client.lock("forced").force_unlock().await.unwrap());
    assert!(!forced.is_held());
    until("everything is given back", || keys(&server).is_empty()).await;

    // A waiter retries until there is room.
    sleep(SECOND / 2).await;
    assert!(!waiter.is_finished());
    set(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    granted(waiter).await.release().await.unwrap();
    client.lock("m").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_out_of_memory_still_releases_read_write_locks() {
    let server = Server::builder(Flavour::Redis).config("maxmemory-policy noeviction").start();
    let client = Client::connect(server.url()).watchdog(SECOND * 2).await.unwrap();
    let lock = |name: &str| client.rw_lock(name);
    let outer = lock("n").read().acquire().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let written = lock("m").write().acquire().await.unwrap();
    let also_read = lock("m").read().acquire().as_owner(written.owner()).await.unwrap();
    let dropped = (lock("d").write().acquire().await.unwrap(), lock("e").read().acquire().await.unwrap());
    set(&server, &["CONFIG", "SET", "maxmemory", "1"]);

    assert!(lock("o").read().try_acquire().await.is_err_and(|error| error.is_unavailable()));
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

/// Extended, so that the lease needs no change when one of two holds is released.
#[tokio::test]
async fn a_server_out_of_memory_still_makes_partial_releases() {
    let server = Server::builder(Flavour::Redis).config("maxmemory-policy noeviction").start();
    let client = connect(server.url()).await;
    let rw = client.rw_lock("rw");
    let locks = [client.lock("n"), client.fair_lock("fair").into(), client.group_lock("group", ["a", "b"])];
    let mut outer = Vec::new();
    for lock in &locks {
        let guard = lock.acquire().await.unwrap();
        guard.extend(SECOND * 90).await.unwrap();
        outer.push((guard.reenter().await.unwrap(), guard.reenter().await.unwrap(), guard));
    }
    let written = rw.write().acquire().await.unwrap();
    written.extend(SECOND * 90).await.unwrap();
    let again = (written.reenter().await.unwrap(), written.reenter().await.unwrap());
    set(&server, &["CONFIG", "SET", "maxmemory", "1"]);

    for (lock, (released, dropped, guard)) in locks.iter().zip(outer) {
        assert_eq!(released.release().await.unwrap().holds_left, 2, "{lock:?}");
        drop(dropped);
        let given_back = async { while lock.hold_count(guard.owner()).await.unwrap() != 1 {} };
        soon("the dropped guard is given back", given_back).await;
        assert!(guard.reenter().await.is_err_and(|error| error.is_unavailable()));
        assert_eq!(guard.release().await.unwrap().holds_left, 0, "{lock:?}");
    }
    assert_eq!(again.0.release().await.unwrap().holds_left, 2);
    drop(again.1);
    assert_eq!(written.release().await.unwrap().holds_left, 0);
    until("everything is given back", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn a_server_out_of_memory_keeps_the_queue_of_a_fair_lock() {
    for flavour in Flavour::ALL {
        let server = Server::builder(flavour).config("maxmemory-policy noeviction").start();
        let (client, other) = (connect(server.url()).await, connect(server.url()).await);
        let (lock, elsewhere) = (client.fair_lock("n"), other.fair_lock("n"));
        let held = lock.acquire().await.unwrap();
        let mut waiters = Vec::new();
        for place in 1..=3 {
            waiters.push(tokio::spawn(elsewhere.acquire().into_future()));
            until("it is queued", || number(&server.cli(&["LLEN", QUEUE])) == place).await;
        }
        let queue = lock.queue().await.unwrap();
        set(&server, &["CONFIG", "SET", "maxmemory", "1"]);
        let error = lock.acquire().wait(SECOND / 2).await.unwrap_err();
        assert!(
            matches!(&error, AcquireError::Server { cause: ServerError::Unavailable(text), .. } if text.contains("OOM"))
        );
        // Longer than a waiter without a heartbeat stays in the queue.
        sleep(SECOND * 4).await;
        assert_eq!(lock.queue().await.unwrap(), queue, "{flavour:?}");
        waiters.remove(0).abort();
        until("a waiter that gives up leaves the queue", || number(&server.cli(&["LLEN", QUEUE])) == 2).await;
        held.release().await.unwrap();
        for (waiter, owner) in waiters.into_iter().zip(&queue[1..]) {
            let guard = granted(waiter).await;
            assert_eq!(&guard.owner(), owner, "{flavour:?}");
            guard.release().await.unwrap();
        }
        until("everything is given back", || keys(&server).is_empty()).await;
    }
}

const QUEUE: &str = "redisson_lock_queue:{n}";

#[tokio::test]
async fn a_server_out_of_memory_still_renews_and_releases_sets_and_permits() {
    for flavour in Flavour::ALL {
        let server = Server::builder(flavour).config("maxmemory-policy noeviction").start();
        let client = Client::connect(server.url()).watchdog(SECOND * 4).outage_limit(SECOND).await.unwrap();
        let (semaphore, leased) = (client.semaphore("n"), client.leased_semaphore("m"));
        let latch = client.latch("l");
        semaphore.try_set_permits(3).await.unwrap();
        leased.try_set_permits(3).await.unwrap();
        latch.try_set_count(2).await.unwrap();
        let set_of_two = client.group_lock("group", ["a", "b"]).acquire().await.unwrap();
        let (permit, leased_permit) = (semaphore.acquire(1).await.unwrap(), leased.acquire(1).await.unwrap());
        let dropped = (semaphore.acquire(1).await.unwrap(), leased.acquire(1).await.unwrap());
        let ids = leased.acquire(1).permanent().await.unwrap();
        let open = tokio::spawn(latch.opened().into_future());
        set(&server, &["CONFIG", "SET", "maxmemory", "1"]);

        let full =
            |failure: &ServerError| matches!(failure, ServerError::Unavailable(text) if text.contains("OOM"));
        for error in [
            client.group_lock("group", ["c"]).acquire().await.map(drop).unwrap_err(),
            semaphore.acquire(1).await.map(drop).unwrap_err(),
        ] {
            assert!(
                matches!(&error, AcquireError::Server { cause: failure, .. } if full(failure)),
                "{error:?}"
            );
        }
        // It is retried for as long as an outage may last. Every attempt was refused, so the change is not made.
        for error in [
            client.semaphore("other").try_set_permits(1).await.unwrap_err(),
            client.leased_semaphore("other").try_set_permits(1).await.unwrap_err(),
            client.latch("other").try_set_count(1).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, ChangeError::Server { cause: failure, .. } if full(failure)),
                "{error:?}"
            );
        }
        sleep(SECOND * 2).await;
        assert!(set_of_two.is_held(), "it is renewed");
        assert!(leased_permit.is_held(), "it is renewed");
        assert!(leased.update_lease(ids[0], SECOND * 60).await.unwrap());

        set_of_two.release().await.unwrap();
        permit.release().await.unwrap();
        leased_permit.release().await.unwrap();
        drop(dropped);
        leased.release(ids).await.unwrap();
        assert_eq!((latch.count_down().await.unwrap(), latch.count_down().await.unwrap()), (1, 0));
        soon("the latch", open).await.unwrap().unwrap();
        assert_eq!((semaphore.available().await.unwrap(), leased.available().await.unwrap()), (3, 3));
        set(&server, &["CONFIG", "SET", "maxmemory", "0"]);
        leased.acquire(3).await.unwrap().release().await.unwrap();
        semaphore.acquire(3).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_out_of_memory_still_renews_locks() {
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
async fn waiters_without_the_right_to_subscribe_poll() {
    for denied in [["-subscribe"].as_slice(), &["-subscribe", "-unsubscribe"], &["resetchannels"]] {
        let server = Server::start(Flavour::Redis);
        set(&server, &[&["ACL", "SETUSER", "default"], denied].concat());
        let client = connect(server.url()).await;
        let lock = client.lock("n");
        for _ in 0..3 {
            take_as_redisson(&server, "n", SECOND * 60);
            let waiters = [0, 1, 2].map(|_| {
                let acquire = lock.acquire().into_future();
                // The first waiter releases it: no order is guaranteed among first attempts.
                tokio::spawn(async { acquire.await.map(drop) })
            });
            sleep(SECOND / 2).await;
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            assert_eq!(channels(&server), [""; 0]);
            server.cli(&["DEL", "n"]);
            let begun = Instant::now();
            for waiter in waiters {
                soon("the waiter ends", waiter).await.unwrap().unwrap();
            }
            assert!(begun.elapsed() < SECOND * 5, "{denied:?}: {:?}", begun.elapsed());
        }
    }
}

#[tokio::test]
async fn every_operation_is_denied_without_the_right_to_run_scripts() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).watchdog(SECOND * 2).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let waiter = waiting(&server, &connect(server.url()).await.lock("n"), CHANNEL).await;
    set(&server, &["ACL", "SETUSER", "default", "-evalsha"]);
    let lock = client.lock("m");
    let denied = |failure: &ServerError| matches!(failure, ServerError::Denied(_));
    for error in [lock.acquire().await.unwrap_err(), lock.acquire().wait(SECOND).await.unwrap_err()] {
        assert!(
            matches!(&error, AcquireError::Server { cause: failure, .. } if denied(failure)),
            "{error:?}"
        );
        assert!(!error.is_transient());
    }
    assert!(
        matches!(lock.is_locked().await, Err(QueryError::Server { cause: failure, .. }) if denied(&failure))
    );
    // A hold that cannot be renewed is lost in time, and a waiter fails with its next request.
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Unreachable);
    let waited = soon("the waiter is notified", waiter).await.unwrap();
    assert!(
        matches!(&waited, Err(AcquireError::Server { cause: failure, .. }) if denied(failure)),
        "{waited:?}"
    );
    let released = guard.release().await;
    assert!(matches!(released, Err(ReleaseError::NotHeld { loss: Loss::Unreachable, .. })), "{released:?}");
    set(&server, &["ACL", "SETUSER", "default", "+evalsha"]);
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_shown_in_the_error() {
    let server = Server::builder(Flavour::Redis).password("rightone").start();
    let address = server.url().replace("redis://:rightone@", "");
    for user in ["", "default", "nobody"] {
        let error = Client::connect(format!("redis://{user}:wrongone@{address}")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Server { cause: ServerError::Denied(_), .. }), "{error:?}");
        for text in [error.to_string(), format!("{error:?}"), format!("{error:#?}")] {
            assert!(!text.contains("wrongone"), "{text}");
        }
    }
    let error = Client::connect(format!("redis://{address}")).await.unwrap_err();
    assert!(matches!(error, ConnectError::Server { cause: ServerError::Denied(_), .. }), "{error:?}");
}

#[tokio::test]
async fn a_missing_server_is_unavailable_at_once() {
    let mut server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    server.kill();
    let begun = Instant::now();
    let error = Client::connect(server.url()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Server { cause: ServerError::Unavailable(_), .. }), "{error:?}");
    assert!(client.lock("n").try_acquire().await.unwrap_err().is_unavailable());
    assert!(begun.elapsed() < SECOND * 2);
    // A port with a listener that does not reply.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    let error = Client::connect(url).connect_timeout(Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Server { cause: ServerError::Unavailable(_), .. }), "{error:?}");
    assert!(begun.elapsed() < SECOND * 3, "{:?}", begun.elapsed());
}
