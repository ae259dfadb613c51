//! Wake-ups by inotify: a waiter does not have to poll.

use std::time::Duration;

use leasehold_testkit::bench::Files;
use tokio::time::Instant;

use crate::flock::Flock;
use crate::support::{blocked, connect, soon, until};

const NAME: &str = "woken";
/// Much shorter than the time after which a waiter polls, and longer than a wake-up takes on a busy machine, if it may try
/// several times.
const WOKEN: Duration = Duration::from_millis(50);
const TRIES: u32 = 10;

/// Whether a wake-up is slow in all of some tries.
async fn woken(what: &str, mut hand_over: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..TRIES {
        took.push(hand_over().await);
        if took.iter().any(|took| *took < WOKEN) {
            return;
        }
    }
    panic!("{what} is not woken, only polls: {took:?}");
}

#[tokio::test]
async fn every_new_client_is_woken_long_before_it_would_poll() {
    let files = Files::new();
    let holding = connect(&files).await;
    for number in 0..40 {
        let client = connect(&files).await;
        woken(&format!("client {number}"), async || {
            let guard = holding.lock(NAME).acquire().await.unwrap();
            let waiter = tokio::spawn(client.lock(NAME).acquire().into_future());
            // The current thread runs the waiter up to its first wait.
            tokio::task::yield_now().await;
            let begun = Instant::now();
            drop(guard);
            drop(soon("the waiter gets the lock", waiter).await.unwrap().unwrap());
            begun.elapsed()
        })
        .await;
    }
}

#[tokio::test]
async fn a_waiter_is_woken_when_flock_releases_the_file_and_when_flock_waits_behind_it() {
    let files = Files::new();
    let client = connect(&files).await;
    let file = files.lock_file(NAME);
    woken("a waiter behind flock(1)", async || {
        let flock = Flock::hold(&[], &file).await;
        let waiter = tokio::spawn(client.lock(NAME).acquire().into_future());
        tokio::task::yield_now().await;
        let begun = Instant::now();
        flock.release();
        drop(soon("the waiter gets the lock", waiter).await.unwrap().unwrap());
        begun.elapsed()
    })
    .await;
    woken("flock(1) behind a guard", async || {
        let guard = client.lock(NAME).acquire().await.unwrap();
        let mut flock = Flock::start(&[], &file);
        until("flock(1) is blocked", || blocked(&file) == 1).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        flock.held().await;
        flock.release();
        begun.elapsed()
    })
    .await;
}

#[tokio::test]
async fn waiters_for_permits_groups_and_latches_are_woken_by_other_clients() {
    let files = Files::new();
    let (one, two) = (connect(&files).await, connect(&files).await);
    assert_eq!(one.semaphore(NAME).try_set_permits(1).await, Ok(true));
    assert_eq!(one.leased_semaphore(NAME).try_set_permits(1).await, Ok(true));
    woken("a waiter for counted permits", async || {
        let permits = one.semaphore(NAME).acquire(1).await.unwrap();
        let waiter = tokio::spawn(two.semaphore(NAME).acquire(1).into_future());
        has_tried(two.semaphore(NAME).available()).await;
        let begun = Instant::now();
        permits.release().await.unwrap();
        drop(soon("the waiter gets the permits", waiter).await.unwrap().unwrap());
        begun.elapsed()
    })
    .await;
    woken("a waiter for leased permits", async || {
        let permits = one.leased_semaphore(NAME).acquire(1).await.unwrap();
        let waiter = tokio::spawn(two.leased_semaphore(NAME).acquire(1).into_future());
        has_tried(two.leased_semaphore(NAME).available()).await;
        let begun = Instant::now();
        permits.release().await.unwrap();
        drop(soon("the waiter gets the permits", waiter).await.unwrap().unwrap());
        begun.elapsed()
    })
    .await;
    woken("a waiter for a group", async || {
        let guard = one.group_lock(NAME, ["a", "b"]).acquire().await.unwrap();
        let waiter = tokio::spawn(two.group_lock(NAME, ["b", "c"]).acquire().into_future());
        has_tried(two.group_lock(NAME, ["b"]).is_locked()).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        drop(soon("the waiter gets the group", waiter).await.unwrap().unwrap());
        begun.elapsed()
    })
    .await;
    woken("a waiter for a latch", async || {
        assert_eq!(one.latch(NAME).try_set_count(1).await, Ok(true));
        let waiter = tokio::spawn(two.latch(NAME).opened().into_future());
        has_tried(two.latch(NAME).count()).await;
        let begun = Instant::now();
        one.latch(NAME).count_down().await.unwrap();
        soon("the latch opens", waiter).await.unwrap().unwrap();
        begun.elapsed()
    })
    .await;
}

/// Requests of one client about one name are carried out in order: when a later query has a reply, the waiter has tried.
async fn has_tried<T>(query: impl Future<Output = T>) {
    tokio::task::yield_now().await;
    drop(soon("a query behind the waiter", query).await);
}
