//! Users without the right to publish: their changes take effect, and waiters still get their turn.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::{Future, IntoFuture};
use std::time::Duration;

use leasehold::{Client, Lock};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{sleep, timeout};

use crate::{SECOND, connect, keys, number, until};

on_both! {
    a_counter_change_succeeds_without_the_right_to_publish
    a_lock_is_released_without_the_right_to_publish
    waiters_of_the_same_client_acquire_a_lock_released_without_a_message
    waiters_of_the_same_client_acquire_a_half_released_without_a_message
    waiters_of_the_same_client_are_woken_by_a_counter_change_without_a_message
    a_waiter_of_another_client_acquires_a_fair_lock_released_without_a_message
}

/// Long enough for a waiter to fall asleep.
const SETTLED: Duration = Duration::from_millis(150);

/// A server whose users lack this right.
fn server_without(flavour: Flavour, right: &str) -> Server {
    let server = Server::start(flavour);
    assert_eq!(server.cli(&["ACL", "SETUSER", "default", right]), "OK");
    server
}

/// Starts a waiter, frees the lock, and checks that the waiter gets it long before the lease that it saw expires.
async fn goes_on<T: Send + 'static>(
    what: impl Into<String>,
    waits: impl IntoFuture<Output = T, IntoFuture: Send + 'static>,
    frees: impl Future<Output = ()>,
) -> T {
    let what = what.into();
    let waiter = tokio::spawn(waits.into_future());
    sleep(SETTLED).await;
    assert!(!waiter.is_finished(), "{what} does not wait");
    frees.await;
    let done = timeout(SECOND * 5, waiter).await;
    done.unwrap_or_else(|_| panic!("{what} sleeps on")).expect("no panic")
}

async fn a_counter_change_succeeds_without_the_right_to_publish(flavour: Flavour) {
    for right in ["-publish", "resetchannels"] {
        let server = server_without(flavour, right);
        let client = connect(server.url()).await;
        let semaphore = client.semaphore("n");
        assert!(semaphore.try_set_permits(3).await.unwrap(), "{right}");
        semaphore.release(1).await.unwrap();
        assert!(semaphore.release_if_exists(1).await.unwrap());
        assert_eq!(semaphore.add_permits(1).await.unwrap(), 6);
        let (released, dropped) = (semaphore.acquire(2).await.unwrap(), semaphore.acquire(1).await.unwrap());
        released.release().await.unwrap();
        drop(dropped);
        assert_eq!(semaphore.available().await.unwrap(), 6, "{right}");
        assert!(semaphore.delete().await.unwrap());

        let leased = client.leased_semaphore("n");
        assert!(leased.try_set_permits(2).await.unwrap(), "{right}");
        leased.set_permits(3).await.unwrap();
        assert_eq!(leased.add_permits(1).await.unwrap(), 4);
        let (released, dropped) = (leased.acquire(1).await.unwrap(), leased.acquire(1).await.unwrap());
        let ids = leased.acquire(1).permanent().await.unwrap();
        let lapsing = leased.acquire(1).lease(SECOND / 10).await.unwrap().forget();
        assert!(leased.update_lease(ids[0], SECOND * 30).await.unwrap());
        released.release().await.unwrap();
        drop(dropped);
        leased.release(ids).await.unwrap();
        until("a lease is over", || server.cli(&["ZCARD", "{n}:timeout"]) == 1).await;
        sleep(SECOND / 10).await;
        assert_eq!(leased.available().await.unwrap(), 4, "{right}");
        assert!(!leased.try_release(lapsing).await.unwrap());
        assert!(leased.delete().await.unwrap());

        let latch = client.latch("n");
        assert!(latch.try_set_count(2).await.unwrap(), "{right}");
        assert_eq!((latch.count_down().await.unwrap(), latch.count_down().await.unwrap()), (1, 0));
        assert!(latch.try_set_count(1).await.unwrap() && latch.delete().await.unwrap());
        until("nothing is left", || keys(&server).is_empty()).await;
    }
}

