//! Clients that shut down.

use std::time::Duration;

use leasehold::{AcquireError, Guard, InvalidRequestError, Loss, ReleaseError};
use tokio::time::sleep;

use super::Outcome;
use super::common::{
    LONG_LEASE, MOMENT, WATCHDOG, Waiter, is_free_for, is_pending_for, short_watchdog, soon,
};
use crate::bench::{Bench, VIEW};

pub async fn lk_14_a_lock_of_a_client_that_is_gone_expires(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client_with(short_watchdog).await, bench.lock().await);
    let guard = client.lock(bench.name("lock")).acquire().await?;
    sleep(WATCHDOG * 3 / 2).await;
    assert!(elsewhere.is_locked().await?, "kept as long as there is a client");
    client.shutdown(Duration::ZERO).await;
    assert!(elsewhere.is_locked().await?, "not released, only kept no longer");
    let next = soon(elsewhere.acquire()).await?;
    assert!(next.is_held() && !guard.is_held());
    Ok(())
}

pub async fn cx_17_a_shutdown_ends_every_wait_and_every_hold(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let lock = client.lock(bench.name("lock"));
    let guard = lock.acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..10 {
        waiters.push(Waiter::begin(lock.acquire()).await);
    }
    assert_eq!(soon(client.shutdown(Duration::ZERO)).await.left_to_expire, 1);
    for waiter in waiters {
        assert!(is_refused(&waiter.outcome().await));
    }
    assert_eq!(soon(guard.lost()).await, Loss::Shutdown);
    assert!(is_refused(&soon(lock.acquire()).await));
    Ok(())
}

pub async fn own_29_a_shutdown_waits_for_the_guards(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let guard = client.lock(bench.name("lock")).acquire().await?;
    let mut shutdown = tokio::spawn(client.shutdown(LONG_LEASE));
    assert!(is_pending_for(MOMENT, &mut shutdown).await);
    assert!(guard.is_held(), "nothing is lost during the grace");
    assert_eq!(guard.release().await?.holds_left, 0);
    assert_eq!(soon(shutdown).await?.left_to_expire, 0);
    Ok(())
}

pub async fn own_30_a_shutdown_frees_no_lock_under_running_work(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.lock().await);
    let guard = client.lock(bench.name("lock")).acquire().await?;
    let shutdown = client.shutdown(MOMENT);
    let stopped = guard.run(async {
        shutdown.await;
        sleep(LONG_LEASE).await;
    });
    assert_eq!(soon(stopped).await.map_err(|lost| lost.loss), Err(Loss::Shutdown));
    assert!(!guard.is_held() && !is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn own_31_a_guard_that_ends_after_the_shutdown_frees_its_lock(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.lock().await);
    let dropped = client.lock(bench.name("lock")).acquire().await?;
    let released = client.lock(bench.name("another")).acquire().await?;
    assert_eq!(client.shutdown(Duration::ZERO).await.left_to_expire, 2);
    drop(dropped);
    assert!(soon(elsewhere.acquire()).await?.is_held());
    assert!(matches!(
        soon(released.release()).await,
        Err(ReleaseError::NotHeld { loss: Loss::Shutdown, .. })
    ));
    drop(soon(bench.client().await.lock(bench.name("another")).acquire()).await?);
    Ok(())
}

pub async fn own_32_a_client_in_shutdown_refuses_new_locks_and_other_clients_continue(
    bench: &Bench,
) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.client().await);
    let other = bench.name("another");
    let guard = client.lock(bench.name("lock")).acquire().await?;
    let described_before = client.lock(&other).acquire().into_future();
    let shutdown = tokio::spawn(client.shutdown(LONG_LEASE));
    sleep(MOMENT).await;
    assert!(is_refused(&described_before.await));
    assert!(is_refused(&client.lock(&other).acquire().await));
    assert!(matches!(
        client.lock(&other).try_acquire().await,
        Err(AcquireError::Invalid { cause: InvalidRequestError::ShutDown, .. })
    ));
    assert!(is_refused(&guard.reenter().await));
    assert!(is_free_for(&elsewhere.lock(&other)).await?);
    drop(guard);
    assert_eq!(soon(shutdown).await?.left_to_expire, 0);
    // Queries acquire nothing, and neither does freeing a lock.
    let held = elsewhere.lock(&other).acquire().await?;
    assert!(soon(client.lock(&other).is_locked()).await?);
    let holder = soon(client.lock(&other).holder()).await?.and_then(|holder| holder.owner);
    assert!(bench.lacks(VIEW) || holder == Some(held.owner()), "{holder:?}");
    assert!(soon(client.lock(&other).force_unlock()).await?);
    assert!(!soon(client.lock(&other).is_locked()).await?);
    Ok(())
}

fn is_refused(outcome: &Result<Guard, AcquireError>) -> bool {
    matches!(outcome, Err(AcquireError::Invalid { cause: InvalidRequestError::ShutDown, .. }))
}

pub async fn own_38_a_queued_waiter_acquires_a_lock_that_a_shutdown_left_to_expire(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client_with(short_watchdog).await, bench.lock().await);
    let guard = client.lock(bench.name("lock")).acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert_eq!(client.shutdown(Duration::ZERO).await.left_to_expire, 1);
    drop(waiter.outcome().await?);
    assert!(!guard.is_held());
    Ok(())
}
