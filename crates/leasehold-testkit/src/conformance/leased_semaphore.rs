//! Permits that have a lease.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    AcquireError, ChangeError, InvalidRequestError, LeasedPermits, LeasedSemaphore, Loss, PermitId,
    ReleaseError,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::common::{
    LEASE, LONG_LEASE, MOMENT, WATCHDOG, all_done, is_nearly, is_pending_for, on_a_thread,
    release_and_cancel, short_watchdog, soon,
};
use super::{Failed, Outcome};
use crate::bench::Bench;
use crate::tally::Tally;

/// The case's semaphore, with a new client.
async fn semaphore(bench: &Bench) -> LeasedSemaphore {
    bench.client().await.leased_semaphore(bench.name("semaphore"))
}

/// The same, with so many permits.
async fn with(bench: &Bench, permits: u32) -> Result<LeasedSemaphore, Failed> {
    let semaphore = semaphore(bench).await;
    assert!(semaphore.try_set_permits(permits).await?);
    Ok(semaphore)
}

/// Removes a semaphore that must exist: it would stay for ever.
async fn remove(semaphore: &LeasedSemaphore) -> Outcome {
    assert!(semaphore.delete().await?);
    Ok(())
}

/// All, free and taken permits.
async fn counts(semaphore: &LeasedSemaphore) -> Result<(i64, i64, i64), Failed> {
    Ok((semaphore.total().await?, semaphore.available().await?, semaphore.acquired().await?))
}

/// Acquires free permits, as ids.
async fn ids(semaphore: &LeasedSemaphore, permits: u32) -> Result<Vec<PermitId>, AcquireError> {
    Ok(semaphore.try_acquire(permits).permanent().await?.expect("they are there"))
}

/// A waiter in a task, with a moment to be queued.
async fn waiter(
    semaphore: &LeasedSemaphore,
    permits: u32,
) -> JoinHandle<Result<LeasedPermits, AcquireError>> {
    let waiter = tokio::spawn(semaphore.acquire(permits).into_future());
    sleep(MOMENT).await;
    waiter
}

fn unknown() -> PermitId {
    "00112233445566778899aabbccddeeff".parse().expect("32 digits")
}

pub async fn ps_01_leased_permits_are_set_once(bench: &Bench) -> Outcome {
    let semaphore = semaphore(bench).await;
    assert_eq!(counts(&semaphore).await?, (0, 0, 0));
    assert!(semaphore.try_set_permits(10).await?);
    assert_eq!(semaphore.available().await?, 10);
    assert!(!semaphore.try_set_permits(15).await?);
    assert_eq!(semaphore.available().await?, 10);
    remove(&semaphore).await
}

pub async fn ps_03_the_total_of_leased_permits_can_be_changed(bench: &Bench) -> Outcome {
    let semaphore = semaphore(bench).await;
    for (permits, expected) in [(10, 10), (15, 15), (15, 15), (5, 5)] {
        semaphore.set_permits(permits).await?;
        assert!(!semaphore.try_set_permits(20).await?);
        assert_eq!(counts(&semaphore).await?, (expected, expected, 0));
    }
    let taken = ids(&semaphore, 3).await?;
    assert_eq!(counts(&semaphore).await?, (5, 2, 3));
    semaphore.set_permits(3).await?;
    assert_eq!(counts(&semaphore).await?, (3, 0, 3));
    semaphore.set_permits(2).await?;
    assert_eq!(counts(&semaphore).await?, (2, -1, 3));
    semaphore.release(taken).await?;
    assert_eq!(counts(&semaphore).await?, (2, 2, 0));
    remove(&semaphore).await
}

pub async fn ps_05_leased_permits_can_be_added_and_removed(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    for (added, free) in [(5, 15), (-10, 5), (-10, -5)] {
        assert_eq!(semaphore.add_permits(added).await?, free);
        assert_eq!(semaphore.available().await?, free);
    }
    remove(&semaphore).await
}

pub async fn ps_06_a_permit_is_identified_and_released_by_its_id(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 1).await?, semaphore(bench).await);
    let first = ids(&semaphore, 1).await?;
    assert_eq!(first[0].to_string().len(), 32);
    assert!(semaphore.try_acquire(1).permanent().await?.is_none());
    let waiting = waiter(&semaphore, 1).await;
    assert!(!waiting.is_finished());
    elsewhere.release(first.clone()).await?;
    let second = soon(waiting).await??;
    assert_ne!(second.ids(), first);
    assert!(semaphore.try_acquire(1).await?.is_none());
    assert_eq!(semaphore.available().await?, 0);
    second.release().await?;
    remove(&semaphore).await
}

