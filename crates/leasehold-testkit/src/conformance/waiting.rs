//! Waiting for a lock that is busy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::AcquireError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, MOMENT, Waiter, all_done, is_free_for, soon};
use crate::bench::Bench;

pub async fn hd_05_a_wait_times_out_at_its_limit_and_a_try_returns_at_once(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = elsewhere.acquire().await?;
    let begun = Instant::now();
    let over = soon(lock.acquire().wait(LEASE)).await.expect_err("the lock is busy");
    assert!(begun.elapsed() >= LEASE, "gave up after {:?}", begun.elapsed());
    assert!(matches!(over, AcquireError::Timeout { waited, .. } if waited >= LEASE), "{over:?}");
    assert!(over.is_contended() && over.is_transient() && !over.is_unavailable());
    assert!(!is_free_for(&lock).await?, "a try gives nothing, and no error");
    guard.release().await?;
    assert!(soon(lock.acquire().wait(LEASE)).await?.is_held());
    Ok(())
}

pub async fn lk_13_a_wait_keeps_its_limit_when_the_client_of_the_holder_is_gone(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let _abandoned = client.lock(bench.name("lock")).acquire().await?;
    client.shutdown(Duration::ZERO).await;
    let begun = Instant::now();
    let over = soon(bench.lock().await.acquire().wait(LEASE)).await;
    assert!(matches!(over, Err(AcquireError::Timeout { .. })), "{over:?}");
    assert!(begun.elapsed() >= LEASE, "gave up after {:?}", begun.elapsed());
    Ok(())
}

pub async fn own_04_waiters_of_one_client_are_served_in_fifo_order(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..5 {
        let (lock, served) = (lock.clone(), Arc::clone(&served));
        waiters.spawn(async move {
            let guard = lock.acquire().await?;
            served.lock().expect("no thread panicked").push(number);
            guard.release().await?;
            Ok(())
        });
        sleep(MOMENT).await;
    }
    guard.release().await?;
    all_done(waiters).await?;
    assert_eq!(*served.lock().expect("no thread panicked"), [0, 1, 2, 3, 4]);
    Ok(())
}

pub async fn own_27_a_wait_of_zero_is_one_try(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let at_once = || lock.acquire().wait(Duration::ZERO);
    let guard = elsewhere.acquire().await?;
    assert!(soon(at_once()).await.is_err_and(|error| error.is_contended()));
    guard.release().await?;
    assert!(at_once().await?.is_held());
    Ok(())
}

pub async fn own_28_force_unlock_wakes_the_next_waiter(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let victim = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert!(lock.force_unlock().await?);
    let next = waiter.outcome().await?;
    drop(victim);
    sleep(MOMENT).await;
    assert!(next.is_held() && !is_free_for(&lock).await?);
    Ok(())
}
