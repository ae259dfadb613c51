//! Many waiters for one lock.

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use leasehold_testkit::bench::Files;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::driver;
use crate::support::{Count, connect, soon, until};

const NAME: &str = "many";

/// A count by reading, yielding and writing. It is atomic only because Rust requires it.
#[derive(Default)]
struct Turns(AtomicUsize);

impl Turns {
    async fn add(&self) {
        let seen = self.0.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert_eq!(self.0.swap(seen + 1, Ordering::SeqCst), seen, "two held the lock at once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_ten_thousand_waiters_of_a_client_gets_the_lock_once() {
    const WAITERS: usize = 10_000;
    let files = Files::new();
    let (client, other) = (connect(&files).await, connect(&files).await);
    let guard = other.lock(NAME).acquire().await.unwrap();
    let turns = Arc::new(Turns::default());
    let (waiting, all_wait) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (lock, turns) = (client.lock(NAME), Arc::clone(&turns));
            let (waiting, all_wait) = (Arc::clone(&waiting), Arc::clone(&all_wait));
            tokio::spawn(async move {
                let mut acquire = Box::pin(lock.acquire().into_future());
                poll_fn(|context| {
                    assert!(acquire.as_mut().poll(context).is_pending(), "the lock is held");
                    Poll::Ready(())
                })
                .await;
                if waiting.fetch_add(1, Ordering::SeqCst) + 1 == WAITERS {
                    all_wait.notify_one();
                }
                let guard = acquire.await.unwrap();
                turns.add().await;
                drop(guard);
            })
        })
        .collect();
    soon("all of them wait", all_wait.notified()).await;
    assert_eq!(turns.0.load(Ordering::SeqCst), 0);
    let begun = Instant::now();
    guard.release().await.unwrap();
    for task in tasks {
        soon("a waiter gets the lock", task).await.unwrap();
    }
    assert_eq!(turns.0.load(Ordering::SeqCst), WAITERS);
    println!("waiters: {WAITERS} in {:?}", begun.elapsed());
    soon("the lock is free", other.lock(NAME).acquire().into_future())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn each_of_two_hundred_waiters_of_two_processes_gets_the_lock_once() {
    const EACH: u64 = 100;
    let (files, count) = (Files::new(), Count::new());
    let client = connect(&files).await;
    let guard = client.lock(NAME).acquire().await.unwrap();
    let processes = ["one", "two"].map(|name| driver::start(name, &files));
    let waiting: Vec<_> = processes
        .iter()
        .map(|process| process.tell("a", &format!("turns {NAME} {EACH} {}", count.path().display())))
        .collect();
    // A waiter keeps its file open: both processes wait when they have one.
    let file = files.lock_file(NAME);
    until("both processes wait", || processes.iter().all(|process| has_open(process.id(), &file))).await;
    assert_eq!(count.value(), 0);
    guard.release().await.unwrap();
    for waiting in waiting {
        soon("the waiters of a process get the lock", waiting.ok()).await;
    }
    assert_eq!(count.value(), 2 * EACH);
}

/// Whether a process has a file open.
fn has_open(process: u32, file: &std::path::Path) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    open.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == file))
}