pub async fn ps_08_many_permits_are_acquired_and_released_together(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    let six = soon(semaphore.acquire(6).permanent()).await?;
    assert_eq!((six.len(), semaphore.available().await?), (6, 4));
    semaphore.release(six).await?;
    assert_eq!(semaphore.available().await?, 10);
    let (four, five) = (semaphore.try_acquire(4).await?, semaphore.try_acquire(5).await?);
    let (four, five) = (four.expect("there are ten"), five.expect("there are six"));
    assert_eq!((four.ids().len(), four.count(), five.ids().len()), (4, 4, 5));
    assert_eq!(semaphore.available().await?, 1);
    four.release().await?;
    five.release().await?;
    remove(&semaphore).await
}

pub async fn ps_12_a_list_of_ids_is_released_completely_or_not_at_all(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    let six = ids(&semaphore, 6).await?;
    assert!(semaphore.try_release(six[..4].to_vec()).await?);
    assert_eq!(semaphore.available().await?, 8);
    assert!(semaphore.try_release(six[4..].to_vec()).await?);
    assert_eq!(semaphore.available().await?, 10);
    assert!(matches!(semaphore.release(six).await, Err(ChangeError::NotAcquired { .. })));
    assert!(matches!(semaphore.release([unknown()]).await, Err(ChangeError::NotAcquired { .. })));

    let two = ids(&semaphore, 2).await?;
    assert!(matches!(
        semaphore.release([two[0], two[1], unknown()]).await,
        Err(ChangeError::NotAcquired { .. })
    ));
    assert_eq!(semaphore.available().await?, 8);
    semaphore.release([two[0], two[1], two[0]]).await?;
    semaphore.release([]).await?;
    assert_eq!(semaphore.available().await?, 10, "an id that is named twice counts once");
    remove(&semaphore).await
}

pub async fn ps_14_an_unknown_permit_id_is_refused(bench: &Bench) -> Outcome {
    bench.needs("leased semaphore")?;
    let semaphore = semaphore(bench).await;
    assert!(matches!(semaphore.release([unknown()]).await, Err(ChangeError::NotAcquired { .. })));
    assert!(!semaphore.try_release([unknown()]).await?);
    assert!(!semaphore.update_lease(unknown(), LEASE).await?);
    assert!(!semaphore.make_permanent(unknown()).await?);
    assert_eq!(semaphore.lease_of(unknown()).await?, None);
    Ok(())
}

pub async fn ps_15_a_permit_with_an_expired_lease_cannot_be_released(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 1).await?;
    let id = semaphore.acquire(1).lease(LEASE).await?.forget();
    sleep(LEASE + MOMENT).await;
    assert!(!semaphore.try_release(id.clone()).await?);
    assert_eq!(counts(&semaphore).await?, (1, 1, 0));
    assert!(!semaphore.try_release(id).await?);
    assert_eq!(counts(&semaphore).await?, (1, 1, 0));
    remove(&semaphore).await
}

pub async fn ps_16_a_waiter_acquires_a_permit_when_the_lease_of_the_permit_expires(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 1).await?, semaphore(bench).await);
    for wait in [LONG_LEASE, LEASE * 10] {
        let begun = Instant::now();
        let lapsing = elsewhere.acquire(1).wait(wait).lease(LEASE).await?.forget();
        let next = soon(semaphore.acquire(1)).await?;
        assert!(begun.elapsed() >= LEASE, "after {:?}", begun.elapsed());
        assert!(!elsewhere.try_release(lapsing).await?);
        assert_eq!(counts(&semaphore).await?, (1, 0, 1));
        next.release().await?;
    }
    remove(&semaphore).await
}

pub async fn ps_18_expired_permits_are_counted_as_free(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 2).await?;
    assert_eq!(counts(&semaphore).await?, (2, 2, 0));
    let lease = LEASE * 3;
    let try_one = || semaphore.try_acquire(1).lease(lease);
    for (taken, had) in [(1, true), (2, true), (2, false)] {
        let tried = try_one().await?;
        assert_eq!(tried.is_some(), had, "{tried:?}");
        drop(tried.map(LeasedPermits::forget));
        assert_eq!(counts(&semaphore).await?, (2, 2 - taken, taken));
    }
    sleep(lease + MOMENT).await;
    try_one().await?.expect("both are free").forget();
    assert_eq!(counts(&semaphore).await?, (2, 1, 1));
    sleep(lease + MOMENT).await;
    assert_eq!(counts(&semaphore).await?, (2, 2, 0));
    remove(&semaphore).await
}

