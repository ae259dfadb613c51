//! Primitives that share a file: the plain lock, the write half, and `flock(1)` in both modes.

use leasehold_testkit::bench::Files;

use crate::flock::{Flock, can_lock};
use crate::support::{connect, soon};

const NAME: &str = "shared";

#[tokio::test]
async fn a_lock_and_both_halves_of_a_read_write_lock_of_one_name_exclude_each_other() {
    let files = Files::new();
    let (client, other) = (connect(&files).await, connect(&files).await);
    let (lock, rw) = (client.lock(NAME), other.rw_lock(NAME));

    let guard = lock.acquire().await.unwrap();
    assert!(rw.write().try_acquire().await.unwrap().is_none());
    assert!(rw.read().try_acquire().await.unwrap().is_none());
    assert!(other.spin_lock(NAME).try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(rw.write().acquire().into_future());
    guard.release().await.unwrap();
    let writes = soon("the writer gets the lock", waiter).await.unwrap().unwrap();

    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(lock.acquire().into_future());
    writes.release().await.unwrap();
    let guard = soon("the lock is free after the writer", waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();

    let reads = rw.read().acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(lock.acquire().into_future());
    reads.release().await.unwrap();
    drop(soon("the lock is free after the reader", waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn shared_flock_reads_beside_our_readers_and_keeps_our_writers_out() {
    let files = Files::new();
    let (client, other) = (connect(&files).await, connect(&files).await);
    let (rw, file) = (client.rw_lock(NAME), files.lock_file(NAME));

    let flock = Flock::hold(&["-s"], &file).await;
    let reads = rw.read().try_acquire().await.unwrap().expect("readers share the file");
    assert!(rw.write().try_acquire().await.unwrap().is_none());
    assert!(other.lock(NAME).try_acquire().await.unwrap().is_none());
    assert!(can_lock(&["-s"], &file) && !can_lock(&[], &file));
    let writer = tokio::spawn(other.rw_lock(NAME).write().acquire().into_future());
    reads.release().await.unwrap();
    assert!(!writer.is_finished());
    flock.release();
    let writes = soon("the writer gets the lock", writer).await.unwrap().unwrap();

    assert!(!can_lock(&["-s"], &file) && !can_lock(&[], &file));
    let mut flock = Flock::start(&["-s"], &file);
    writes.release().await.unwrap();
    flock.held().await;
    flock.release();
    assert!(can_lock(&[], &file));
}
