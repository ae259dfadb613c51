//! Holds that end by the clock.

use std::time::Duration;

use leasehold::{ExtendError, Loss, Owner, ReleaseError};
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, LONG_LEASE, MOMENT, Waiter, is_free_for, is_nearly, short_watchdog, soon};
use crate::bench::{Bench, LEASES, VIEW};

pub async fn lk_11_a_waiter_acquires_the_lock_when_the_lease_expires(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let begun = Instant::now();
    let _forgotten = lock.acquire().lease(LEASE).await?;
    let guard = soon(elsewhere.acquire()).await?;
    assert!(begun.elapsed() >= LEASE, "granted after {:?}", begun.elapsed());
    assert!(guard.is_held());
    Ok(())
}

pub async fn lk_12_a_release_after_the_lease_expired_is_an_error(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let me = Owner::unique();
    let lapsed = lock.acquire().as_owner(&me).lease(LEASE).await?;
    soon(elsewhere.acquire()).await?.release().await?;
    assert!(matches!(
        lock.as_owner(&me).release().await,
        Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })
    ));
    assert!(matches!(lapsed.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    Ok(())
}

pub async fn rl_01_the_remaining_time_is_that_of_the_lease_or_of_the_watchdog(bench: &Bench) -> Outcome {
    const HOUR: Duration = Duration::from_secs(3600);
    const DEFAULT_WATCHDOG: Duration = Duration::from_secs(30);
    bench.needs(VIEW)?;
    let lock = bench.lock().await;

    let guard = lock.acquire().lease(HOUR).await?;
    assert!(lock.ttl().await?.is_some_and(|left| is_nearly(left, HOUR)));
    assert!(is_nearly(guard.remaining() + HOUR / 100, HOUR), "a hundredth is kept as a margin");
    guard.release().await?;
    assert_eq!(lock.ttl().await?, None);

    let guard = lock.acquire().await?;
    assert!(lock.ttl().await?.is_some_and(|left| is_nearly(left, DEFAULT_WATCHDOG)));
    assert!(is_nearly(guard.remaining(), DEFAULT_WATCHDOG));
    Ok(())
}

pub async fn hd_29_the_end_of_a_lease_is_reported_as_a_loss(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let begun = Instant::now();
    let guard = lock.acquire().lease(LEASE).await?;
    let listener = tokio::spawn(guard.lost());
    assert_eq!(soon(listener).await?, Loss::Expired);
    assert!(begun.elapsed() >= LEASE * 9 / 10, "notified after {:?}", begun.elapsed());
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    Ok(())
}

pub async fn own_01_a_stale_guard_does_not_affect_the_next_holder(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let (dropped, released) = {
        let outer = lock.acquire().lease(LEASE).await?;
        (outer.reenter().await?, outer)
    };
    let next = soon(elsewhere.acquire()).await?;
    drop(dropped);
    assert!(matches!(released.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    sleep(MOMENT).await;
    assert!(next.is_held() && !is_free_for(&lock).await?);
    assert_eq!(next.release().await?.holds_left, 0);
    Ok(())
}

pub async fn own_02_a_stale_guard_does_not_affect_the_next_hold_of_the_same_owner(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let me = Owner::unique();
    let stale = lock.acquire().as_owner(&me).lease(LEASE).await?;
    soon(stale.lost()).await;
    let next = soon(lock.acquire().as_owner(&me)).await?;
    assert_eq!(lock.hold_count(&me).await?, 1, "a new hold, not the old one entered again");
    drop(stale);
    sleep(MOMENT).await;
    assert_eq!(lock.hold_count(&me).await?, 1);
    assert_eq!(next.release().await?.holds_left, 0);
    Ok(())
}

pub async fn own_03_a_guard_reports_its_loss_before_the_lock_is_granted_again(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    for _ in 0..3 {
        let lapsing = lock.acquire().lease(LEASE).await?;
        let _next = soon(elsewhere.acquire()).await?;
        // Nothing is awaited in between: a query at the moment of the grant returns the truth.
        assert!(!lapsing.is_held());
        assert_eq!(lapsing.lost().block(), Loss::Expired);
    }
    Ok(())
}

pub async fn own_06_max_hold_ends_a_lock_without_a_lease(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock().await);
    let longest = Duration::from_millis(1500);
    let begun = Instant::now();
    let guard = lock.acquire().max_hold(longest).await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert_eq!(soon(guard.lost()).await, Loss::MaxHold);
    assert!(begun.elapsed() >= longest * 9 / 10, "lost after {:?}", begun.elapsed());
    drop(waiter.outcome().await?);
    assert!(begun.elapsed() >= longest, "granted after {:?}", begun.elapsed());
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::MaxHold, .. })));
    Ok(())
}

pub async fn own_07_extend_moves_the_end_of_the_lease(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().lease(LEASE).await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    let begun = Instant::now();
    let left = guard.extend(LEASE * 3).await?;
    assert!(left > LEASE && left <= LEASE * 3, "{left:?}");
    sleep(LEASE * 2).await;
    assert!(guard.is_held() && waiter.waits());
    drop(waiter.outcome().await?);
    assert!(begun.elapsed() >= LEASE * 3, "granted after {:?}", begun.elapsed());
    assert!(!guard.is_held());
    Ok(())
}