pub async fn ps_23_the_lease_of_a_permit_can_be_changed(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 1).await?;
    let id = semaphore.acquire(1).lease(LEASE).await?.forget()[0];
    assert!(semaphore.update_lease(id, LEASE * 3).await?);
    sleep(LEASE * 2).await;
    assert_eq!(semaphore.available().await?, 0);
    sleep(LEASE + MOMENT).await;
    assert_eq!(semaphore.available().await?, 1);
    assert!(!semaphore.update_lease(id, LEASE * 2).await?);

    let id = semaphore.acquire(1).lease(LONG_LEASE).await?.forget()[0];
    assert!(semaphore.make_permanent(id).await?);
    assert_eq!(semaphore.lease_of(id).await?, Some(Duration::MAX));
    assert!(semaphore.update_lease(id, LEASE).await?);
    soon(semaphore.acquire(1)).await?.release().await?;
    let short = semaphore.update_lease(id, Duration::ZERO).await;
    assert!(
        matches!(short, Err(ChangeError::Invalid { cause: InvalidRequestError::TooShort { .. }, .. })),
        "{short:?}"
    );
    remove(&semaphore).await
}

pub async fn own_240_waiters_acquire_a_permit_when_its_shortened_lease_expires(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 2).await?, semaphore(bench).await);
    let kept = ids(&semaphore, 1).await?;
    for long in [LONG_LEASE, Duration::MAX] {
        let id = match long {
            Duration::MAX => soon(semaphore.acquire(1).permanent()).await?[0],
            long => soon(semaphore.acquire(1).lease(long)).await?.forget()[0],
        };
        let [near, far] = [&semaphore, &elsewhere].map(|semaphore| semaphore.acquire(1).into_future());
        let waiters = [near, far].map(|acquire| tokio::spawn(async { acquire.await.map(drop) }));
        sleep(MOMENT).await;
        let begun = Instant::now();
        assert!(semaphore.update_lease(id, LEASE).await?);
        for waiter in waiters {
            soon(waiter).await??;
        }
        assert!(begun.elapsed() >= LEASE);
    }
    drop(soon(semaphore.acquire(1)).await?);
    semaphore.release(kept).await?;
    remove(&semaphore).await
}

pub async fn ps_24_the_lease_of_a_permit_can_be_queried(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 3).await?;
    let permanent = ids(&semaphore, 1).await?[0];
    assert_eq!(semaphore.lease_of(permanent).await?, Some(Duration::MAX));
    let leased = semaphore.acquire(1).lease(LEASE * 2).await?.forget()[0];
    sleep(MOMENT).await;
    let left = semaphore.lease_of(leased).await?.expect("it is taken");
    assert!(left + MOMENT <= LEASE * 2 && !left.is_zero(), "{left:?}");
    let kept = semaphore.acquire(1).await?;
    let left = semaphore.lease_of(kept.ids()[0]).await?.expect("it is taken");
    assert!(is_nearly(left, Duration::from_secs(30)), "{left:?}");
    kept.release().await?;
    sleep(left.min(LEASE * 2)).await;
    assert_eq!(semaphore.lease_of(leased).await?, None);
    assert_eq!(counts(&semaphore).await?, (3, 2, 1));
    remove(&semaphore).await
}

pub async fn ps_26_an_expired_permit_can_be_acquired_again(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    semaphore.acquire(6).lease(LEASE).await?.forget();
    sleep(LEASE + MOMENT).await;
    semaphore.acquire(1).lease(LEASE).await?.forget();
    assert_eq!(semaphore.available().await?, 9);
    sleep(LEASE + MOMENT).await;
    assert_eq!(semaphore.available().await?, 10);
    remove(&semaphore).await
}

