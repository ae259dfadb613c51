//! Locks taken over from their holder on purpose.

use leasehold::{Guard, Lock, Loss, ReleaseError};
use tokio::time::sleep;

use super::common::{MOMENT, Waiter, is_free_for, is_pending_for, short_watchdog, soon};
use super::{Failed, Outcome};
use crate::bench::{Bench, TAKEOVER_FIRST};

pub async fn cx_05_a_client_can_take_a_lock_over_from_itself(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let thief = rob(lock.acquire().await?, &lock).await?;
    drop(rob(thief, &lock).await?);
    Ok(())
}

pub async fn cx_06_a_client_can_take_a_lock_over_from_another_client(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock_with(short_watchdog).await);
    let thief = rob(lock.acquire().await?, &elsewhere).await?;
    drop(rob(thief, &lock).await?);
    Ok(())
}

/// Takes a lock over from its holder and checks what both see.
async fn rob(victim: Guard, lock: &Lock) -> Result<Guard, Failed> {
    let thief = soon(lock.acquire().steal()).await?;
    assert_eq!(soon(victim.lost()).await, Loss::TakenOver);
    assert!(!victim.is_held());
    assert!(matches!(soon(victim.release()).await, Err(ReleaseError::NotHeld { loss: Loss::TakenOver, .. })));
    assert!(thief.is_held() && !is_free_for(lock).await?, "the victim's release does not touch it");
    Ok(thief)
}

pub async fn own_25_queued_waiters_acquire_the_lock_after_a_take_over(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock().await);
    let victim = lock.acquire().await?;
    let waiter = Waiter::begin(lock.acquire()).await;
    if bench.lacks(TAKEOVER_FIRST) {
        while lock.waiters().await?.at_least == 0 {
            sleep(MOMENT).await;
        }
        let thief = Waiter::begin(elsewhere.acquire().steal()).await;
        assert_eq!(soon(victim.lost()).await, Loss::TakenOver);
        let first = waiter.outcome().await?;
        assert!(is_pending_for(MOMENT, first.lost()).await && thief.waits(), "it takes over once");
        first.release().await?;
        assert!(thief.outcome().await?.is_held());
        return Ok(());
    }
    let thief = soon(elsewhere.acquire().steal()).await?;
    drop(victim);
    assert!(is_pending_for(MOMENT, thief.lost()).await && waiter.waits());
    thief.release().await?;
    assert!(waiter.outcome().await?.is_held());
    Ok(())
}

pub async fn own_26_a_take_over_acquires_a_free_lock(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().steal().await?;
    assert!(guard.is_held() && !is_free_for(&lock).await?);
    assert_eq!(guard.release().await?.holds_left, 0);
    Ok(())
}