/// All kinds of locks that are one type.
fn locks(client: &Client) -> [(&'static str, Lock); 4] {
    [
        ("plain", client.lock("n").local_handover(false)),
        ("fair", client.fair_lock("n").into()),
        ("setnx", client.setnx_lock("n").local_handover(false)),
        ("group", client.group_lock("n", ["a", "b"])),
    ]
}

async fn a_lock_is_released_without_the_right_to_publish(flavour: Flavour) {
    for right in ["-publish", "resetchannels"] {
        let server = server_without(flavour, right);
        let client = connect(server.url()).await;
        let free = |what: &'static str| until(what, || keys(&server).is_empty());
        for (kind, lock) in locks(&client) {
            lock.acquire().await.unwrap().release().await.unwrap();
            drop(lock.acquire().await.unwrap());
            free(kind).await;
            let robbed = lock.acquire().await.unwrap();
            let stolen = lock.acquire().steal().await.unwrap();
            drop(robbed);
            assert!(lock.force_unlock().await.unwrap(), "{kind}");
            free(kind).await;
            drop(stolen);
        }
        let rw = client.rw_lock("n").prefer_writers();
        rw.read().acquire().await.unwrap().release().await.unwrap();
        rw.write().acquire().await.unwrap().release().await.unwrap();
        drop(rw.write().acquire().await.unwrap());
        drop(rw.read().acquire().await.unwrap());
        free("a half").await;
        let written = rw.write().acquire().await.unwrap();
        let read = rw.read().acquire().steal().await.unwrap();
        drop(written);
        assert!(
            rw.write().acquire().wait(SECOND / 10).await.is_err(),
            "it leaves its mark, and takes it away"
        );
        assert!(rw.read().force_unlock().await.unwrap());
        drop(read);
        let written = rw.write().acquire().await.unwrap();
        assert!(rw.write().force_unlock().await.unwrap());
        drop(written);
        free("a half").await;
    }
}

async fn waiters_of_the_same_client_acquire_a_lock_released_without_a_message(flavour: Flavour) {
    let server = server_without(flavour, "-publish");
    let client = connect(server.url()).await;
    for (kind, lock) in locks(&client) {
        for way in ["release", "drop", "force_unlock"] {
            let held = lock.acquire().await.unwrap();
            let what = format!("{flavour:?}: a waiter for a {kind} lock after a {way}");
            let got = goes_on(what, lock.acquire(), async {
                match way {
                    "release" => drop(held.release().await.unwrap()),
                    "drop" => drop(held),
                    _ => assert!(lock.force_unlock().await.unwrap()),
                }
            });
            got.await.unwrap().release().await.unwrap();
        }
        // A waiter that gives up leaves the turn to the next.
        let held = lock.acquire().await.unwrap();
        let first = tokio::spawn(lock.acquire().into_future());
        sleep(SETTLED).await;
        let next = goes_on(format!("{flavour:?}: the next for a {kind} lock"), lock.acquire(), async {
            first.abort();
            sleep(SETTLED).await;
            held.release().await.unwrap();
        });
        next.await.unwrap().release().await.unwrap();
    }
    // Two sets of values that share one value.
    let (held, wanted) = (client.group_lock("n", ["a", "b"]), client.group_lock("n", ["b", "c"]));
    let held = held.acquire().await.unwrap();
    let got = goes_on("a waiter for other values", wanted.acquire(), async { drop(held) });
    got.await.unwrap().release().await.unwrap();
}

async fn waiters_of_the_same_client_acquire_a_half_released_without_a_message(flavour: Flavour) {
    let server = server_without(flavour, "-publish");
    let rw = connect(server.url()).await.rw_lock("n");
    for way in ["release", "drop", "force_unlock"] {
        let what = |who: &str| format!("{flavour:?}: {who} after a {way}");
        let written = rw.write().acquire().await.unwrap();
        let reading = goes_on(what("a reader behind a writer"), rw.read().acquire(), async {
            match way {
                "release" => drop(written.release().await.unwrap()),
                "drop" => drop(written),
                _ => assert!(rw.write().force_unlock().await.unwrap()),
            }
        });
        let read = reading.await.unwrap();
        let writing = goes_on(what("a writer behind a reader"), rw.write().acquire(), async {
            match way {
                "release" => drop(read.release().await.unwrap()),
                "drop" => drop(read),
                _ => assert!(rw.read().force_unlock().await.unwrap()),
            }
        });
        let written = writing.await.unwrap();
        let writing = goes_on(what("a writer behind a writer"), rw.write().acquire(), async {
            match way {
                "release" => drop(written.release().await.unwrap()),
                "drop" => drop(written),
                _ => assert!(rw.write().force_unlock().await.unwrap()),
            }
        });
        drop(writing.await.unwrap());
    }
    let written = rw.write().acquire().await.unwrap();
    let reading = goes_on("a reader beside one that steals", rw.read().acquire(), async {
        drop(rw.read().acquire().steal().await.unwrap());
    });
    drop(reading.await.unwrap());
    drop(written);
}

async fn waiters_of_the_same_client_are_woken_by_a_counter_change_without_a_message(flavour: Flavour) {
    let server = server_without(flavour, "-publish");
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    let waits = || semaphore.acquire(2);
    let what = |way: &str| format!("{flavour:?}: a waiter for permits after a {way}");
    let got = goes_on(what("set"), waits(), async { assert!(semaphore.try_set_permits(2).await.unwrap()) });
    let held = got.await.unwrap();
    let got = goes_on(what("release"), waits(), async { held.release().await.unwrap() });
    let held = got.await.unwrap();
    let got = goes_on(what("drop"), waits(), async { drop(held) });
    got.await.unwrap().forget();
    let got = goes_on(what("release of a number"), waits(), async { semaphore.release(2).await.unwrap() });
    got.await.unwrap().forget();
    let added = async { assert_eq!(semaphore.add_permits(2).await.unwrap(), 2) };
    goes_on(what("addition"), waits(), added).await.unwrap().forget();

    let leased = client.leased_semaphore("m");
    let waits = || leased.acquire(2);
    let what = |way: &str| format!("{flavour:?}: a waiter for permits with a lease after a {way}");
    let got = goes_on(what("set"), waits(), async { assert!(leased.try_set_permits(2).await.unwrap()) });
    let held = got.await.unwrap();
    let got = goes_on(what("release"), waits(), async { held.release().await.unwrap() });
    let held = got.await.unwrap();
    let got = goes_on(what("drop"), waits(), async { drop(held) });
    let ids = got.await.unwrap().forget();
    let got = goes_on(what("release by ids"), waits(), async { leased.release(ids).await.unwrap() });
    let held = got.await.unwrap();
    let got = goes_on(what("new number"), waits(), async { leased.set_permits(4).await.unwrap() });
    drop((got.await.unwrap(), held));
    let ids = leased.acquire(4).permanent().await.unwrap();
    let shortened = async {
        for id in &ids[..2] {
            assert!(leased.update_lease(*id, SECOND / 10).await.unwrap());
        }
    };
    drop(goes_on(what("shorter lease"), waits(), shortened).await.unwrap());

    let latch = client.latch("l");
    for way in ["count down", "delete"] {
        assert!(latch.try_set_count(1).await.unwrap());
        let another = latch.opened();
        let opened =
            goes_on(format!("{flavour:?}: a waiter at a latch after a {way}"), latch.opened(), async {
                let another = tokio::spawn(another.into_future());
                sleep(SETTLED).await;
                match way {
                    "count down" => assert_eq!(latch.count_down().await.unwrap(), 0),
                    _ => assert!(latch.delete().await.unwrap()),
                }
                timeout(SECOND * 5, another).await.expect("every waiter continues").unwrap().unwrap();
            });
        opened.await.unwrap();
    }
}

/// It sends a heartbeat about every second, and learns from the reply that it is its turn.
async fn a_waiter_of_another_client_acquires_a_fair_lock_released_without_a_message(flavour: Flavour) {
    let server = server_without(flavour, "-publish");
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let (lock, elsewhere) = (client.fair_lock("n"), other.fair_lock("n"));
    let held = lock.acquire().await.unwrap();
    let next = goes_on("the next in the queue", elsewhere.acquire(), async {
        assert_eq!(number(&server.cli(&["LLEN", "redisson_lock_queue:{n}"])), 1);
        held.release().await.unwrap();
    });
    next.await.unwrap().release().await.unwrap();
}