pub async fn own_08_extend_never_shortens_a_lease(bench: &Bench) -> Outcome {
    bench.needs(LEASES)?;
    let lock = bench.lock_with(short_watchdog).await;
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    assert!(guard.extend(LEASE).await? > LONG_LEASE / 2);
    assert!(guard.remaining() > LONG_LEASE / 2);
    assert!(lock.ttl().await?.is_some_and(|left| left > LONG_LEASE / 2));
    guard.release().await?;

    // A lock without a lease is renewed before and after.
    let guard = lock.acquire().await?;
    guard.extend(LEASE).await?;
    sleep(LEASE * 2).await;
    assert!(guard.is_held() && lock.is_locked().await?);
    Ok(())
}

pub async fn own_09_extend_never_revives_a_lost_lock(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().lease(LEASE).await?;
    soon(guard.lost()).await;
    assert!(matches!(guard.extend(LONG_LEASE).await, Err(ExtendError::NotHeld { loss: Loss::Expired, .. })));
    let next = soon(elsewhere.acquire().lease(LEASE)).await?;
    assert!(matches!(guard.extend(LONG_LEASE).await, Err(ExtendError::NotHeld { loss: Loss::Expired, .. })));
    assert!(!guard.is_held());
    let left = lock.ttl().await?;
    assert!(bench.lacks(VIEW) || left.is_none_or(|left| left <= LEASE), "the next lease is not ours");
    next.release().await?;

    if bench.lacks(LEASES) {
        return Ok(());
    }
    // A guard sees the removal of its lock at its next request.
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    bench.remove(&bench.name("lock")).await?;
    assert!(matches!(guard.extend(LONG_LEASE).await, Err(ExtendError::NotHeld { loss: Loss::Gone, .. })));
    assert!(!guard.is_held() && !lock.is_locked().await?);
    Ok(())
}

pub async fn own_10_extend_does_not_exceed_max_hold(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let begun = Instant::now();
    let guard = lock.acquire().lease(LEASE).max_hold(LEASE * 2).await?;
    assert!(guard.extend(LONG_LEASE).await? <= LEASE * 2);
    assert_eq!(soon(guard.lost()).await, Loss::MaxHold);
    assert!(begun.elapsed() >= LEASE, "lost after {:?}", begun.elapsed());
    Ok(())
}

pub async fn own_36_re_entry_and_partial_release_do_not_revert_an_extension(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().lease(LEASE).await?;
    guard.extend(LONG_LEASE).await?;
    let inner = guard.reenter().await?;
    assert!(guard.remaining() > LEASE, "{:?} after entering again", guard.remaining());
    inner.release().await?;
    assert!(guard.remaining() > LEASE, "{:?} after the partial release", guard.remaining());
    assert!(lock.ttl().await?.is_some_and(|left| left > LEASE));
    // The other order: extended by one guard while another one is inside.
    let client = bench.client().await;
    let name = bench.name("again");
    let (plain, fair) = (client.lock(&name), client.fair_lock(&name).into());
    let rw = client.rw_lock(bench.name("rw"));
    let group = client.group_lock(bench.name("group"), ["a", "b"]);
    for lock in [plain, fair, rw.read().into(), rw.write().into(), group] {
        let guard = lock.acquire().lease(LEASE).await?;
        let inner = guard.reenter().await?;
        guard.extend(LONG_LEASE).await?;
        assert_eq!(inner.release().await?.holds_left, 1);
        assert!(guard.remaining() > LEASE, "{lock:?}: {:?} after the partial release", guard.remaining());
        guard.release().await?;
    }
    Ok(())
}

pub async fn own_37_a_waiter_acquires_the_lock_when_a_lease_set_by_re_entry_expires(
    bench: &Bench,
) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock().await);
    let owner = Owner::unique();
    let outer = lock.acquire().as_owner(&owner).await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    let inner = lock.acquire().as_owner(&owner).lease(LEASE).await?;
    drop(waiter.outcome().await?);
    assert!(!outer.is_held() && !inner.is_held());
    Ok(())
}

pub async fn own_209_a_waiter_acquires_the_lock_when_the_lease_of_the_waiter_before_expires(
    bench: &Bench,
) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let first = lock.acquire().lease(LONG_LEASE).await?;
    let second = Waiter::begin(elsewhere.acquire().lease(LEASE)).await;
    let third = Waiter::begin(elsewhere.acquire()).await;
    let begun = Instant::now();
    first.release().await?;
    // It does not release, and its lease ends long before the one that the third waiter has seen.
    let second = second.outcome().await?;
    drop(third.outcome().await?);
    assert!(!second.is_held());
    assert!(begun.elapsed() < 10 * LEASE, "granted after {:?}", begun.elapsed());
    Ok(())
}
