//! The spin lock: the plain lock, waited for by polling.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{AcquireError, BackOff, Lock, Loss, Owner};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Outcome;
use super::common::{LEASE, MOMENT, Waiter, all_done, is_free_for, is_pending_for, soon, taken};
use crate::bench::Bench;
use crate::tally::Tally;

/// The case's lock as a spin lock, with a new client.
async fn spin_lock(bench: &Bench) -> Lock {
    bench.client().await.spin_lock(bench.name("lock"))
}

pub async fn sp_01_a_spinning_waiter_acquires_the_lock_after_the_release(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (spin_lock(bench).await, spin_lock(bench).await);
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert!(is_pending_for(LEASE, std::future::pending::<()>()).await && waiter.waits());
    guard.release().await?;
    assert!(waiter.outcome().await?.is_held());
    Ok(())
}

pub async fn sp_02_a_spinning_wait_with_a_limit_acquires_the_lock_or_ends_in_time(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (spin_lock(bench).await, spin_lock(bench).await);
    let guard = lock.acquire().await?;
    let begun = Instant::now();
    // The pause is far longer than the wait limit, which applies.
    let patient = elsewhere.clone().back_off(BackOff::constant(Duration::from_secs(3600)));
    let over = soon(patient.acquire().wait(LEASE)).await.expect_err("the lock is busy");
    assert!(over.is_contended() && begun.elapsed() >= LEASE, "{over:?} after {:?}", begun.elapsed());
    let waiter = Waiter::begin(elsewhere.acquire().wait(LEASE * 10).lease(LEASE * 20)).await;
    assert!(waiter.waits());
    guard.release().await?;
    assert!(waiter.outcome().await?.is_held());
    Ok(())
}

pub async fn sp_04_a_try_of_a_spin_lock_does_not_wait(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (spin_lock(bench).await, spin_lock(bench).await);
    let guard = taken(&lock).await?;
    assert!(elsewhere.try_acquire().await?.is_none() && lock.try_acquire().await?.is_none());
    guard.release().await?;
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn own_41_a_spin_lock_is_the_plain_lock_of_that_name(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (spin, plain) = (client.spin_lock(bench.name("lock")), client.lock(bench.name("lock")));
    let elsewhere = bench.lock().await;
    let me = Owner::unique();

    let guard = spin.acquire().as_owner(&me).await?;
    assert!(!is_free_for(&plain).await? && !is_free_for(&elsewhere).await?);
    assert!(plain.is_held_by(&me).await? && elsewhere.is_locked().await?);
    // The owner holds the lock already, whichever handle it uses.
    let inner = plain.acquire().as_owner(&me).await?;
    assert_eq!(spin.hold_count(&me).await?, 2);
    assert_eq!(inner.release().await?.holds_left, 1);
    assert!(guard.is_held());
    assert_eq!(plain.as_owner(&me).release().await?.holds_left, 0);
    assert!(!guard.is_held() && is_free_for(&elsewhere).await?);

    let guard = soon(spin.acquire()).await?;
    let inner = plain.acquire().as_owner(guard.owner()).await?;
    assert_eq!(inner.release().await?.holds_left, 1);
    assert!(plain.force_unlock().await?);
    assert_eq!(soon(guard.lost()).await, Loss::ForceUnlocked);
    let guard = plain.acquire().await?;
    assert!(spin.force_unlock().await?);
    assert_eq!(soon(guard.lost()).await, Loss::ForceUnlocked);
    Ok(())
}

pub async fn own_42_a_spinning_waiter_can_be_cancelled(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (spin_lock(bench).await, spin_lock(bench).await);
    let guard = lock.acquire().await?;
    let waiters = [Waiter::begin(elsewhere.acquire()).await, Waiter::begin(elsewhere.acquire()).await];
    for waiter in waiters {
        waiter.cancel();
        assert!(waiter.gone().await.is_err_and(|error| error.is_cancelled()));
    }
    guard.release().await?;
    tokio::time::sleep(MOMENT).await;
    assert!(is_free_for(&lock).await?);
    Ok(())
}

pub async fn own_43_a_spinning_waiter_is_notified_of_a_shutdown(bench: &Bench) -> Outcome {
    let (lock, client) = (spin_lock(bench).await, bench.client().await);
    let _guard = lock.acquire().await?;
    let slow = client.spin_lock(bench.name("lock")).back_off(BackOff::constant(Duration::from_secs(3600)));
    let waiter = Waiter::begin(slow.acquire()).await;
    client.shutdown(Duration::ZERO).await;
    let told = waiter.outcome().await;
    assert!(
        matches!(told, Err(AcquireError::Invalid { cause: leasehold::InvalidRequestError::ShutDown, .. })),
        "{told:?}"
    );
    Ok(())
}

pub async fn own_44_spinning_tasks_hold_the_lock_one_at_a_time(bench: &Bench) -> Outcome {
    let tally = Arc::new(Tally::default());
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (lock, tally) = (spin_lock(bench).await, Arc::clone(&tally));
        tasks.spawn(async move {
            for turn in 0..5 {
                let guard = lock.acquire().await?;
                tally.add().await;
                if turn % 2 == 0 {
                    guard.release().await?;
                }
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert_eq!(tally.count(), 8 * 5);
    Ok(())
}