pub async fn ps_28_releasing_a_list_with_expired_ids_frees_only_the_expired_permits(
    bench: &Bench,
) -> Outcome {
    let semaphore = with(bench, 10).await?;
    let lapsed = semaphore.acquire(2).lease(LEASE).await?.forget();
    let kept = ids(&semaphore, 8).await?;
    semaphore.release(kept[..2].to_vec()).await?;
    sleep(LEASE + MOMENT).await;
    assert!(matches!(semaphore.release(lapsed.clone()).await, Err(ChangeError::NotAcquired { .. })));
    assert_eq!(semaphore.available().await?, 4, "each was returned once");
    for list in [vec![unknown()], vec![kept[2], kept[3], unknown()], vec![kept[2], lapsed[0]]] {
        assert!(matches!(semaphore.release(list).await, Err(ChangeError::NotAcquired { .. })));
        assert_eq!(semaphore.available().await?, 4);
    }
    remove(&semaphore).await
}

pub async fn ps_32_a_waiter_for_two_permits_is_woken_by_the_release_of_one(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 2).await?, semaphore(bench).await);
    let one = elsewhere.acquire(1).await?;
    let waiting = waiter(&semaphore, 2).await;
    assert!(!waiting.is_finished());
    one.release().await?;
    assert_eq!(soon(waiting).await??.count(), 2);
    assert_eq!(semaphore.available().await?, 2);
    remove(&semaphore).await
}

pub async fn ps_33_a_single_leased_permit_has_one_holder_at_a_time(bench: &Bench) -> Outcome {
    let first = with(bench, 1).await?;
    for (clients, tasks) in [(1, 30), (16, 1)] {
        let tally = Arc::new(Tally::default());
        let mut all = JoinSet::new();
        for _ in 0..clients {
            let semaphore = semaphore(bench).await;
            for _ in 0..tasks {
                let (semaphore, tally) = (semaphore.clone(), Arc::clone(&tally));
                all.spawn(async move {
                    for _ in 0..5 {
                        let permit = soon(semaphore.acquire(1)).await?;
                        tally.add().await;
                        permit.release().await?;
                    }
                    Ok(())
                });
            }
        }
        all_done(all).await?;
        assert_eq!(tally.count(), clients * tasks * 5);
    }
    remove(&first).await
}

pub async fn own_200_permits_are_renewed_while_their_guard_lives(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let (semaphore, elsewhere) = (client.leased_semaphore(bench.name("semaphore")), semaphore(bench).await);
    assert!(semaphore.try_set_permits(3).await?);
    let kept = semaphore.acquire(2).await?;
    assert!(is_pending_for(WATCHDOG * 2, kept.lost()).await);
    assert!(kept.is_held() && kept.remaining() <= WATCHDOG);
    assert_eq!(elsewhere.available().await?, 1);
    let kept = kept.run(async { "done" }).await.map(|done| (kept, done))?.0;
    kept.release().await?;
    assert_eq!(elsewhere.available().await?, 3);
    remove(&semaphore).await
}

pub async fn own_201_permits_of_a_client_that_is_gone_become_free(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let (semaphore, elsewhere) = (client.leased_semaphore(bench.name("semaphore")), semaphore(bench).await);
    assert!(semaphore.try_set_permits(1).await?);
    let kept = semaphore.acquire(1).await?;
    let waiting = waiter(&elsewhere, 1).await;
    assert_eq!(client.shutdown(Duration::ZERO).await.left_to_expire, 1);
    assert_eq!(soon(kept.lost()).await, Loss::Shutdown);
    let next = soon(waiting).await??;
    drop(kept);
    sleep(MOMENT).await;
    assert!(next.is_held());
    assert_eq!(counts(&elsewhere).await?, (1, 0, 1), "the late guard gives nothing back");
    next.release().await?;
    remove(&elsewhere).await
}

pub async fn own_202_a_guard_of_permits_detects_the_end_of_their_lease(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 2).await?;
    let (dropped, released) =
        (semaphore.acquire(1).lease(LEASE).await?, semaphore.acquire(1).lease(LEASE).await?);
    assert!(released.extend(LEASE * 2).await? > LEASE);
    assert_eq!(soon(dropped.lost()).await, Loss::Expired);
    assert!(!dropped.is_held() && released.is_held());
    assert_eq!(soon(released.lost()).await, Loss::Expired);
    sleep(MOMENT).await;
    assert_eq!(counts(&semaphore).await?, (2, 2, 0));
    drop(dropped);
    assert!(matches!(released.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    assert_eq!(counts(&semaphore).await?, (2, 2, 0), "a reclaimed permit is not returned once more");
    remove(&semaphore).await
}

pub async fn own_203_dropped_leased_permits_are_released(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 3).await?;
    drop(semaphore.acquire(2).await?);
    assert_eq!(counts(&semaphore).await?, (3, 3, 0));
    drop(semaphore.acquire(2).lease(LONG_LEASE).await?.release());
    assert_eq!(counts(&semaphore).await?, (3, 3, 0));
    let nothing = semaphore.acquire(0).await;
    assert!(
        matches!(nothing, Err(AcquireError::Invalid { cause: InvalidRequestError::NoPermits, .. })),
        "{nothing:?}"
    );
    assert_eq!(semaphore.acquire(0).permanent().await?, []);
    let held = semaphore.acquire(1).await?;
    let again = held.reenter().await;
    assert!(
        matches!(again, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. })),
        "{again:?}"
    );
    assert!(held.is_held());
    held.release().await?;
    remove(&semaphore).await
}

