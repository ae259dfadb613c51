//! Wake-ups by inotify: a waiter does not have to poll.

use std::path::Path;
use std::time::Duration;

use leasehold::{Client, Interrupt};
use leasehold_testkit::bench::{Backend as _, Files};
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

/// A blocked thread reads inotify by itself, for all waiters of its client. When it has its lock, another thread has to read.
#[tokio::test]
async fn waiters_are_woken_whether_a_blocked_thread_reads_or_has_stopped_reading() {
    let files = Files::new();
    let holding = connect(&files).await;
    // Made on a plain thread: no runtime reads for it.
    let url = files.url().to_owned();
    let client = std::thread::spawn(|| Client::connect(url).block().unwrap()).join().unwrap();
    let turn = async |holding: &Client, name: &str| {
        let guard = holding.lock(name).acquire().await.unwrap();
        let (lock, (send, waiter)) = (client.lock(name), tokio::sync::oneshot::channel());
        std::thread::spawn(move || {
            let guard = lock.acquire().block().unwrap();
            let _ = send.send((Instant::now(), guard));
        });
        until("the thread waits with the file open", || open_files(&files.lock_file(name)) == 2).await;
        (guard, waiter)
    };
    // Until the I/O thread has noticed that it does not have to read.
    for _ in 0..20 {
        let (guard, waiter) = turn(&holding, "first").await;
        drop(guard);
        drop(soon("the thread gets the lock", waiter).await.unwrap());
    }
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let mut turns = Vec::new();
        for name in ["first", "second", "third"] {
            turns.push(turn(&holding, name).await);
        }
        let [first, second, third] = turns.try_into().unwrap_or_else(|_| unreachable!());
        // The first thread reads for the second one, and has left when the third one is to be woken. The last one is woken by a
        // release of its own client.
        let mut longest = Duration::ZERO;
        for (guard, waiter) in [second, first, third, turn(&client, "fourth").await] {
            let begun = Instant::now();
            drop(guard);
            let (at, guard) = soon("the thread gets the lock", waiter).await.unwrap();
            longest = longest.max(at.duration_since(begun));
            drop(guard);
        }
        took.push(longest);
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] < WOKEN, "a thread is not woken, only polls: {took:?}");
}

#[tokio::test]
async fn a_thread_that_reads_is_woken_by_other_threads_too() {
    let files = Files::new();
    let client = connect(&files).await;
    let guard = client.lock(NAME).acquire().await.unwrap();
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let (interrupt, lock) = (Interrupt::new(), client.lock(NAME));
        let waiter = tokio::task::spawn_blocking({
            let interrupt = interrupt.clone();
            move || lock.acquire().block_until(&interrupt).map(drop)
        });
        until("the thread waits with the file open", || open_files(&files.lock_file(NAME)) == 2).await;
        let begun = Instant::now();
        interrupt.trigger();
        assert!(soon("the wait ends", waiter).await.unwrap().is_err());
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    assert!(took[took.len() * 3 / 4] < WOKEN, "the thread is not woken, only polls: {took:?}");
    drop(guard);
}

/// How often this process has a file open.
fn open_files(file: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    descriptors.filter(|descriptor| descriptor.path().read_link().is_ok_and(|of| of == file)).count()
}
