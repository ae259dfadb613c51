//! Places in the queue of the server.

use std::future::{IntoFuture as _, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_testkit::server::Etcd;
use tokio::time::{sleep, timeout};

use crate::{PATIENCE, client, until};

#[tokio::test]
async fn own_506_a_try_leaves_no_key_and_a_waiter_has_one_as_long_as_it_waits() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let held = server.keys("n/");
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    assert!(one.lock("n").try_acquire().await.unwrap().is_none());
    assert_eq!(server.keys("n/"), held);
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().await }
    });
    until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
    waiter.abort();
    until("the waiter has left the queue", || server.keys("n/") == held).await;
    let over = other.lock("n").acquire().wait(Duration::from_millis(50)).await.unwrap_err();
    assert!(over.is_contended(), "{over}");
    until("the late waiter has left the queue", || server.keys("n/") == held).await;
    guard.release().await.unwrap();
    drop((one, other));
    until("the leases are revoked", || server.ctl(&["lease", "list"]).contains("found 0 leases")).await;
}

/// The server would keep the lock for it for as long as its client lives.
#[tokio::test]
async fn own_507_a_waiter_that_is_not_polled_loses_its_place_when_its_turn_comes() {
    let server = Etcd::start();
    let (one, other, third) = (client(&server).await, client(&server).await, client(&server).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let lock = other.lock("n");
    let mut idle = pin!(lock.acquire().into_future());
    let polled = poll_fn(|context| {
        assert!(idle.as_mut().poll(context).is_pending());
        Poll::<()>::Pending
    });
    tokio::select! {
        () = polled => {}
        () = until("it is in the queue", || server.keys("n/").len() == 2) => {}
    }
    // Its watch is there.
    sleep(Duration::from_millis(200)).await;
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, third.lock("n").acquire()).await.unwrap().unwrap();
    next.release().await.unwrap();
    let late = timeout(PATIENCE, idle).await.unwrap().unwrap();
    assert!(third.lock("n").try_acquire().await.unwrap().is_none());
    late.release().await.unwrap();
    assert_eq!(server.keys("n/"), [""; 0]);
}

#[tokio::test]
async fn own_513_a_lock_waits_for_the_locks_below_its_name() {
    let server = Etcd::start();
    let client = client(&server).await;
    let below = client.lock("a/b").acquire().await.unwrap();
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    below.release().await.unwrap();
    let above = client.lock("a").acquire().await.unwrap();
    client.lock("a/b").acquire().await.unwrap().release().await.unwrap();
    above.release().await.unwrap();
}