pub async fn own_204_a_permit_released_by_its_id_is_lost_to_its_guard(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let (semaphore, elsewhere) = (client.leased_semaphore(bench.name("semaphore")), semaphore(bench).await);
    assert!(semaphore.try_set_permits(3).await?);
    let held = semaphore.acquire(2).await?;
    elsewhere.release([held.ids()[0]]).await?;
    assert_eq!(soon(held.lost()).await, Loss::Gone);
    drop(held);
    assert_eq!(counts(&semaphore).await?, (3, 3, 0));
    let held = semaphore.acquire(1).await?;
    remove(&elsewhere).await?;
    assert_eq!(soon(held.lost()).await, Loss::Gone);
    Ok(())
}

pub async fn own_205_a_waiter_for_many_leased_permits_is_not_starved(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 3).await?;
    let held = semaphore.acquire(1).await?;
    let greedy = waiter(&semaphore, 3).await;
    let modest = waiter(&semaphore, 1).await;
    assert!(semaphore.try_acquire(1).await?.is_none(), "two are free, and reserved for the front waiter");
    held.release().await?;
    let all = soon(greedy).await??;
    assert!(!modest.is_finished());
    all.release().await?;
    soon(modest).await??.release().await?;
    remove(&semaphore).await
}

pub async fn own_206_thousands_of_permits_expire_at_once(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 9000).await?;
    // On a busy machine so many permits take longer than the usual lease of a case.
    let lease = LEASE * 6;
    semaphore.acquire(9000).lease(lease).await?.forget();
    assert_eq!(counts(&semaphore).await?, (9000, 0, 9000));
    sleep(lease + MOMENT).await;
    let all = semaphore.acquire(9000).await?;
    assert_eq!(counts(&semaphore).await?, (9000, 0, 9000));
    all.release().await?;
    assert_eq!(counts(&semaphore).await?, (9000, 9000, 0));
    remove(&semaphore).await
}

pub async fn own_207_cancellation_racing_with_release_loses_no_leased_permit(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 2).await?, semaphore(bench).await);
    let acquire = |of: &LeasedSemaphore, permits| of.acquire(permits).into_future();
    release_and_cancel(
        || acquire(&elsewhere, 2),
        |permits| acquire(&semaphore, permits),
        LeasedPermits::release,
    )
    .await?;
    // The undo precedes the next request of the same client.
    assert_eq!(counts(&semaphore).await?, (2, 2, 0));
    remove(&semaphore).await
}

pub async fn own_208_plain_threads_can_acquire_leased_permits(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 1).await?;
    let held = semaphore.acquire(1).await?;
    let blocked = {
        let semaphore = semaphore.clone();
        tokio::spawn(on_a_thread(move || -> Outcome {
            let permit = semaphore.acquire(1).block()?;
            let id = permit.ids()[0];
            assert!(semaphore.lease_of(id).block()?.is_some());
            permit.release().block()?;
            assert!(!semaphore.try_release([id]).block()?);
            Ok(())
        }))
    };
    // The thread uses the system's clock, so this must not sleep.
    tokio::task::yield_now().await;
    held.release().await?;
    blocked.await??;
    remove(&semaphore).await
}

pub async fn own_345_a_handle_sets_the_leased_permits_that_are_not_set(bench: &Bench) -> Outcome {
    let handle = bench.client().await.leased_semaphore(bench.name("semaphore")).with_permits(2);
    let held = soon(handle.acquire(1)).await?;
    let other = bench.client().await.leased_semaphore(bench.name("semaphore")).with_permits(100);
    assert!(other.try_acquire(2).await?.is_none(), "what is set stays as it is");
    held.release().await?;
    assert_eq!(other.total().await?, 2);
    assert!(other.delete().await?);
    Ok(())
}
