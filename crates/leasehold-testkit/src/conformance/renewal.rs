//! Holds without a lease, which last as long as their guards.

use leasehold::Owner;
use tokio::time::sleep;

use super::Outcome;
use super::common::{MOMENT, WATCHDOG, Waiter, is_pending_for, short_watchdog, soon};
use crate::bench::Bench;

pub async fn hd_20_a_renewed_lock_outlasts_its_watchdog_time_out(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock().await);
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert!(is_pending_for(WATCHDOG * 5 / 2, guard.lost()).await);
    assert!(guard.is_held() && waiter.waits());
    guard.release().await?;
    assert!(waiter.outcome().await?.is_held());
    Ok(())
}

pub async fn cx_09_a_waiter_of_the_same_client_waits_for_the_release(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(lock.acquire()).await;
    sleep(WATCHDOG * 3 / 2).await;
    assert!(guard.is_held() && waiter.waits());
    guard.release().await?;
    let next = waiter.outcome().await?;
    assert!(is_pending_for(WATCHDOG * 3 / 2, next.lost()).await);
    assert!(next.is_held());
    Ok(())
}

pub async fn wd_06_renewal_stops_after_the_last_release(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let me = Owner::unique();
    let enter = || lock.acquire().as_owner(&me);
    enter().await?.release().await?;
    assert!(!lock.is_locked().await?, "entered once, released once");

    let (outer, inner) = (enter().await?, enter().await?);
    inner.release().await?;
    outer.release().await?;
    assert!(!lock.is_locked().await?, "entered twice, released twice");
    sleep(WATCHDOG).await;
    assert!(!lock.is_locked().await?, "it is still free");
    Ok(())
}

pub async fn own_20_a_lock_is_renewed_again_when_acquired_after_a_pause(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock().await);
    for _ in 0..2 {
        let guard = lock.acquire().await?;
        let waiter = Waiter::begin(elsewhere.acquire()).await;
        sleep(WATCHDOG * 3 / 2).await;
        assert!(guard.is_held() && waiter.waits());
        guard.release().await?;
        waiter.outcome().await?.release().await?;
        sleep(WATCHDOG).await;
    }
    Ok(())
}

pub async fn own_21_a_guard_is_renewed_after_its_client_handle_is_dropped(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let guard = client.lock(bench.name("lock")).acquire().await?;
    drop(client);
    assert!(is_pending_for(WATCHDOG + MOMENT, guard.lost()).await);
    assert!(guard.is_held() && bench.lock().await.is_locked().await?);
    guard.release().await?;
    drop(soon(bench.lock().await.acquire()).await?);
    Ok(())
}
