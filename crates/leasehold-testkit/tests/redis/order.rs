//! Grants, takeovers and removals take effect in the order in which the server made them.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{Client, Lock, Loss};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{sleep, timeout};

use crate::{SECOND, connect, keys, soon, take_as_redisson, until};

on_both! {
    a_grant_polled_late_does_not_override_a_later_take_over
    a_grant_polled_late_does_not_override_a_later_removal
    a_grant_of_several_locks_polled_late_does_not_override_a_later_take_over
    a_removal_polled_late_does_not_end_a_later_grant
    a_grant_polled_after_a_reconnection_is_checked_on_the_new_connection
    a_grant_that_is_never_polled_is_not_renewed
    a_grant_that_is_polled_just_in_time_is_renewed_from_then_on
    a_removal_is_reported_to_the_holder_when_its_late_reply_arrives
    two_concurrent_take_overs_leave_one_holder
    many_tasks_make_progress_while_the_lock_is_removed_repeatedly
}

/// A future whose request is sent and whose reply it has not read. If the reply arrives at once, which is rare, it is made
/// anew.
async fn begun<F: Future + Unpin>(mut make: impl FnMut() -> F) -> F {
    loop {
        let mut future = make();
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => return future,
            Poll::Ready(output) => drop(output),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the server has a key of this name and its reply has had time to arrive. Only the future could report the
/// arrival, and it is not polled.
async fn held_at(server: &Server, name: &str) {
    until("the server has the lock", || keys(server).iter().any(|key| key == name)).await;
    sleep(Duration::from_millis(50)).await;
}

/// All locks that can be taken over.
fn locks(client: &Client) -> [Lock; 5] {
    [
        client.lock("n"),
        client.setnx_lock("n"),
        client.fair_lock("n").into(),
        client.rw_lock("n").write().into(),
        client.group_lock("n", ["a", "b"]),
    ]
}

async fn a_grant_polled_late_does_not_override_a_later_take_over(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for lock in locks(&client) {
        let victim = begun(|| lock.try_acquire().into_future()).await;
        held_at(&server, "n").await;
        let thief = lock.acquire().steal().await.unwrap();
        let victim = soon("the victim's try", victim).await.unwrap();
        assert!(
            victim.is_none(),
            "{lock:?}: another owner has taken it over, and the first guard reports {victim:?}"
        );
        assert!(thief.is_held(), "{lock:?}: nothing was taken from the thief");
        assert!(lock.is_held_by(thief.owner()).await.unwrap());
        thief.release().await.unwrap();
    }
}

async fn a_grant_polled_late_does_not_override_a_later_removal(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for lock in locks(&client) {
        let victim = begun(|| lock.try_acquire().into_future()).await;
        held_at(&server, "n").await;
        assert!(lock.force_unlock().await.unwrap());
        let victim = soon("the victim's try", victim).await.unwrap();
        let says = victim.as_ref().is_some_and(leasehold::Guard::is_held);
        assert_eq!(says, lock.is_locked().await.unwrap(), "{lock:?}: {victim:?}");
    }
}

async fn a_grant_of_several_locks_polled_late_does_not_override_a_later_take_over(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let victim = begun(|| client.multi_lock(["m", "n"]).try_acquire()).await;
    held_at(&server, "n").await;
    let thief = client.lock("m").acquire().steal().await.unwrap();
    let victim = soon("the victim's try", victim).await.unwrap();
    assert!(!victim.is_some_and(|guard| guard.is_held()) && thief.is_held());
    // The other locks that were granted are released.
    until("only the stolen one is held", || keys(&server) == ["m"]).await;
}

async fn a_removal_polled_late_does_not_end_a_later_grant(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for lock in locks(&client) {
        let mut first = None;
        let removal = begun(|| {
            first = Some(lock.acquire().block().unwrap());
            lock.force_unlock()
        })
        .await;
        assert_eq!(soon("the loss", first.unwrap().lost()).await, Loss::ForceUnlocked);
        let second = lock.acquire().await.unwrap();
        assert!(soon("the removal", removal).await.unwrap());
        assert!(second.is_held(), "{lock:?}: it was granted after the removal");
        second.release().await.unwrap();
    }
    let permits = client.leased_semaphore("permits");
    permits.try_set_permits(1).await.unwrap();
    let mut first = None;
    let removal = begun(|| {
        permits.try_set_permits(1).block().unwrap();
        first = Some(permits.acquire(1).block().unwrap());
        permits.delete()
    })
    .await;
    assert_eq!(soon("the loss", first.unwrap().lost()).await, Loss::Gone);
    assert!(permits.try_set_permits(1).await.unwrap());
    let second = permits.acquire(1).await.unwrap();
    assert!(soon("the removal", removal).await.unwrap());
    assert!(second.is_held(), "it was granted after the removal");
}

async fn a_grant_polled_after_a_reconnection_is_checked_on_the_new_connection(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    let lock = client.lock("n");
    let acquiring = begun(|| lock.try_acquire().into_future()).await;
    held_at(&server, "n").await;
    // The connection breaks, and the lock is lost before the next connection.
    proxy.refuse();
    take_as_redisson(&server, "n", SECOND * 60);
    drop(proxy.take_sent());
    proxy.heal();
    // By its text, because this server does not have the script yet.
    until("the new connection is used", || proxy.take_sent().iter().any(|sent| sent.name == "EVAL")).await;
    client.lock("m").is_locked().await.unwrap();
    sleep(Duration::from_millis(50)).await;
    let guard = soon("the try", acquiring).await.unwrap();
    assert!(!guard.is_some_and(|guard| guard.is_held()), "the lock is another client's");
}

async fn a_grant_that_is_never_polled_is_not_renewed(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND / 2).await.unwrap();
    let other = connect(server.url()).await;
    let asleep = begun(|| client.lock("n").acquire().into_future()).await;
    held_at(&server, "n").await;
    let next = soon("another client", other.lock("n").acquire().into_future()).await.unwrap();
    let late = timeout(SECOND / 5, asleep).await;
    assert!(!late.is_ok_and(|told| told.is_ok_and(|guard| guard.is_held())), "the lock is another client's");
    assert!(next.is_held());
}

async fn a_grant_that_is_polled_just_in_time_is_renewed_from_then_on(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND).await.unwrap();
    let acquiring = begun(|| client.lock("n").acquire().into_future()).await;
    held_at(&server, "n").await;
    sleep(Duration::from_millis(500)).await;
    let guard = soon("the grant", acquiring).await.unwrap();
    sleep(SECOND * 2).await;
    assert!(guard.is_held(), "it is renewed like any other");
    assert_eq!(keys(&server), ["n"]);
}

