//! Waits and holds that are cancelled midway.

use std::future::{IntoFuture, pending};

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use super::Outcome;
use super::common::{LEASE, MOMENT, Waiter, is_free_for, is_pending_for, soon};
use crate::bench::{Bench, FREE_WITH_WAITERS};

pub async fn hd_06_a_cancelled_waiter_ends_and_delays_no_other_acquire(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    waiter.cancel();
    assert!(waiter.gone().await.is_err_and(|error| error.is_cancelled()));
    assert!(guard.is_held());
    guard.release().await?;
    if bench.lacks(FREE_WITH_WAITERS) {
        // The server may still have the place of the waiter, whose client is about to remove it.
        soon(lock.acquire()).await?.release().await?;
        return Ok(());
    }
    assert!(is_free_for(&lock).await?, "the lock is granted without a wait");
    Ok(())
}

pub async fn hd_07_an_operation_dropped_before_its_first_poll_does_nothing(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    drop(lock.acquire().into_future());
    drop(lock.try_acquire().into_future());
    sleep(MOMENT).await;
    assert!(!lock.is_locked().await?);

    let guard = lock.acquire().await?;
    drop(lock.acquire().steal().into_future());
    drop(lock.force_unlock());
    drop(guard.extend(LEASE));
    drop(guard.reenter());
    sleep(MOMENT).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await?.holds_left, 0);
    Ok(())
}

pub async fn cx_11_waiters_cancelled_together_all_end(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    for release_first in [true, false, true, false] {
        let guard = lock.acquire().await?;
        let mut waiters = JoinSet::new();
        for _ in 0..100 {
            waiters.spawn(lock.acquire().into_future());
        }
        sleep(MOMENT).await;
        let holder = if release_first {
            // One of them has been notified that it is next, and may even hold the lock.
            guard.release().await?;
            None
        } else {
            Some(guard)
        };
        waiters.abort_all();
        while let Some(end) = soon(waiters.join_next()).await {
            assert!(release_first || end.as_ref().is_err_and(JoinError::is_cancelled), "{end:?}");
        }
        drop(holder);
        soon(lock.acquire()).await?.release().await?;
    }
    Ok(())
}

pub async fn cx_12_a_deadline_of_the_caller_ends_the_wait_and_the_hold(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = elsewhere.acquire().await?;
    assert!(is_pending_for(LEASE, lock.acquire().into_future()).await);
    guard.release().await?;

    let work = async {
        let _guard = lock.acquire().await.expect("the lock is free");
        pending::<()>().await;
    };
    assert!(is_pending_for(LEASE, work).await);
    assert!(soon(elsewhere.acquire()).await?.is_held());
    Ok(())
}

pub async fn cx_16_a_cancelled_holder_and_waiter_leave_nothing_behind(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().await?;
    let holder = tokio::spawn(async move {
        let _guard = guard;
        pending::<()>().await;
    });
    let waiter = Waiter::begin(bench.lock().await.acquire()).await;
    waiter.cancel();
    holder.abort();
    assert!(waiter.gone().await.is_err() && soon(holder).await.is_err());
    bench.nothing_is_left().await;
    assert!(!lock.is_locked().await?);
    Ok(())
}

pub async fn own_05_the_turn_of_a_cancelled_waiter_goes_to_the_next_waiter(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().await?;
    let first = Waiter::begin(lock.acquire()).await;
    let second = Waiter::begin(lock.acquire()).await;
    guard.release().await?;
    first.cancel();
    drop(first.gone().await);
    assert!(second.outcome().await?.is_held());
    Ok(())
}
