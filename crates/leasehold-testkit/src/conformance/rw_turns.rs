//! The order in which readers and writers acquire a read-write lock.

use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::RwLock;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{MOMENT, Waiter, all_done, soon};
use crate::bench::{Bench, READERS_OVERTAKE};

pub async fn rw_14_all_waiting_readers_acquire_the_lock_after_the_writer(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let writes = lock.write().acquire().await?;
    // No reader releases before all have acquired.
    let together = Arc::new(Barrier::new(20));
    let mut readers = JoinSet::new();
    for n in 0..20 {
        let reader = if n % 2 == 0 { lock.read() } else { elsewhere.read() };
        let together = Arc::clone(&together);
        readers.spawn(async move {
            let guard = reader.acquire().await?;
            together.wait().await;
            guard.release().await?;
            Ok(())
        });
    }
    sleep(MOMENT).await;
    assert!(readers.try_join_next().is_none());
    writes.release().await?;
    all_done(readers).await
}

pub async fn rw_30_a_waiting_writer_blocks_new_readers_under_prefer_writers(bench: &Bench) -> Outcome {
    bench.needs(READERS_OVERTAKE)?;
    let lock = bench.rw_lock().await.prefer_writers();
    let elsewhere = bench.rw_lock().await.prefer_writers();
    let reads = lock.read().acquire().await?;
    // A single try bars no reader.
    assert!(elsewhere.write().try_acquire().await?.is_none());
    assert!(elsewhere.read().try_acquire().await?.is_some());
    let writer = Waiter::begin(lock.write().acquire()).await;
    for handle in [&lock, &elsewhere] {
        assert!(handle.read().try_acquire().await?.is_none());
    }
    let reader = Waiter::begin(elsewhere.read().acquire()).await;
    // Longer than a waiting-writer flag lasts that is not set again.
    sleep(Duration::from_secs(3)).await;
    assert!(reader.waits() && writer.waits());
    assert!(elsewhere.read().try_acquire().await?.is_none());
    // Current readers may re-enter, and readers without the option ignore the flag.
    let again = lock.read().try_acquire().as_owner(reads.owner()).await?.expect("it reads already");
    let careless = bench.rw_lock().await.read().try_acquire().await?.expect("it does not care");
    drop((again, careless));
    reads.release().await?;
    let written = writer.outcome().await?;
    assert!(reader.waits());
    let nested = lock.read().try_acquire().as_owner(written.owner()).await?.expect("it writes");
    drop(nested);
    written.release().await?;
    assert!(reader.outcome().await?.is_held());
    Ok(())
}

pub async fn own_174_a_preferred_writer_does_not_starve(bench: &Bench) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for n in 0..6 {
        let (lock, stop) = (bench.rw_lock().await.prefer_writers(), Arc::clone(&stop));
        readers.spawn(async move {
            sleep(Duration::from_millis(3) * n).await;
            // There is always a reader.
            while !stop.load(Ordering::SeqCst) {
                let guard = lock.read().acquire().await?;
                sleep(Duration::from_millis(20)).await;
                guard.release().await?;
            }
            Ok(())
        });
    }
    sleep(MOMENT).await;
    let lock = bench.rw_lock().await.prefer_writers();
    for _ in 0..3 {
        drop(soon(lock.write().acquire()).await?);
    }
    stop.store(true, Ordering::SeqCst);
    all_done(readers).await
}

/// Waits until a preferred writer keeps readers out.
async fn blocks_readers(lock: &RwLock) -> Outcome {
    let blocks = async {
        while lock.read().try_acquire().await?.is_some() {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    };
    soon(blocks).await
}

pub async fn own_175_readers_are_admitted_when_a_preferred_writer_gives_up(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock().await.prefer_writers();
    let elsewhere = bench.rw_lock().await.prefer_writers();
    let reads = lock.read().acquire().await?;
    let writer = Waiter::begin(lock.write().acquire()).await;
    blocks_readers(&elsewhere).await?;
    let reader = Waiter::begin(elsewhere.read().acquire()).await;
    assert!(reader.waits());
    let begun = Instant::now();
    writer.cancel();
    assert!(writer.gone().await.is_err());
    drop(reader.outcome().await?);
    assert!(begun.elapsed() < Duration::from_secs(1), "before its mark would have gone by itself");

    let patient = Waiter::begin(lock.write().acquire().wait(MOMENT * 20)).await;
    blocks_readers(&elsewhere).await?;
    let reader = Waiter::begin(elsewhere.read().acquire()).await;
    assert!(reader.waits());
    assert!(patient.outcome().await.is_err_and(|error| error.is_contended()));
    drop(reader.outcome().await?);
    assert!(reads.is_held());
    Ok(())
}

pub async fn own_176_an_unpolled_preferred_writer_blocks_readers_for_two_seconds_at_most(
    bench: &Bench,
) -> Outcome {
    bench.needs(READERS_OVERTAKE)?;
    let lock = bench.rw_lock().await.prefer_writers();
    let reads = lock.read().acquire().await?;
    let mut writer = pin!(lock.write().acquire().into_future());
    // It is polled until it blocks readers, and then no more.
    let polled = poll_fn(|context| {
        assert!(writer.as_mut().poll(context).is_pending(), "it waits for the reader");
        Poll::<()>::Pending
    });
    tokio::select! {
        () = polled => {}
        blocks = blocks_readers(&lock) => blocks?,
    }
    let reader = soon(bench.rw_lock().await.prefer_writers().read().acquire()).await?;
    assert!(reads.is_held() && reader.is_held());
    Ok(())
}

pub async fn own_177_cancelled_readers_and_writers_leave_nothing_behind(bench: &Bench) -> Outcome {
    for preferred in [false, true] {
        let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
        let (lock, elsewhere) =
            if preferred { (lock.prefer_writers(), elsewhere.prefer_writers()) } else { (lock, elsewhere) };
        let writes = lock.write().acquire().await?;
        let mut waiters = JoinSet::new();
        for n in 0..40 {
            let handle = if n % 3 == 0 { &lock } else { &elsewhere };
            if n % 2 == 0 {
                let waiter = handle.read().acquire().into_future();
                waiters.spawn(async move { waiter.await.map(drop) });
            } else {
                let waiter = handle.write().acquire().into_future();
                waiters.spawn(async move { waiter.await.map(drop) });
            }
        }
        sleep(MOMENT).await;
        // Some of them may just be acquiring.
        writes.release().await?;
        waiters.abort_all();
        while soon(waiters.join_next()).await.is_some() {}
        soon(lock.write().acquire()).await?.release().await?;
        bench.nothing_is_left().await;
    }
    Ok(())
}