async fn a_removal_is_reported_to_the_holder_when_its_late_reply_arrives(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).response_timeout(SECOND / 2).await.unwrap();
    // The server has the script.
    assert!(!client.lock("n").force_unlock().await.unwrap());
    let guard = client.lock("n").acquire().await.unwrap();
    let busy = {
        let lock = client.lock("m");
        tokio::spawn(async move {
            loop {
                drop(tokio::spawn(lock.is_locked().into_future()));
                sleep(Duration::from_millis(20)).await;
            }
        })
    };
    // Replies take longer and longer, but keep arriving: the connection is slow, not dead.
    for delay in [300, 600, 900].map(Duration::from_millis) {
        proxy.delay(Which::Command, delay);
        sleep(delay + SECOND / 10).await;
    }
    let told = soon("the removal", client.lock("n").force_unlock().into_future()).await;
    assert!(told.is_err(), "its reply is late");
    let loss = soon("the loss", guard.lost()).await;
    busy.abort();
    assert_eq!(loss, Loss::ForceUnlocked);
}

async fn two_concurrent_take_overs_leave_one_holder(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.lock("n");
    for _ in 0..200 {
        let takeover = || tokio::spawn(lock.acquire().steal().into_future());
        let (one, other) = (takeover(), takeover());
        let one = soon("a takeover", one).await.unwrap().unwrap();
        let other = soon("a takeover", other).await.unwrap().unwrap();
        assert!(one.is_held() != other.is_held(), "{one:?} {other:?}");
        let held = if one.is_held() { &one } else { &other };
        assert!(lock.is_held_by(held.owner()).await.unwrap());
    }
}

/// On a runtime of its own, which is watched from outside: a loop that keeps its threads busy also stops its timers.
async fn many_tasks_make_progress_while_the_lock_is_removed_repeatedly(flavour: Flavour) {
    let server = Server::start(flavour);
    let (url, turns, over) = (server.url(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, ended) = (Arc::clone(&turns), Arc::clone(&over));
    let crowd = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, remover) = (connect(&url).await, connect(&url).await);
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let (lock, turns, over) = (client.lock("n"), Arc::clone(&counted), Arc::clone(&ended));
                tasks.spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        let guard = lock.acquire().await.unwrap();
                        tokio::task::yield_now().await;
                        drop(guard);
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let own = [client.lock("n"), remover.lock("n")];
            tasks.spawn(async move {
                for turn in 0.. {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    own[turn % 2].force_unlock().await.unwrap();
                    sleep(Duration::from_millis(3)).await;
                }
            });
            tasks.join_all().await;
        });
    });
    for _ in 0..3 {
        let before = turns.load(Ordering::Relaxed);
        sleep(Duration::from_millis(500)).await;
        until("the other tasks continue", || turns.load(Ordering::Relaxed) > before + 8).await;
    }
    over.store(true, Ordering::Relaxed);
    until("the crowd ends", || crowd.is_finished()).await;
    crowd.join().unwrap();
}
