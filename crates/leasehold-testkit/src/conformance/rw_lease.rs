//! The leases of a read-write lock: each hold has its own.

use std::time::Duration;

use leasehold::{Loss, Owner, ReleaseError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{
    LEASE, LONG_LEASE, MOMENT, WATCHDOG, Waiter, all_done, is_pending_for, short_watchdog, soon,
};
use crate::bench::{Bench, VIEW};

pub async fn rw_15_re_entering_with_a_shorter_lease_does_not_shorten_the_hold(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let me = Owner::unique();
    let begun = Instant::now();
    let outer = lock.write().acquire().as_owner(&me).lease(LEASE * 2).await?;
    let inner = lock.write().acquire().as_owner(&me).lease(LEASE / 5).await?;
    assert!(inner.remaining() > LEASE && outer.remaining() > LEASE);
    let waited = elsewhere.write().acquire().wait(LEASE).await;
    assert!(waited.is_err_and(|error| error.is_contended()));
    assert!(outer.is_held() && inner.is_held());
    assert_eq!(inner.release().await?.holds_left, 1);
    assert_eq!(soon(outer.lost()).await, Loss::Expired);
    drop(soon(elsewhere.write().acquire()).await?);
    assert!(begun.elapsed() >= LEASE * 2);

    // A renewed reader stays renewed when it re-enters with a lease.
    let reader = bench.rw_lock_with(short_watchdog).await.read();
    let outer = reader.acquire().as_owner(&me).await?;
    let inner = reader.acquire().as_owner(&me).lease(LEASE).await?;
    assert!(is_pending_for(WATCHDOG * 3 / 2, outer.lost()).await);
    assert!(inner.is_held() && elsewhere.write().try_acquire().await?.is_none());
    Ok(())
}

pub async fn rw_17_a_reader_that_releases_does_not_prolong_the_lease_of_another_reader(
    bench: &Bench,
) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let begun = Instant::now();
    let stays = lock.read().acquire().lease(LEASE).await?;
    sleep(LEASE / 2).await;
    elsewhere.read().acquire().lease(LONG_LEASE).await?.release().await?;
    drop(soon(elsewhere.write().acquire()).await?);
    assert!(begun.elapsed() >= LEASE && !stays.is_held());
    assert!(matches!(stays.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    Ok(())
}

pub async fn rw_18_readers_acquire_the_lock_when_the_lease_of_a_writer_expires(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let begun = Instant::now();
    let written = lock.write().acquire().lease(LEASE).await?;
    let readers = [
        Waiter::begin(elsewhere.read().acquire()).await,
        Waiter::begin(lock.read().acquire()).await,
        Waiter::begin(elsewhere.read().acquire()).await,
    ];
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.outcome().await?);
        assert!(!written.is_held() && begun.elapsed() >= LEASE);
    }
    assert!(guards.iter().all(|guard| guard.is_held()));
    Ok(())
}

pub async fn rw_20_many_readers_are_renewed(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock_with(short_watchdog).await;
    let elsewhere = bench.rw_lock().await;
    let mut readers = JoinSet::new();
    for _ in 0..50 {
        let lock = lock.clone();
        readers.spawn(async move {
            let guard = lock.read().acquire().await?;
            sleep(WATCHDOG * 3 / 2).await;
            guard.release().await?;
            Ok(())
        });
    }
    sleep(WATCHDOG * 5 / 4).await;
    assert!(elsewhere.write().try_acquire().await?.is_none());
    all_done(readers).await?;
    assert!(elsewhere.write().try_acquire().await?.is_some());
    Ok(())
}

pub async fn rw_21_a_writer_that_reads_is_renewed_on_both_halves(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock_with(short_watchdog).await;
    let elsewhere = bench.rw_lock().await;
    let writes = lock.write().acquire().await?;
    let reads = lock.read().acquire().as_owner(writes.owner()).await?;
    let begun = Instant::now();
    while begun.elapsed() < WATCHDOG * 3 / 2 {
        for left in [elsewhere.read().ttl().await?, lock.write().ttl().await?] {
            assert!(left.is_some_and(|left| left > WATCHDOG / 4), "{left:?}");
        }
        sleep(MOMENT).await;
    }
    // A read that ends does not end the renewal of the write.
    reads.release().await?;
    assert!(is_pending_for(WATCHDOG * 3 / 2, writes.lost()).await);
    assert!(elsewhere.read().try_acquire().await?.is_none());
    assert_eq!(writes.release().await?.holds_left, 0);
    Ok(())
}

