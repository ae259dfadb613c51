//! Re-entering a lock, when the reply does not arrive or the caller does not wait for it.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::{Acquire, Client, Guard, Lock, Loss, Owner};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, connect, granted, keys, soon, subscribed, until};

on_both! {
    a_lease_that_a_re_entry_without_a_reply_may_have_shortened_is_not_trusted
    a_dropped_re_entry_does_not_renew_a_hold_beyond_its_lease
    a_dropped_re_entry_with_a_lease_does_not_end_a_renewed_hold
    a_dropped_re_entry_does_not_end_the_hold_of_the_next_task
    a_renewal_does_not_revert_an_extension
}

/// Sends the request of a future, and drops the future. False if the reply arrived at once, which is rare.
fn begin_and_drop<F: Future + Unpin>(mut future: F) -> bool {
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// A guard, after a re-entry of its owner that was dropped before its reply was read.
async fn left_alone(lock: &Lock, acquire: Acquire, again: Acquire) -> Guard {
    loop {
        let guard = acquire.clone().await.unwrap();
        if begin_and_drop(again.clone().into_future()) {
            return guard;
        }
        drop(guard);
        while lock.is_locked().await.unwrap() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn a_lease_that_a_re_entry_without_a_reply_may_have_shortened_is_not_trusted(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).watchdog(SECOND).await.unwrap();
    let (lock, owner) = (client.lock("n"), Owner::number(7));
    let guard = lock.acquire().as_owner(&owner).lease(SECOND * 300).await.unwrap();
    proxy.lose_reply_once(Which::Command);
    assert!(lock.try_acquire().as_owner(&owner).await.is_err_and(|error| error.is_unavailable()));
    assert!(
        guard.remaining() <= SECOND,
        "{:?}: the server may keep it for one watchdog time",
        guard.remaining()
    );
    soon("the loss", guard.lost()).await;
    until("the lock is released on the server", || keys(&server).is_empty()).await;
}

async fn a_dropped_re_entry_does_not_renew_a_hold_beyond_its_lease(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND * 2).await.unwrap();
    let (lock, owner) = (client.lock("n"), Owner::number(7));
    let as_owner = || lock.acquire().as_owner(&owner);
    let guard = left_alone(&lock, as_owner().lease(SECOND), as_owner()).await;
    assert_eq!(soon("the end of the lease", guard.lost()).await, Loss::Expired);
    until("nothing renews it", || keys(&server).is_empty()).await;
}

async fn a_dropped_re_entry_with_a_lease_does_not_end_a_renewed_hold(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
    let (lock, owner) = (client.lock("n"), Owner::number(7));
    let as_owner = || lock.acquire().as_owner(&owner);
    let guard = left_alone(&lock, as_owner(), as_owner().lease(SECOND)).await;
    sleep(SECOND * 4).await;
    assert!(guard.is_held(), "it is kept as long as its guard lives");
    assert_eq!(lock.hold_count(&owner).await.unwrap(), 1);
}

async fn a_dropped_re_entry_does_not_end_the_hold_of_the_next_task(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.lock("n");
    for _ in 0..20 {
        let first = lock.acquire().await.unwrap();
        let second = tokio::spawn(lock.acquire().into_future());
        subscribed(&server, "redisson_lock__channel:{n}", 1).await;
        sleep(Duration::from_millis(5)).await;
        // Whether or not the reply arrived at once, the next task must get the hold unchanged.
        let _ = begin_and_drop(first.reenter());
        drop(first);
        let second = granted(second).await;
        sleep(Duration::from_millis(20)).await;
        assert!(second.is_held() && lock.is_locked().await.unwrap());
        second.release().await.unwrap();
    }
}

async fn a_renewal_does_not_revert_an_extension(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND / 2).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    guard.extend(SECOND * 600).await.unwrap();
    sleep(SECOND).await;
    assert!(guard.remaining() > SECOND * 500, "{:?} after some renewals", guard.remaining());
}
