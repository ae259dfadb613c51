//! The fair lock: FIFO among the waiters of all clients.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{AcquireError, FairLock, InvalidRequestError, Loss, Owner};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, LONG_LEASE, MOMENT, all_done, is_nearly, is_pending_for, soon};
use crate::bench::{Bench, FREE_WITH_WAITERS, LEASES};

async fn fair_lock(bench: &Bench) -> FairLock {
    bench.client().await.fair_lock(bench.name("lock"))
}

/// Waits until the queue has so many waiters.
async fn queued(lock: &FairLock, number: usize) -> Outcome {
    let begun = Instant::now();
    while lock.queue().await?.len() != number {
        assert!(begun.elapsed() < Duration::from_secs(10), "{number} should be queued");
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

pub async fn fl_01_a_fair_lock_is_granted_in_queue_order_as_leases_expire(bench: &Bench) -> Outcome {
    let locks = [fair_lock(bench).await, fair_lock(bench).await];
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    // Longer than a machine stalls: a reply that comes after the lease ends a wait.
    let lease = LEASE * 3;
    let _first = locks[0].acquire().lease(lease).await?;
    for number in 0..5 {
        let (lock, order) = (locks[number % 2].clone(), Arc::clone(&order));
        tasks.spawn(async move {
            let guard = lock.acquire().wait(LONG_LEASE).lease(lease).await?;
            order.lock().expect("no thread panicked").push(number);
            // There is no release: the next waiter acquires it when the lease is over.
            assert_eq!(guard.lost().await, Loss::Expired);
            Ok(())
        });
        queued(&locks[0], number + 1).await?;
    }
    all_done(tasks).await?;
    assert_eq!(*order.lock().expect("no thread panicked"), [0, 1, 2, 3, 4]);
    Ok(())
}

pub async fn fl_02_waiters_of_many_clients_are_served_in_fifo_order(bench: &Bench) -> Outcome {
    let held = fair_lock(bench).await.acquire().await?;
    let watch = fair_lock(bench).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let (lock, order) = (fair_lock(bench).await, Arc::clone(&order));
        tasks.spawn(async move {
            let guard = lock.acquire().await?;
            order.lock().expect("no thread panicked").push(number);
            guard.release().await?;
            Ok(())
        });
        queued(&watch, number + 1).await?;
    }
    held.release().await?;
    all_done(tasks).await?;
    assert_eq!(*order.lock().expect("no thread panicked"), (0..12).collect::<Vec<_>>());
    Ok(())
}

pub async fn fl_03_many_waiters_all_acquire_the_fair_lock(bench: &Bench) -> Outcome {
    let locks = [fair_lock(bench).await, fair_lock(bench).await];
    let value = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let (lock, value) = (locks[number % 2].clone(), Arc::clone(&value));
        tasks.spawn(async move {
            let guard = lock.acquire().lease(LONG_LEASE).await?;
            let seen = *value.lock().expect("no thread panicked");
            tokio::task::yield_now().await;
            *value.lock().expect("no thread panicked") = seen + 1;
            guard.release().await?;
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert_eq!(*value.lock().expect("no thread panicked"), 100);
    Ok(())
}

pub async fn fl_10_a_try_neither_queues_nor_overtakes(bench: &Bench) -> Outcome {
    bench.needs(FREE_WITH_WAITERS)?;
    let lock = fair_lock(bench).await;
    let held = lock.acquire().await?;
    assert!(lock.try_acquire().await?.is_none());
    assert!(lock.queue().await?.is_empty());
    let mut waiter = fair_lock(bench).await.acquire().into_future();
    assert!(is_pending_for(MOMENT, &mut waiter).await);
    queued(&lock, 1).await?;
    assert!(lock.try_acquire().await?.is_none());
    held.release().await?;
    // The lock is free, and the waiter does not acquire it before its future is polled again.
    assert!(!lock.is_locked().await?);
    for other in [&lock, &fair_lock(bench).await] {
        assert!(other.try_acquire().await?.is_none(), "it is the turn of the waiter");
    }
    assert_eq!(lock.queue().await?.len(), 1, "a try does not queue");
    let served = soon(waiter).await?;
    assert!(lock.try_acquire().await?.is_none());
    served.release().await?;
    drop(lock.try_acquire().await?.expect("no other waiter"));
    Ok(())
}

pub async fn fl_14_a_waiter_that_gives_up_leaves_nothing_in_the_queue(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await;
    let held = lock.acquire().await?;
    let late = lock.acquire().wait(MOMENT).await;
    assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
    queued(&lock, 0).await?;
    let cancelled = tokio::spawn(lock.acquire().into_future());
    queued(&lock, 1).await?;
    cancelled.abort();
    queued(&lock, 0).await?;
    held.release().await?;
    drop(lock.try_acquire().await?.expect("no waiter is queued before us"));
    Ok(())
}

pub async fn own_100_the_next_waiter_is_served_when_a_waiter_leaves_the_queue(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await;
    let held = lock.acquire().await?;
    let first = tokio::spawn(fair_lock(bench).await.acquire().into_future());
    queued(&lock, 1).await?;
    let second = tokio::spawn(fair_lock(bench).await.acquire().into_future());
    queued(&lock, 2).await?;
    first.abort();
    held.release().await?;
    drop(soon(second).await??);
    Ok(())
}

pub async fn own_101_a_waiter_is_notified_of_its_queue_position(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await;
    let held = lock.acquire().await?;
    let first = tokio::spawn(fair_lock(bench).await.acquire().into_future());
    queued(&lock, 1).await?;
    let me = Owner::unique();
    let places = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&places);
    let watcher = fair_lock(bench).await;
    let watched = watcher
        .acquire()
        .as_owner(&me)
        .on_position(move |queued| seen.lock().expect("no panic").push(queued));
    let second = tokio::spawn(watched.into_future());
    queued(&lock, 2).await?;
    held.release().await?;
    let first = soon(first).await??;
    let begun = Instant::now();
    // A queue heartbeat reports it at the latest.
    while places.lock().expect("no panic").last().is_none_or(|queued| queued.position != 1) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{places:?}");
        sleep(Duration::from_millis(5)).await;
    }
    let first_in_line = lock.queue().await?;
    assert_eq!(first_in_line.len(), 1);
    first.release().await?;
    let served = soon(second).await??;
    assert_eq!(first_in_line, [served.owner()]);
    let places = places.lock().expect("no panic");
    let positions: Vec<_> = places.iter().map(|queued| queued.position).collect();
    assert_eq!(positions, [2, 1]);
    assert!(places.iter().all(|queued| !queued.requeued));
    Ok(())
}

pub async fn own_102_an_owner_re_enters_a_fair_lock_at_once(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await;
    let me = Owner::unique();
    let outer = lock.acquire().as_owner(&me).lease(LONG_LEASE).await?;
    let waiter = tokio::spawn(fair_lock(bench).await.acquire().into_future());
    queued(&lock, 1).await?;
    // The queue does not apply to the holder.
    let inner = soon(lock.acquire().as_owner(&me).lease(LONG_LEASE)).await?;
    assert_eq!(lock.hold_count(&me).await?, 2);
    let left = lock.ttl().await?.expect("it is held");
    assert!(bench.lacks(LEASES) || is_nearly(left, LONG_LEASE), "{left:?}");
    inner.release().await?;
    assert!(!waiter.is_finished());
    outer.release().await?;
    drop(soon(waiter).await??);
    Ok(())
}

pub async fn own_105_re_entering_a_non_reentrant_fair_lock_is_an_error_at_once(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await.non_reentrant();
    let me = Owner::unique();
    let guard = lock.acquire().as_owner(&me).await?;
    for again in [
        lock.acquire().as_owner(&me).await.err(),
        lock.acquire().as_owner(&me).wait(MOMENT).await.err(),
        lock.try_acquire().as_owner(&me).await.err(),
    ] {
        assert!(
            matches!(again, Some(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. })),
            "{again:?}"
        );
    }
    assert!(lock.queue().await?.is_empty());
    assert_eq!(guard.release().await?.holds_left, 0);
    Ok(())
}

