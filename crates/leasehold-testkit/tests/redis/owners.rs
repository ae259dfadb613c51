//! An owner that was shown to a caller belongs to one guard, whatever becomes of the hold.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::{AcquireError, Client, ExtendError, Guard, Lock, Loss, Owner, ReleaseError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, Waiter, connect, granted, subscribed};

on_both! {
    the_owner_of_a_released_guard_does_not_re_enter_the_hold_of_the_next_task
    the_owner_of_a_released_guard_does_not_release_the_lock_of_the_next_task
    an_owner_disclosed_by_a_query_is_not_handed_over_to_the_next_task
    an_owner_disclosed_by_an_error_is_not_handed_over_to_the_next_task
    an_extension_awaited_after_the_release_does_not_affect_the_next_task
}

const CHANNEL: &str = "redisson_lock__channel:{n}";
const SOON: Duration = Duration::from_millis(100);

/// Two tasks of one client: the first holds the lock, the second waits for it.
async fn one_after_the_other(server: &Server, client: &Client) -> (Guard, Waiter) {
    let first = client.lock("n").acquire().await.unwrap();
    let second = tokio::spawn(client.lock("n").acquire().into_future());
    subscribed(server, CHANNEL, 1).await;
    // Its last retry before it sleeps; no event reports the end of it.
    sleep(Duration::from_millis(10)).await;
    (first, second)
}

async fn is_not_the_owner(lock: &Lock, old: &Owner, now: &Guard) {
    let again = lock.acquire().as_owner(old).wait(SOON).await;
    assert!(matches!(again, Err(AcquireError::Timeout { .. })), "beside another task: {again:?}");
    let released = lock.as_owner(old).release().await;
    assert!(matches!(released, Err(ReleaseError::NotOwner { .. })), "{released:?}");
    assert!(!lock.is_held_by(old).await.unwrap() && lock.hold_count(old).await.unwrap() == 0);
    assert!(now.is_held() && lock.is_held_by(now.owner()).await.unwrap());
    assert_ne!(now.owner(), *old);
}

async fn the_owner_of_a_released_guard_does_not_re_enter_the_hold_of_the_next_task(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for _ in 0..10 {
        let (first, second) = one_after_the_other(&server, &client).await;
        let old = first.owner();
        first.release().await.unwrap();
        let second = granted(second).await;
        is_not_the_owner(&client.lock("n"), &old, &second).await;
        second.release().await.unwrap();
    }
}

async fn the_owner_of_a_released_guard_does_not_release_the_lock_of_the_next_task(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for _ in 0..10 {
        let (first, second) = one_after_the_other(&server, &client).await;
        let old = first.owner();
        drop(first);
        let second = granted(second).await;
        let released = client.lock("n").as_owner(&old).release().await;
        assert!(matches!(released, Err(ReleaseError::NotOwner { .. })), "{released:?}");
        assert!(second.is_held());
        second.release().await.unwrap();
    }
}

async fn an_owner_disclosed_by_a_query_is_not_handed_over_to_the_next_task(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (first, second) = one_after_the_other(&server, &client).await;
    let holder = client.lock("n").holder().await.unwrap().expect("it is held");
    drop(first);
    let second = granted(second).await;
    is_not_the_owner(&client.lock("n"), &holder.owner.expect("one of ours"), &second).await;
}

async fn an_owner_disclosed_by_an_error_is_not_handed_over_to_the_next_task(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let first = client.lock("n").acquire().await.unwrap();
    let error = client.lock("n").acquire().wait(Duration::from_millis(1)).await.unwrap_err();
    let second = tokio::spawn(client.lock("n").acquire().into_future());
    subscribed(&server, CHANNEL, 1).await;
    sleep(Duration::from_millis(10)).await;
    drop(first);
    let second = granted(second).await;
    // A wait that timed out before its first reply has no holder to report.
    if let AcquireError::Timeout { holder: Some(holder), .. } = error {
        is_not_the_owner(&client.lock("n"), &holder, &second).await;
    }
}

async fn an_extension_awaited_after_the_release_does_not_affect_the_next_task(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND * 5).await.unwrap();
    for _ in 0..10 {
        let (first, second) = one_after_the_other(&server, &client).await;
        let extension = first.extend(SECOND * 600);
        first.release().await.unwrap();
        let second = granted(second).await;
        let extended = extension.await;
        assert!(matches!(extended, Err(ExtendError::NotHeld { loss: Loss::Gone, .. })), "{extended:?}");
        let left = client.lock("n").ttl().await.unwrap().expect("it is held");
        assert!(left <= SECOND * 5 && second.remaining() <= SECOND * 5, "{left:?}");
        second.release().await.unwrap();
    }
}
