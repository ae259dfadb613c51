//! Locks that stay taken for a least time, and holds that end without progress.

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::{AcquireError, InvalidRequestError, Loss, Owner, ReleaseError};
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, LONG_LEASE, MOMENT, Waiter, is_free_for, short_watchdog, soon};
use crate::bench::{Bench, MIN_HOLD};

/// Long enough that a release before it is certain.
const LEAST: Duration = LEASE;

/// A guard of `acquire` is gone at once, while another client waits: that gets the lock when the least time is over, long before
/// the lease of the first is.
async fn stays_taken<G, H: Send + 'static>(
    acquire: impl IntoFuture<Output = Result<G, AcquireError>>,
    waits: impl IntoFuture<Output = Result<H, AcquireError>, IntoFuture: Send + 'static>,
    end: impl AsyncFnOnce(G) -> Outcome,
) -> Outcome {
    let begun = Instant::now();
    let guard = acquire.await?;
    let waiter = Waiter::begin(waits).await;
    end(guard).await?;
    drop(waiter.outcome().await?);
    assert!(begun.elapsed() >= LEAST, "granted after {:?}", begun.elapsed());
    Ok(())
}

pub async fn own_346_a_lock_stays_taken_until_its_least_time_is_over(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let hold = || lock.acquire().min_hold(LEAST);
    stays_taken(hold(), elsewhere.acquire(), async |guard| {
        assert_eq!(guard.release().await?.holds_left, 0);
        assert!(elsewhere.is_locked().await? && !is_free_for(&elsewhere).await?);
        Ok(())
    })
    .await?;
    stays_taken(hold(), elsewhere.acquire(), async |guard| {
        drop(guard);
        Ok(())
    })
    .await?;
    // A release whose future is dropped is a release.
    stays_taken(hold(), elsewhere.acquire(), async |guard| {
        drop(guard.release());
        Ok(())
    })
    .await?;
    stays_taken(hold(), lock.acquire(), async |guard| Ok(guard.release().await.map(drop)?)).await?;
    stays_taken(
        async { Ok(lock.try_acquire().min_hold(LEAST).await?.expect("it is free")) },
        elsewhere.acquire(),
        async |guard| Ok(guard.release().await.map(drop)?),
    )
    .await
}

