//! Locks that are taken over from their holder.

use std::time::Duration;

use leasehold::{Lock, Loss};
use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client, until};

/// Less than the time after which a holder learns of it without a message.
const BY_MESSAGE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn own_611_a_takeover_comes_behind_older_waiters_and_takes_over_once() {
    let server = Etcd::start();
    let (one, other, third) = (client(&server).await, client(&server).await, client(&server).await);
    let mut last = 0;
    for lease in [None, Some(Duration::from_secs(60))] {
        let acquire = one.lock("n").acquire().fenced();
        let victim = match lease {
            Some(lease) => acquire.lease(lease),
            None => acquire,
        };
        let victim = victim.await.unwrap();
        assert!(victim.token() > last);
        let waiter = tokio::spawn({
            let lock = other.lock("n");
            async move { lock.acquire().fenced().await }
        });
        until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
        // The holder is watched.
        sleep(Duration::from_millis(200)).await;
        let thief = tokio::spawn({
            let lock = third.lock("n");
            async move { lock.acquire().fenced().steal().await }
        });
        let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
        let begun = Instant::now();
        assert_eq!(timeout(PATIENCE, victim.lost()).await.unwrap(), Loss::TakenOver);
        assert!(begun.elapsed() < BY_MESSAGE, "{:?}", begun.elapsed());
        assert!(next.token() > victim.token());
        sleep(Duration::from_millis(200)).await;
        assert!(next.is_held() && !thief.is_finished());
        let before = next.token();
        next.release().await.unwrap();
        let thief = timeout(PATIENCE, thief).await.unwrap().unwrap().unwrap();
        assert!(thief.token() > before);
        last = thief.token();
        thief.release().await.unwrap();
        until("nothing is left", || server.keys("n/").is_empty()).await;
    }
}

#[tokio::test]
async fn own_612_a_lock_of_etcdctl_can_be_taken_over() {
    let server = Etcd::start();
    let client = client(&server).await;
    let theirs = server.lock("n");
    let [before] = server.keys("n/").try_into().unwrap();
    let guard = timeout(PATIENCE, client.lock("n").acquire().steal()).await.unwrap().unwrap();
    let [key] = server.keys("n/").try_into().unwrap();
    assert_ne!(key, before);
    tokio::task::spawn_blocking(|| theirs.release()).await.unwrap();
    assert!(guard.is_held() && server.keys("n/") == [key], "the release of the old holder does not touch it");
    guard.release().await.unwrap();
}

/// The first waiter of a client is the one that is woken, and it is not the one that is first on the server.
#[tokio::test]
async fn own_614_a_takeover_behind_waiters_of_its_own_client_is_served_in_its_turn() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let victim = one.lock("n").acquire().await.unwrap();
    let wait = |lock: Lock| tokio::spawn(async move { lock.acquire().fenced().await.unwrap() });
    let first = wait(other.lock("n"));
    until("the first is in the queue", || server.keys("n/").len() == 2).await;
    let second = wait(other.lock("n"));
    until("the second waits", || other.stats().waiters == 2).await;
    let lock = other.lock("n");
    let thief = tokio::spawn(async move { lock.acquire().fenced().steal().await.unwrap() });
    assert_eq!(timeout(PATIENCE, victim.lost()).await.unwrap(), Loss::TakenOver);
    let first = timeout(PATIENCE, first).await.unwrap().unwrap();
    until("both others are in the queue", || server.keys("n/").len() == 3).await;
    sleep(Duration::from_millis(200)).await;
    assert!(first.is_held());
    let last = first.token();
    first.release().await.unwrap();
    let thief = timeout(PATIENCE, thief).await.unwrap().unwrap();
    assert!(thief.token() > last && !second.is_finished());
    let last = thief.token();
    thief.release().await.unwrap();
    let second = timeout(PATIENCE, second).await.unwrap().unwrap();
    assert!(second.token() > last);
    second.release().await.unwrap();
    assert_eq!(server.keys("n/"), [""; 0]);
}

/// A takeover whose wait ends leaves no place in the queue.
#[tokio::test]
async fn own_613_a_takeover_that_gives_up_leaves_no_place() {
    let server = Etcd::start();
    let (one, other, third) = (client(&server).await, client(&server).await, client(&server).await);
    let victim = one.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { (other.lock("n").acquire().await, other) });
    until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
    let late = third.lock("n").acquire().steal().wait(Duration::ZERO).await;
    assert!(late.is_err_and(|error| error.is_contended()));
    // The key that tells it may be gone by then.
    let loss = timeout(PATIENCE, victim.lost()).await.unwrap();
    assert!(matches!(loss, Loss::TakenOver | Loss::Gone), "{loss:?}");
    until("there is the next holder alone", || server.keys("n/").len() == 1).await;
    let (next, _other) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    next.unwrap().release().await.unwrap();
    assert_eq!(server.keys("n/"), [""; 0]);
}
