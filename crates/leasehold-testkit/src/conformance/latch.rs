//! Counts that go down to zero, and their waiters.

use std::future::IntoFuture;

use leasehold::{InvalidRequestError, Latch, WaitError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, MOMENT, all_done, on_a_thread, soon};
use crate::bench::Bench;

async fn latch(bench: &Bench) -> Latch {
    bench.client().await.latch(bench.name("latch"))
}

pub async fn cd_01_the_count_of_a_latch_is_set_once(bench: &Bench) -> Outcome {
    let latch = latch(bench).await;
    assert_eq!(latch.count().await?, 0);
    assert!(latch.try_set_count(1).await?);
    assert!(!latch.try_set_count(2).await?);
    assert_eq!(latch.count().await?, 1);
    assert!(latch.delete().await?);
    Ok(())
}

pub async fn cd_03_a_latch_counts_down_to_zero_and_no_further(bench: &Bench) -> Outcome {
    let latch = latch(bench).await;
    assert!(latch.try_set_count(2).await?);
    assert_eq!(latch.count().await?, 2);
    for (left, closed) in [(1, true), (0, false), (0, false), (0, false)] {
        assert_eq!(latch.count_down().await?, left);
        assert_eq!(latch.count().await?, left);
        if closed {
            assert!(soon(latch.opened().wait(MOMENT)).await.is_err());
        } else {
            soon(latch.opened()).await?;
        }
    }
    soon(latch.opened()).await?;
    Ok(())
}

pub async fn cd_05_a_latch_that_was_never_set_is_open(bench: &Bench) -> Outcome {
    let latch = latch(bench).await;
    soon(latch.opened()).await?;
    assert_eq!(latch.count_down().await?, 0);
    soon(latch.opened()).await?;
    assert!(latch.try_set_count(0).await?, "counting below zero leaves nothing behind");
    soon(latch.opened()).await?;
    assert!(!latch.try_set_count(1).await?, "a latch set to zero is set");
    assert_eq!(latch.count_down().await?, 0);
    assert!(latch.try_set_count(1).await?, "once it was opened, it can be set again");
    assert_eq!(latch.count_down().await?, 0);
    Ok(())
}

pub async fn cd_06_a_wait_for_a_latch_keeps_its_limit(bench: &Bench) -> Outcome {
    let (latch, elsewhere) = (latch(bench).await, latch(bench).await);
    assert!(latch.try_set_count(1).await?);
    let begun = Instant::now();
    let over = soon(latch.opened().wait(LEASE)).await;
    assert!(matches!(over, Err(WaitError::Timeout { waited, .. }) if waited >= LEASE), "{over:?}");
    assert!(begun.elapsed() >= LEASE);
    let waiter = tokio::spawn(latch.opened().wait(LEASE * 20).into_future());
    sleep(MOMENT).await;
    elsewhere.count_down().await?;
    soon(waiter).await??;
    Ok(())
}

pub async fn cd_08_all_waiters_are_released_when_the_latch_reaches_zero(bench: &Bench) -> Outcome {
    let (first, second) = (latch(bench).await, latch(bench).await);
    assert!(first.try_set_count(6).await?);
    let mut waiters = JoinSet::new();
    for latch in [&first, &second, &first, &first, &second, &first] {
        let latch = latch.clone();
        waiters.spawn(async move {
            soon(latch.opened()).await?;
            assert_eq!(latch.count().await?, 0);
            Ok(())
        });
    }
    sleep(MOMENT).await;
    assert!(waiters.try_join_next().is_none());
    let mut counters = JoinSet::new();
    for latch in [&first, &second, &first, &second, &first, &second] {
        let latch = latch.clone();
        counters.spawn(async move {
            latch.count_down().await?;
            Ok(())
        });
    }
    all_done(counters).await?;
    all_done(waiters).await
}

pub async fn cd_09_deleting_a_latch_releases_its_waiters(bench: &Bench) -> Outcome {
    let (latch, elsewhere) = (latch(bench).await, latch(bench).await);
    assert!(!latch.delete().await?);
    assert!(latch.try_set_count(3).await?);
    let mut waiters = JoinSet::new();
    for latch in [&latch, &elsewhere, &latch] {
        let wait = latch.opened().into_future();
        waiters.spawn(async move { Ok(wait.await?) });
    }
    sleep(MOMENT).await;
    assert!(latch.delete().await?);
    all_done(waiters).await?;
    assert_eq!(latch.count().await?, 0);
    Ok(())
}

pub async fn own_91_plain_threads_can_wait_for_a_latch(bench: &Bench) -> Outcome {
    let latch = latch(bench).await;
    assert!(latch.try_set_count(1).await?);
    let blocked = {
        let latch = latch.clone();
        tokio::spawn(on_a_thread(move || latch.opened().block()))
    };
    // The thread uses the system's clock, so this must not sleep.
    tokio::task::yield_now().await;
    latch.count_down().await?;
    blocked.await??;
    Ok(())
}

pub async fn own_92_a_shutdown_ends_the_wait_for_a_latch(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, latch(bench).await);
    assert!(other.try_set_count(1).await?);
    let latch = client.latch(bench.name("latch"));
    let waiter = tokio::spawn(latch.opened().into_future());
    sleep(MOMENT).await;
    client.shutdown(LEASE).await;
    assert!(matches!(
        soon(waiter).await?,
        Err(WaitError::Invalid { cause: InvalidRequestError::ShutDown, .. })
    ));
    assert!(matches!(
        soon(latch.opened()).await,
        Err(WaitError::Invalid { cause: InvalidRequestError::ShutDown, .. })
    ));
    assert!(other.delete().await?);
    Ok(())
}