pub async fn rw_23_a_reader_waits_for_no_other_reader(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let first = lock.read().acquire().lease(LONG_LEASE).await?;
    let second = elsewhere.read().try_acquire().await?.expect("there is no writer");
    assert_eq!(first.release().await?.holds_left, 0);
    assert!(second.is_held() && elsewhere.read().is_held_by(second.owner()).await?);
    Ok(())
}

pub async fn rw_24_a_writer_with_an_expired_lease_has_lost_the_lock(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let begun = Instant::now();
    let late = lock.write().acquire().lease(LEASE).await?;
    let next = soon(elsewhere.write().acquire()).await?;
    assert!(begun.elapsed() >= LEASE && !late.is_held());
    assert!(matches!(late.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    assert!(next.is_held());
    next.release().await?;
    Ok(())
}

pub async fn rw_34_a_reader_is_renewed_while_a_writer_waits(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock_with(short_watchdog).await;
    let reads = lock.read().acquire().await?;
    let writer = Waiter::begin(bench.rw_lock().await.prefer_writers().write().acquire()).await;
    sleep(WATCHDOG * 3 / 2).await;
    assert!(reads.is_held() && writer.waits());
    reads.release().await?;
    assert!(writer.outcome().await?.is_held());
    Ok(())
}

pub async fn own_166_the_expired_lease_of_a_reader_frees_only_the_hold_of_that_reader(
    bench: &Bench,
) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let dies = lock.read().acquire().lease(LEASE).await?;
    let lives = elsewhere.read().acquire().lease(LONG_LEASE).await?;
    let leaves = elsewhere.read().acquire().await?;
    assert_eq!(soon(dies.lost()).await, Loss::Expired);
    sleep(MOMENT).await;
    assert!(!lock.read().is_held_by(dies.owner()).await?);
    assert!(bench.lacks(VIEW) || lock.read().hold_count(lives.owner()).await? == 1);
    // The expired reader neither keeps the lock nor frees it.
    leaves.release().await?;
    assert!(lives.is_held() && lock.read().is_locked().await?);
    assert!(lock.write().try_acquire().await?.is_none());
    let writer = Waiter::begin(lock.write().acquire()).await;
    lives.release().await?;
    assert!(writer.outcome().await?.is_held());
    Ok(())
}

pub async fn own_167_leases_of_readers_end_independently_of_each_other(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock_with(short_watchdog).await;
    let elsewhere = bench.rw_lock().await;
    let begun = Instant::now();
    let short = lock.read().acquire().lease(LEASE).await?;
    let long = elsewhere.read().acquire().lease(LEASE * 5).await?;
    let kept = lock.read().acquire().await?;
    let middle = elsewhere.read().acquire().lease(LEASE * 2).await?;
    let mut ends = Vec::new();
    for guard in [&short, &middle, &long] {
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
        ends.push(begun.elapsed());
        assert!(elsewhere.write().try_acquire().await?.is_none(), "one is kept");
    }
    for (end, lease) in ends.into_iter().zip([LEASE, LEASE * 2, LEASE * 5]) {
        // At most the margin early.
        assert!(end + lease / 10 >= lease && end < lease + Duration::from_secs(5), "{end:?} of {lease:?}");
    }
    assert!(kept.is_held());
    kept.release().await?;
    soon(elsewhere.write().acquire()).await?.release().await?;

    // A release by one reader does not shorten the lease of the first when one with a shorter lease is in between.
    let me = Owner::unique();
    let long = elsewhere.read().acquire().lease(LONG_LEASE).await?;
    let short = lock.read().acquire().as_owner(&me).lease(LEASE).await?;
    lock.read().acquire().await?.release().await?;
    assert_eq!(soon(short.lost()).await, Loss::Expired);
    sleep(MOMENT).await;
    assert!(lock.write().try_acquire().await?.is_none(), "one reads for long");
    // The owner whose lease is over reads again as if for the first time.
    let again = lock.read().acquire().as_owner(&me).lease(LONG_LEASE).await?;
    assert_eq!(again.release().await?.holds_left, 0);
    assert!(long.is_held());
    Ok(())
}
