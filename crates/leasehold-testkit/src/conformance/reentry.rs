//! A lock that is re-entered.

use std::time::Duration;

use leasehold::{AcquireError, Loss, Owner};
use tokio::time::Instant;

use super::Outcome;
use super::common::{LEASE, is_free_for, is_nearly, soon};
use crate::bench::Bench;

pub async fn lk_08_an_owner_re_enters_and_other_owners_stay_out(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let me = Owner::unique();
    let enter = || lock.try_acquire().as_owner(&me);
    let outer = enter().await?.expect("the lock is free");
    let inner = enter().await?.expect("the owner enters again");
    assert_eq!(inner.release().await?.holds_left, 1);
    assert!(!is_free_for(&lock).await? && !is_free_for(&elsewhere).await?);
    assert_eq!(outer.release().await?.holds_left, 0);
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn rl_02_a_partial_release_keeps_the_lease_of_the_hold(bench: &Bench) -> Outcome {
    const TEN: Duration = Duration::from_secs(10);
    let lock = bench.lock().await;
    let me = Owner::unique();
    let enter = || lock.acquire().as_owner(&me).lease(TEN);
    let (_outer, middle, inner) = (enter().await?, enter().await?, enter().await?);
    inner.release().await?;
    middle.release().await?;
    assert_eq!(lock.hold_count(&me).await?, 1);
    let left = lock.ttl().await?.expect("one hold is left");
    assert!(is_nearly(left, TEN), "{left:?}");
    Ok(())
}

pub async fn own_16_dropping_an_inner_guard_keeps_the_outer_guard_held(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let outer = lock.acquire().await?;
    let inner = outer.reenter().await?;
    assert_eq!(lock.hold_count(outer.owner()).await?, 2);
    drop(inner);
    // The next step of the same hold follows the one that the drop began.
    assert_eq!(outer.reenter().await?.release().await?.holds_left, 1);
    assert!(outer.is_held() && !is_free_for(&lock).await?);
    assert_eq!(outer.release().await?.holds_left, 0);
    Ok(())
}

pub async fn own_17_a_lease_still_ends_after_a_partial_release(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let begun = Instant::now();
    let outer = lock.acquire().lease(LEASE).await?;
    let inner = outer.reenter().await?;
    inner.release().await?;
    // Soon, and not after the watchdog's time or never.
    assert_eq!(soon(outer.lost()).await, Loss::Expired);
    drop(soon(bench.lock().await.acquire()).await?);
    assert!(begun.elapsed() >= LEASE);
    Ok(())
}

pub async fn own_18_re_entering_with_a_lease_sets_the_lease_of_the_whole_hold(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let me = Owner::unique();
    let outer = lock.acquire().as_owner(&me).await?;
    let begun = Instant::now();
    let inner = lock.acquire().as_owner(&me).lease(LEASE).await?;
    assert!(outer.remaining() <= LEASE);
    assert_eq!(soon(outer.lost()).await, Loss::Expired);
    assert!(!inner.is_held());
    drop(soon(bench.lock().await.acquire()).await?);
    assert!(begun.elapsed() >= LEASE);
    Ok(())
}

pub async fn own_19_a_lost_hold_cannot_be_re_entered(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().lease(LEASE).await?;
    soon(guard.lost()).await;
    let again = guard.reenter().await;
    assert!(matches!(again, Err(AcquireError::Lost { loss: Loss::Expired, .. })), "{again:?}");
    assert!(soon(lock.acquire()).await?.is_held());
    Ok(())
}