pub async fn own_347_a_lock_held_for_longer_than_its_least_time_is_free_at_once(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().min_hold(MOMENT).lease(LONG_LEASE).await?;
    sleep(MOMENT).await;
    guard.release().await?;
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn own_348_the_least_time_counts_for_the_last_guard(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let hold = || lock.acquire().min_hold(LEAST);
    stays_taken(hold(), elsewhere.acquire(), async |outer| {
        let inner = outer.reenter().await?;
        assert_eq!(outer.release().await?.holds_left, 1);
        assert!(inner.is_held());
        assert_eq!(inner.release().await?.holds_left, 0);
        Ok(())
    })
    .await?;
    // The next hold has no least time.
    lock.acquire().await?.release().await?;
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn own_349_every_kind_of_lock_has_a_least_time(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, bench.client().await);
    let (name, release) = (bench.name("fair"), async |guard: leasehold::Guard| {
        guard.release().await?;
        Ok(())
    });
    let (fair, elsewhere) = (client.fair_lock(&name), other.fair_lock(&name));
    stays_taken(fair.acquire().min_hold(LEAST), elsewhere.acquire(), release).await?;

    let name = bench.name("spin");
    let (spin, elsewhere) = (client.spin_lock(&name), other.spin_lock(&name));
    stays_taken(spin.acquire().min_hold(LEAST), elsewhere.acquire(), release).await?;

    let name = bench.name("setnx");
    let (setnx, elsewhere) = (client.setnx_lock(&name), other.setnx_lock(&name));
    stays_taken(setnx.acquire().min_hold(LEAST), elsewhere.acquire(), release).await?;

    let lock = client.lock(bench.name("fenced"));
    let elsewhere = other.lock(bench.name("fenced"));
    stays_taken(lock.acquire().fenced().min_hold(LEAST), elsewhere.acquire().fenced(), async |guard| {
        guard.release().await?;
        Ok(())
    })
    .await
}

pub async fn own_350_both_halves_of_a_read_write_lock_have_a_least_time(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    stays_taken(lock.write().acquire().min_hold(LEAST), elsewhere.read().acquire(), async |guard| {
        guard.release().await?;
        Ok(())
    })
    .await?;
    stays_taken(lock.read().acquire().min_hold(LEAST), elsewhere.write().acquire(), async |guard| {
        guard.release().await?;
        Ok(())
    })
    .await?;
    let begun = Instant::now();
    lock.read().acquire().min_hold(LEAST).await?.release().await?;
    let beside = soon(elsewhere.read().acquire()).await?;
    assert!(elsewhere.write().try_acquire().await?.is_none());
    beside.release().await?;
    drop(soon(elsewhere.write().acquire()).await?);
    assert!(begun.elapsed() >= LEAST, "granted after {:?}", begun.elapsed());
    Ok(())
}

pub async fn own_351_leased_permits_have_a_least_time(bench: &Bench) -> Outcome {
    let name = bench.name("semaphore");
    let (semaphore, elsewhere) =
        (bench.client().await.leased_semaphore(&name), bench.client().await.leased_semaphore(&name));
    // Where there is no such thing, no semaphore is left.
    bench.needs(MIN_HOLD)?;
    semaphore.set_permits(2).await?;
    let hold = semaphore.acquire(2).min_hold(LEAST);
    stays_taken(hold, elsewhere.acquire(1), async |permits| Ok(permits.release().await?)).await?;
    let hold = semaphore.acquire(2).min_hold(LEAST);
    stays_taken(hold, elsewhere.acquire(1), async |permits| {
        drop(permits);
        Ok(())
    })
    .await?;
    soon(semaphore.acquire(2)).await?.release().await?;
    assert!(semaphore.try_acquire(1).min_hold(LEAST).await?.is_some());
    assert_eq!(elsewhere.available().await?, 1, "it was dropped, and is left");
    semaphore.delete().await?;
    Ok(())
}

pub async fn own_352_a_least_time_that_cannot_be_kept_is_refused(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let acquire = || lock.acquire().min_hold(LEAST);
    let too_long = |what, end| InvalidRequestError::MinHoldTooLong { given: LEAST, what, end };
    for (acquire, invalid) in [
        (acquire().lease(LEAST / 2), too_long("lease", LEAST / 2)),
        (acquire().max_hold(LEAST / 2), too_long("max_hold", LEAST / 2)),
        (acquire().renew_while_progress(LEAST / 2), too_long("renew_while_progress", LEAST / 2)),
        (
            acquire().as_owner(Owner::unique()),
            InvalidRequestError::NoMinHold { of: "a hold of a given owner" },
        ),
        (
            lock.acquire().min_hold(Duration::ZERO),
            InvalidRequestError::TooShort { what: "min_hold", given: Duration::ZERO },
        ),
    ] {
        match acquire.await {
            Err(AcquireError::Invalid { cause, .. }) => {
                if let InvalidRequestError::Unsupported { .. } = cause {
                    return Err(AcquireError::from(cause).into());
                }
                assert_eq!(cause, invalid);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(is_free_for(&lock).await?, "nothing was acquired");
    let guard = lock.acquire().min_hold(MOMENT).lease(LEAST).max_hold(LEAST).await?;
    sleep(MOMENT).await;
    guard.release().await?;
    Ok(())
}

pub async fn own_353_a_lock_that_was_lost_is_not_left_taken(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let guard = lock.acquire().min_hold(LEASE).lease(LEASE).await?;
    let next = soon(elsewhere.acquire()).await?;
    let late = guard.release().await;
    assert!(matches!(late, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })), "{late:?}");
    assert!(next.is_held() && elsewhere.is_locked().await?);
    next.release().await?;
    assert!(is_free_for(&lock).await?);
    Ok(())
}

pub async fn own_378_a_downgraded_lock_takes_its_least_time_along(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let begun = Instant::now();
    let writer = lock.write().acquire().min_hold(LEAST).await?;
    let reader = writer.downgrade().await?;
    soon(elsewhere.read().acquire()).await?.release().await?;
    assert!(elsewhere.write().try_acquire().await?.is_none());
    reader.release().await?;
    soon(elsewhere.read().acquire()).await?.release().await?;
    drop(soon(elsewhere.write().acquire()).await?);
    assert!(begun.elapsed() >= LEAST, "granted after {:?}", begun.elapsed());

    // The owner reads besides: then the readers are left with it.
    let writer = soon(lock.write().acquire().min_hold(LEAST)).await?;
    let reader = lock.read().acquire().as_owner(writer.owner()).await?;
    writer.release().await?;
    soon(elsewhere.read().acquire()).await?.release().await?;
    reader.release().await?;
    drop(soon(elsewhere.write().acquire()).await?);
    Ok(())
}

pub async fn own_379_a_lock_that_is_left_taken_is_so_for_its_own_owner(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let begun = Instant::now();
    let guard = lock.acquire().min_hold(LEAST).await?;
    let owner = guard.owner();
    guard.release().await?;
    assert!(lock.try_acquire().as_owner(&owner).await?.is_none());
    assert!(!is_free_for(&elsewhere).await?, "it was not freed by that");
    let again = soon(lock.acquire().as_owner(&owner)).await?;
    assert!(begun.elapsed() >= LEAST, "granted after {:?}", begun.elapsed());
    assert!(again.is_held());
    again.release().await?;
    assert!(is_free_for(&elsewhere).await?);
    Ok(())
}

pub async fn own_380_a_report_of_progress_is_expected_of_no_other_request(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let (me, held) = (Owner::unique(), elsewhere.acquire().await?);
    assert!(lock.try_acquire().as_owner(&me).renew_while_progress(LEASE).await?.is_none());
    let watching = Waiter::begin(lock.acquire().as_owner(&me).renew_while_progress(LEASE)).await;
    let plain = Waiter::begin(lock.acquire().as_owner(&me)).await;
    watching.cancel();
    held.release().await?;
    let guard = plain.outcome().await?;
    sleep(LEASE * 2).await;
    assert!(guard.is_held());
    Ok(())
}

pub async fn own_354_a_lock_is_kept_while_its_work_reports_progress(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock_with(short_watchdog).await, bench.lock().await);
    let guard = lock.acquire().renew_while_progress(LEASE).await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    let (begun, mut last) = (Instant::now(), Instant::now());
    while begun.elapsed() < LEASE * 4 && guard.is_held() {
        guard.progress();
        last = Instant::now();
        sleep(MOMENT).await;
    }
    assert!(waiter.waits() || last.elapsed() >= LEASE, "it was kept");
    let loss = soon(guard.lost()).await;
    assert_eq!(loss, Loss::NoProgress);
    assert!(last.elapsed() >= LEASE, "lost {:?} after the last report", last.elapsed());
    assert!(!guard.is_held() && guard.remaining() == Duration::ZERO);
    drop(waiter.outcome().await?);
    guard.progress();
    assert!(!guard.is_held(), "a loss is final");
    let late = guard.release().await;
    assert!(matches!(late, Err(ReleaseError::NotHeld { loss: Loss::NoProgress, .. })), "{late:?}");
    Ok(())
}

pub async fn own_377_a_wait_may_be_longer_than_work_without_progress(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let held = elsewhere.acquire().await?;
    let waiter = Waiter::begin(lock.acquire().renew_while_progress(LEASE)).await;
    sleep(LEASE * 2).await;
    held.release().await?;
    let guard = waiter.outcome().await?;
    assert!(guard.is_held(), "its time begins with the grant");
    guard.release().await?;
    Ok(())
}

pub async fn own_355_work_without_progress_is_dropped(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let begun = Instant::now();
    let stuck = lock.acquire().renew_while_progress(LEASE).run_with(|hold| async move {
        hold.progress();
        std::future::pending::<()>().await;
        Ok::<_, leasehold::Error>(())
    });
    match soon(stuck).await {
        Err(leasehold::Error::Lost(error)) => assert_eq!(error.loss, Loss::NoProgress),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() >= LEASE);
    soon(elsewhere.acquire()).await?.release().await?;
    Ok(())
}

pub async fn own_356_progress_of_a_fixed_lease_is_refused(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    match lock.acquire().renew_while_progress(LEASE).lease(LEASE).await {
        Err(AcquireError::Invalid { cause: InvalidRequestError::ProgressOfFixedLease, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(is_free_for(&lock).await?);
    // Without the option a report does nothing.
    let guard = lock.acquire().await?;
    guard.progress();
    assert!(guard.is_held());
    Ok(())
}
