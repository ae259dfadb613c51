//! The lock in a handle that refuses re-entry.

use std::time::Duration;

use leasehold::{AcquireError, Guard, InvalidRequestError, Lock, Owner};

use super::Outcome;
use super::common::{LEASE, Waiter, is_free_for, soon};
use crate::bench::Bench;

fn is_refused(outcome: &Result<Guard, AcquireError>) -> bool {
    matches!(outcome, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. }))
}

/// Whether every way to acquire is refused to `owner`, at once.
async fn is_kept_out(lock: &Lock, owner: &Owner) -> bool {
    let tried = soon(lock.try_acquire().as_owner(owner)).await;
    is_refused(&soon(lock.acquire().as_owner(owner)).await)
        && is_refused(&soon(lock.acquire().as_owner(owner).wait(Duration::from_millis(100))).await)
        && matches!(tried, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. }))
}

pub async fn nr_01_other_owners_wait_for_a_non_reentrant_lock(bench: &Bench) -> Outcome {
    let lock = bench.lock().await.non_reentrant();
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(lock.acquire()).await;
    assert!(waiter.waits());
    guard.release().await?;
    drop(waiter.outcome().await?);
    drop(soon(bench.lock().await.acquire()).await?);
    Ok(())
}

pub async fn nr_02_an_owner_does_not_re_enter_a_non_reentrant_lock(bench: &Bench) -> Outcome {
    let lock = bench.lock().await.non_reentrant();
    let me = Owner::unique();
    let guard = lock.acquire().as_owner(&me).await?;
    assert!(is_kept_out(&lock, &me).await);
    assert!(guard.is_held() && lock.hold_count(&me).await? == 1);
    assert_eq!(guard.release().await?.holds_left, 0);
    assert!(is_free_for(&lock).await?);
    Ok(())
}

pub async fn nr_04_an_owner_is_the_same_through_every_handle(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let lock = || client.lock(bench.name("lock")).non_reentrant();
    let (one, other) = (lock(), lock());
    let me = Owner::unique();
    let guard = one.acquire().as_owner(&me).await?;
    assert!(is_kept_out(&other, &me).await && other.is_held_by(&me).await?);
    guard.release().await?;
    assert!(!one.is_locked().await? && !other.is_locked().await?);
    Ok(())
}

pub async fn own_45_the_guard_of_a_non_reentrant_handle_does_not_re_enter(bench: &Bench) -> Outcome {
    let lock = bench.lock().await.non_reentrant();
    let guard = lock.acquire().await?;
    assert!(is_refused(&soon(guard.reenter()).await));
    assert!(guard.is_held());
    assert_eq!(guard.release().await?.holds_left, 0);
    assert!(is_free_for(&lock).await?);
    Ok(())
}

pub async fn own_46_an_owner_with_an_expired_lease_acquires_a_non_reentrant_lock_anew(
    bench: &Bench,
) -> Outcome {
    let lock = bench.lock().await.non_reentrant();
    let me = Owner::unique();
    let stale = lock.acquire().as_owner(&me).lease(LEASE).await?;
    soon(stale.lost()).await;
    let guard = soon(lock.acquire().as_owner(&me)).await?;
    drop(stale);
    assert!(guard.is_held() && lock.hold_count(&me).await? == 1);
    Ok(())
}
