//! Locks that are removed without a release by their holder.

use leasehold::{AcquireError, ExtendError, InvalidRequestError, Loss, ReleaseError};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Outcome;
use super::common::{
    LEASE, LONG_LEASE, MOMENT, WATCHDOG, is_free_for, is_pending_for, short_watchdog, soon, taken,
};
use crate::bench::Bench;

pub async fn hd_11_a_release_is_not_reported_as_a_loss(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().lease(LEASE).await?;
    let loss = guard.lost();
    let mut heard = tokio::spawn(guard.lost());
    assert!(is_pending_for(MOMENT, &mut heard).await);
    soon(guard.release()).await?;
    assert!(is_pending_for(LEASE * 2, &mut heard).await);
    assert!(is_pending_for(MOMENT, loss).await);
    heard.abort();
    Ok(())
}

pub async fn hd_12_a_removed_lock_is_reported_lost_to_its_holder(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let guard = lock.acquire().await?;
    let mut lost = tokio::spawn(guard.lost());
    assert!(is_pending_for(MOMENT, &mut lost).await);
    bench.remove(guard.name()).await?;
    assert_eq!(soon(lost).await?, Loss::Gone);
    assert!(!guard.is_held());
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    Ok(())
}

pub async fn cx_19_a_client_continues_to_work_after_all_keys_are_deleted(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let guards =
        [client.lock(bench.name("one")).acquire().await?, client.lock(bench.name("two")).acquire().await?];
    for guard in &guards {
        bench.remove(guard.name()).await?;
    }
    for guard in &guards {
        assert_eq!(soon(guard.lost()).await, Loss::Gone);
    }
    for name in ["one", "three"] {
        let guard = soon(client.lock(bench.name(name)).acquire()).await?;
        assert!(is_pending_for(WATCHDOG + MOMENT, guard.lost()).await, "{name} is kept as ever");
        guard.release().await?;
    }
    Ok(())
}

pub async fn own_22_a_removed_lock_is_lost_before_its_lease_expires(bench: &Bench) -> Outcome {
    let lease = WATCHDOG * 3;
    let guard = bench.lock().await.acquire().lease(lease).await?;
    bench.remove(guard.name()).await?;
    assert_eq!(soon(guard.lost()).await, Loss::Gone, "noticed by itself, not by the clock");
    Ok(())
}

pub async fn own_33_the_guards_of_a_removed_lock_do_not_affect_the_next_owner(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let outer = lock.acquire().await?;
    let inner = outer.reenter().await?;
    bench.remove(outer.name()).await?;
    // Whether the old guards have noticed by now depends on the engine.
    let next = taken(&elsewhere).await?;
    assert!(matches!(outer.extend(LONG_LEASE).await, Err(ExtendError::NotHeld { .. })));
    assert!(matches!(outer.reenter().await, Err(AcquireError::Lost { .. })));
    assert!(matches!(outer.release().await, Err(ReleaseError::NotHeld { .. })));
    drop(inner);
    sleep(MOMENT).await;
    assert!(next.is_held() && !is_free_for(&lock).await?);
    assert_eq!(next.release().await?.holds_left, 0);
    Ok(())
}

pub async fn own_23_all_guards_and_listeners_of_a_hold_are_notified_of_its_loss(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let outer = lock.acquire().await?;
    let inner = outer.reenter().await?;
    let early = [tokio::spawn(outer.lost()), tokio::spawn(outer.lost()), tokio::spawn(inner.lost())];
    bench.remove(outer.name()).await?;
    for listener in early {
        assert_eq!(soon(listener).await?, Loss::Gone);
    }
    assert_eq!(soon(inner.lost()).await, Loss::Gone, "also for a later listener");
    assert!(!outer.is_held() && !inner.is_held());
    Ok(())
}

pub async fn own_24_run_stops_its_work_when_the_lock_is_lost(bench: &Bench) -> Outcome {
    let lock = bench.lock_with(short_watchdog).await;
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    assert_eq!(guard.run(async { 7 }).await, Ok(7));
    guard.release().await?;

    let guard = lock.acquire().await?;
    let (running, stopped) = oneshot::channel::<()>();
    let work = guard.run(async move {
        bench.remove(&bench.name("lock")).await?;
        std::future::pending::<()>().await;
        drop(running);
        Ok::<_, InvalidRequestError>(())
    });
    match soon(work).await {
        Ok(removed) => removed?,
        Err(lost) => assert_eq!(lost.loss, Loss::Gone),
    }
    assert!(soon(stopped).await.is_err(), "what the work owned is dropped");
    assert_eq!(guard.run(async { 7 }).await.map_err(|lost| lost.loss), Err(Loss::Gone), "no work begins");
    Ok(())
}