pub async fn own_103_a_fair_and_a_plain_lock_of_one_name_are_one_lock(bench: &Bench) -> Outcome {
    let (fair, plain) = (fair_lock(bench).await, bench.lock().await);
    let guard = fair.acquire().fenced().await?;
    assert!(plain.try_acquire().await?.is_none());
    assert_eq!(plain.holder().await?.expect("it is held").owner, Some(guard.owner()));
    let token = guard.token();
    guard.release().await?;
    let guard = plain.acquire().fenced().await?;
    assert!(guard.token() > token);
    assert!(fair.try_acquire().await?.is_none());
    Ok(())
}

pub async fn own_104_force_unlock_frees_a_fair_lock_for_its_next_waiter(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await;
    let held = lock.acquire().await?;
    let waiter = tokio::spawn(fair_lock(bench).await.acquire().into_future());
    queued(&lock, 1).await?;
    assert!(lock.force_unlock().await?);
    assert_eq!(soon(held.lost()).await, Loss::ForceUnlocked);
    drop(soon(waiter).await??);
    Ok(())
}

pub async fn own_477_force_unlock_of_a_fair_lock_wakes_a_waiter_of_the_plain_lock(bench: &Bench) -> Outcome {
    let lock = fair_lock(bench).await;
    let _held = bench.lock().await.acquire().lease(LONG_LEASE).await?;
    let mut waiter = tokio::spawn(bench.lock().await.acquire().into_future());
    assert!(is_pending_for(MOMENT, &mut waiter).await);
    assert!(lock.force_unlock().await?);
    drop(soon(waiter).await??);
    Ok(())
}

pub async fn own_106_two_waiters_of_one_owner_both_acquire_the_fair_lock(bench: &Bench) -> Outcome {
    let (lock, me) = (fair_lock(bench).await, Owner::unique());
    let held = fair_lock(bench).await.acquire().await?;
    let waiters = [(); 2].map(|()| tokio::spawn(lock.acquire().as_owner(&me).into_future()));
    while lock.queue().await?.is_empty() {
        sleep(Duration::from_millis(2)).await;
    }
    held.release().await?;
    for waiter in waiters {
        drop(soon(waiter).await??);
    }
    Ok(())
}
