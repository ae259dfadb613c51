//! Permits that are only counted.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{
    AcquireError, ChangeError, InvalidRequestError, Loss, QueryError, ReleaseError, Semaphore,
    SemaphorePermits,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::common::{LEASE, MOMENT, all_done, is_pending_for, on_a_thread, release_and_cancel, soon};
use super::{Failed, Outcome};
use crate::bench::Bench;
use crate::tally::Tally;

/// The case's semaphore, with a new client.
async fn semaphore(bench: &Bench) -> Semaphore {
    bench.client().await.semaphore(bench.name("semaphore"))
}

/// The same, with so many permits.
async fn with(bench: &Bench, permits: u32) -> Result<Semaphore, Failed> {
    let semaphore = semaphore(bench).await;
    assert!(semaphore.try_set_permits(permits).await?);
    Ok(semaphore)
}

/// Removes a semaphore that must exist: it would stay for ever.
async fn remove(semaphore: &Semaphore) -> Outcome {
    assert!(semaphore.delete().await?);
    Ok(())
}

/// Acquires free permits, as a bare number.
async fn take(semaphore: &Semaphore, permits: u32) -> Result<(), AcquireError> {
    semaphore.try_acquire(permits).await?.expect("they are there").forget();
    Ok(())
}

/// A waiter in a task, with a moment to be queued.
async fn waiter(semaphore: &Semaphore, permits: u32) -> JoinHandle<Result<SemaphorePermits, AcquireError>> {
    let waiter = tokio::spawn(semaphore.acquire(permits).into_future());
    sleep(MOMENT).await;
    waiter
}

pub async fn hd_24_one_client_offers_locks_semaphores_and_latches(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (semaphore, latch) = (client.semaphore(bench.name("semaphore")), client.latch(bench.name("latch")));
    let leased = client.leased_semaphore(bench.name("leased"));
    semaphore.release(1).await?;
    leased.set_permits(1).await?;
    let held = (
        client.lock(bench.name("lock")).acquire().await?,
        client.rw_lock(bench.name("rw")).read().acquire().await?,
        semaphore.acquire(1).await?,
        leased.acquire(1).await?,
    );
    latch.opened().await?;
    drop(held);
    assert!(semaphore.delete().await? && leased.delete().await?);
    Ok(())
}

pub async fn se_01_the_permits_of_a_semaphore_are_set_once(bench: &Bench) -> Outcome {
    let semaphore = semaphore(bench).await;
    assert_eq!(semaphore.available().await?, 0);
    assert!(semaphore.try_set_permits(10).await?);
    assert_eq!(semaphore.available().await?, 10);
    assert!(!semaphore.try_set_permits(15).await?);
    assert_eq!(semaphore.available().await?, 10);
    remove(&semaphore).await
}

pub async fn se_02_a_semaphore_with_a_time_to_live_expires(bench: &Bench) -> Outcome {
    let semaphore = semaphore(bench).await;
    assert!(semaphore.try_set_permits(1).ttl(LEASE).await?);
    assert_eq!(semaphore.available().await?, 1);
    sleep(LEASE + MOMENT).await;
    assert_eq!(semaphore.available().await?, 0);
    assert!(!semaphore.release_if_exists(1).await?);
    assert!(semaphore.try_set_permits(2).ttl(LEASE * 20).await?, "it is set anew");
    // Neither takes the time to live away, and both of these do.
    assert_eq!(semaphore.drain().await?, 2);
    assert_eq!(semaphore.add_permits(3).await?, 3);
    remove(&semaphore).await
}

pub async fn se_03_permits_can_be_added(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    take(&semaphore, 10).await?;
    assert_eq!(semaphore.add_permits(4).await?, 4);
    assert_eq!(semaphore.available().await?, 4);
    semaphore.release(10).await?;
    assert_eq!(semaphore.available().await?, 14, "what was set at first is no bound");
    take(&semaphore, 5).await?;
    assert_eq!(semaphore.available().await?, 9);
    remove(&semaphore).await
}

pub async fn se_04_more_permits_can_be_removed_than_are_free(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    take(&semaphore, 10).await?;
    assert_eq!(semaphore.add_permits(-5).await?, -5);
    assert_eq!(semaphore.available().await?, -5);
    semaphore.release(10).await?;
    assert_eq!(semaphore.available().await?, 5);
    take(&semaphore, 5).await?;
    assert_eq!(semaphore.available().await?, 0);
    assert_eq!(semaphore.add_permits(-7).await?, -7);
    assert_eq!(semaphore.drain().await?, -7);
    assert_eq!(semaphore.available().await?, 0);
    remove(&semaphore).await
}

pub async fn se_05_the_number_of_free_permits_follows_every_acquire_and_release(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    let one = semaphore.acquire(1).await?;
    assert_eq!((one.count(), semaphore.available().await?), (1, 9));
    one.release().await?;
    assert_eq!(semaphore.available().await?, 10);
    let five = semaphore.acquire(5).await?;
    assert_eq!((five.count(), semaphore.available().await?), (5, 5));
    five.release().await?;
    assert_eq!(semaphore.available().await?, 10);
    let first = semaphore.acquire(1).await?;
    let second = semaphore.acquire(1).await?;
    assert_eq!(semaphore.available().await?, 8);
    first.release().await?;
    assert_eq!(semaphore.available().await?, 9);
    second.release().await?;
    assert_eq!(semaphore.available().await?, 10);
    remove(&semaphore).await
}

pub async fn se_06_a_release_creates_a_missing_semaphore(bench: &Bench) -> Outcome {
    let semaphore = semaphore(bench).await;
    semaphore.release(1).await?;
    assert_eq!(semaphore.available().await?, 1);
    semaphore.release(1).await?;
    soon(semaphore.acquire(2)).await?.release().await?;
    remove(&semaphore).await
}

pub async fn se_08_release_if_exists_does_not_create_a_semaphore(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    take(&semaphore, 1).await?;
    assert!(semaphore.release_if_exists(1).await?);
    assert_eq!(semaphore.available().await?, 10);
    let other = bench.client().await.semaphore(bench.name("other"));
    assert!(!other.release_if_exists(1).await?);
    assert_eq!(other.available().await?, 0);
    remove(&semaphore).await
}

pub async fn se_10_zero_permits_are_acquired_at_once(bench: &Bench) -> Outcome {
    let semaphore = semaphore(bench).await;
    let none = soon(semaphore.acquire(0).wait(Duration::from_secs(600))).await?;
    assert_eq!(none.count(), 0);
    none.release().await?;
    assert!(semaphore.try_acquire(0).await?.is_some());
    semaphore.release(0).await?;
    assert_eq!(semaphore.available().await?, 0);
    assert!(!semaphore.delete().await?, "there is none");
    Ok(())
}

pub async fn se_11_a_waiter_acquires_released_permits(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 1).await?, semaphore(bench).await);
    let permit = elsewhere.acquire(1).await?;
    let waiting = waiter(&semaphore, 1).await;
    assert!(!waiting.is_finished());
    permit.release().await?;
    let _permit = soon(waiting).await??;
    assert!(semaphore.try_acquire(1).await?.is_none());
    assert_eq!(semaphore.available().await?, 0);
    remove(&semaphore).await
}

pub async fn se_12_a_waiter_for_many_permits_waits_until_all_are_free(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 5).await?, semaphore(bench).await);
    take(&elsewhere, 3).await?;
    let waiting = waiter(&semaphore, 4).await;
    elsewhere.release(1).await?;
    sleep(MOMENT).await;
    assert!(!waiting.is_finished(), "three are too few");
    elsewhere.release(1).await?;
    let _permits = soon(waiting).await??;
    assert_eq!(semaphore.available().await?, 0);
    remove(&semaphore).await
}

pub async fn se_15_tasks_of_one_client_hold_a_single_permit_one_at_a_time(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 1).await?;
    let tally = Arc::new(Tally::default());
    let mut tasks = JoinSet::new();
    for _ in 0..15 {
        tasks.spawn(rounds(1, semaphore.clone(), Arc::clone(&tally)));
    }
    all_done(tasks).await?;
    assert_eq!(tally.count(), 15);
    remove(&semaphore).await
}

pub async fn se_16_clients_hold_a_single_permit_one_at_a_time(bench: &Bench) -> Outcome {
    let first = with(bench, 1).await?;
    for (clients, times) in [(30, 1), (16, 10)] {
        let tally = Arc::new(Tally::default());
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            tasks.spawn(rounds(times, semaphore(bench).await, Arc::clone(&tally)));
        }
        all_done(tasks).await?;
        assert_eq!(tally.count(), clients * u64::try_from(times)?);
    }
    remove(&first).await
}

/// Counts so many times while holding the only permit.
async fn rounds(times: usize, semaphore: Semaphore, tally: Arc<Tally>) -> Outcome {
    for _ in 0..times {
        let permit = soon(semaphore.acquire(1)).await?;
        tally.add().await;
        permit.release().await?;
    }
    Ok(())
}

pub async fn se_18_waiters_for_all_permits_and_waiters_for_one_all_succeed(bench: &Bench) -> Outcome {
    let all = u32::try_from(i32::MAX)?;
    let first = with(bench, all).await?;
    let mut clients = JoinSet::new();
    for client in 0..4_u32 {
        let semaphore = semaphore(bench).await;
        clients.spawn(async move {
            for round in 0..10_u32 {
                let wanted = if (client * 7 + round * 3) % 5 < 2 { all } else { 1 };
                let permits = soon(semaphore.acquire(wanted)).await?;
                sleep(Duration::from_millis(5)).await;
                permits.release().await?;
            }
            Ok(())
        });
    }
    all_done(clients).await?;
    assert_eq!(first.available().await?, i64::from(all));
    remove(&first).await
}

pub async fn se_21_all_handles_of_a_semaphore_share_its_permits(bench: &Bench) -> Outcome {
    let (one, other) = (with(bench, 4).await?, semaphore(bench).await);
    let mut taken = vec![one.acquire(1).await?];
    other.acquire(1).await?.release().await?;
    for semaphore in [&one, &other, &one] {
        taken.push(semaphore.acquire(1).await?);
    }
    assert!(one.try_acquire(1).await?.is_none() && other.try_acquire(1).await?.is_none());
    taken.pop().expect("there are four").release().await?;
    taken.push(soon(other.acquire(1)).await?);
    for permit in taken {
        permit.release().await?;
    }
    remove(&one).await
}

pub async fn se_22_a_hundred_permits_of_a_semaphore_with_a_long_name_are_held_at_once(
    bench: &Bench,
) -> Outcome {
    let client = bench.client().await;
    let semaphore = client.semaphore(bench.name(&"long ".repeat(250)));
    assert!(semaphore.try_set_permits(u32::try_from(i32::MAX)?).await?);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(soon(semaphore.acquire(1)).await?);
    }
    assert_eq!(semaphore.available().await?, i64::from(i32::MAX) - 100);
    drop(held);
    remove(&semaphore).await
}

pub async fn se_23_as_many_tasks_work_at_once_as_there_are_permits(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 10).await?;
    let (inside, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (semaphore, inside, peak) = (semaphore.clone(), Arc::clone(&inside), Arc::clone(&peak));
        tasks.spawn(async move {
            let permit = soon(semaphore.acquire(1)).await?;
            peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(30)).await;
            // However long an acquire takes, the first ten work together.
            let ten = async {
                while peak.load(Ordering::SeqCst) < 10 {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            soon(ten).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            permit.release().await?;
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert_eq!((peak.load(Ordering::SeqCst), inside.load(Ordering::SeqCst)), (10, 0));
    assert_eq!(semaphore.available().await?, 10);
    remove(&semaphore).await
}

pub async fn se_24_invalid_semaphore_names_and_numbers_are_refused(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let odd = client.semaphore(bench.name("odd: ü {tag} \n \u{1f512}"));
    assert!(odd.try_set_permits(1).await?);
    assert!(odd.try_acquire(1).await?.is_some());
    remove(&odd).await?;

    let nameless = client.semaphore("");
    assert!(matches!(
        nameless.available().await,
        Err(QueryError::Invalid { cause: InvalidRequestError::EmptyName, .. })
    ));
    assert!(matches!(
        nameless.release(1).await,
        Err(ChangeError::Invalid { cause: InvalidRequestError::EmptyName, .. })
    ));
    assert!(matches!(
        nameless.acquire(1).await.map(drop),
        Err(AcquireError::Invalid { cause: InvalidRequestError::EmptyName, .. })
    ));
    let (semaphore, given) = (semaphore(bench).await, u32::MAX);
    let refused = InvalidRequestError::TooManyPermits { given };
    for changed in [semaphore.try_set_permits(given).await.map(drop), semaphore.release(given).await] {
        assert!(
            matches!(&changed, Err(ChangeError::Invalid { cause, .. }) if *cause == refused),
            "{changed:?}"
        );
    }
    let tried = semaphore.try_acquire(given).await;
    assert!(matches!(&tried, Err(AcquireError::Invalid { cause, .. }) if *cause == refused), "{tried:?}");
    let short = semaphore.try_set_permits(1).ttl(Duration::ZERO).await;
    assert!(
        matches!(short, Err(ChangeError::Invalid { cause: InvalidRequestError::TooShort { .. }, .. })),
        "{short:?}"
    );
    Ok(())
}

pub async fn se_31_the_turn_of_a_cancelled_waiter_for_permits_goes_to_the_next_waiter(
    bench: &Bench,
) -> Outcome {
    let semaphore = with(bench, 2).await?;
    let held = semaphore.acquire(2).await?;
    let greedy = waiter(&semaphore, 2).await;
    let modest = waiter(&semaphore, 1).await;
    take_back_one(held, &semaphore).await?;
    sleep(MOMENT).await;
    assert!(!greedy.is_finished() && !modest.is_finished());
    greedy.abort();
    assert!(soon(greedy).await.is_err());
    let permit = soon(modest).await??;
    permit.release().await?;
    assert_eq!(semaphore.available().await?, 1);
    remove(&semaphore).await
}

/// Releases one of two, and keeps the other as a number.
async fn take_back_one(held: SemaphorePermits, semaphore: &Semaphore) -> Outcome {
    assert_eq!(held.forget(), 2);
    semaphore.release(1).await?;
    Ok(())
}

pub async fn se_30_a_wait_for_permits_ends_at_its_limit(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 1).await?;
    let begun = Instant::now();
    let over = soon(semaphore.acquire(2).wait(LEASE)).await;
    assert!(matches!(over, Err(AcquireError::Timeout { .. })), "{over:?}");
    assert!(begun.elapsed() >= LEASE);
    assert!(soon(semaphore.acquire(1).wait(LEASE)).await.is_ok(), "the lock is granted without a wait");
    remove(&semaphore).await
}

pub async fn own_80_dropped_permits_are_released(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 3).await?;
    drop(semaphore.acquire(2).await?);
    assert_eq!(semaphore.available().await?, 3);
    let held = semaphore.acquire(2).await?;
    drop(held.release());
    assert_eq!(semaphore.available().await?, 3, "a release that is not awaited gives back, too");
    remove(&semaphore).await
}

pub async fn own_81_forgotten_permits_stay_acquired(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 3).await?, semaphore(bench).await);
    assert_eq!(semaphore.acquire(2).await?.forget(), 2);
    assert_eq!(semaphore.available().await?, 1);
    elsewhere.release(2).await?;
    assert_eq!(semaphore.available().await?, 3);
    remove(&semaphore).await
}

pub async fn own_82_a_waiter_for_many_permits_is_not_starved(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 3).await?;
    let held = semaphore.acquire(1).await?;
    let greedy = waiter(&semaphore, 3).await;
    let modest = waiter(&semaphore, 1).await;
    assert!(semaphore.try_acquire(1).await?.is_none(), "two are free, and reserved for the front waiter");
    assert!(!modest.is_finished());
    held.release().await?;
    let all = soon(greedy).await??;
    assert!(!modest.is_finished());
    all.release().await?;
    soon(modest).await??.release().await?;
    remove(&semaphore).await
}

pub async fn own_83_as_many_waiters_are_woken_as_there_are_permits(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 0).await?, semaphore(bench).await);
    let mut waiters = JoinSet::new();
    for from in [&semaphore, &elsewhere, &semaphore, &elsewhere, &semaphore, &semaphore] {
        waiters.spawn(from.acquire(1).into_future());
    }
    sleep(MOMENT).await;
    let mut served = Vec::new();
    for step in 1..=3 {
        match step {
            1 => semaphore.release(2).await?,
            2 => drop(semaphore.add_permits(3).await?),
            _ => semaphore.release(1).await?,
        }
        while served.len() < [2, 5, 6][step - 1] {
            served.push(soon(waiters.join_next()).await.expect("there are waiters")??);
        }
        assert!(is_pending_for(MOMENT, waiters.join_next()).await || waiters.is_empty());
        assert_eq!(semaphore.available().await?, 0);
    }
    for permit in served {
        permit.release().await?;
    }
    assert_eq!(semaphore.available().await?, 6);
    remove(&semaphore).await
}

pub async fn own_84_setting_permits_wakes_existing_waiters(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (semaphore(bench).await, semaphore(bench).await);
    let waiting = waiter(&semaphore, 1).await;
    assert!(elsewhere.try_set_permits(1).await?);
    soon(waiting).await??.release().await?;
    remove(&semaphore).await
}

pub async fn own_85_permits_of_a_deleted_semaphore_are_not_returned_to_the_next_semaphore(
    bench: &Bench,
) -> Outcome {
    let semaphore = with(bench, 2).await?;
    let (released, dropped) = (semaphore.acquire(1).await?, semaphore.acquire(1).await?);
    remove(&semaphore).await?;
    assert!(semaphore.try_set_permits(2).await?);
    assert!(matches!(released.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    drop(dropped);
    assert_eq!(semaphore.available().await?, 2, "what was set anew is not added to");
    remove(&semaphore).await
}

pub async fn own_280_permits_of_an_expired_semaphore_are_not_returned_to_the_next_semaphore(
    bench: &Bench,
) -> Outcome {
    let (semaphore, elsewhere) = (semaphore(bench).await, semaphore(bench).await);
    for set_anew in [false, true] {
        assert!(semaphore.try_set_permits(10).ttl(LEASE).await?);
        let (released, dropped) = (semaphore.acquire(3).await?, semaphore.acquire(3).await?);
        let waits = tokio::spawn(elsewhere.acquire(5).into_future());
        sleep(LEASE + MOMENT).await;
        if set_anew {
            assert!(elsewhere.try_set_permits(10).await?);
            soon(waits).await.expect("no panic")?.release().await?;
        } else {
            waits.abort();
        }
        assert!(matches!(released.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
        drop(dropped);
        let expected = if set_anew { 10 } else { 0 };
        assert_eq!(semaphore.available().await?, expected, "neither added to nor made");
        assert_eq!(semaphore.release_if_exists(1).await?, set_anew);
    }
    remove(&semaphore).await
}

pub async fn own_281_permits_are_returned_to_a_semaphore_whose_time_to_live_was_removed(
    bench: &Bench,
) -> Outcome {
    let semaphore = semaphore(bench).await;
    for drained in [false, true] {
        assert!(semaphore.try_set_permits(10).ttl(LEASE).await?);
        let (released, dropped) = (semaphore.acquire(3).await?, semaphore.acquire(3).await?);
        let free = if drained { semaphore.drain().await? - 4 } else { semaphore.add_permits(1).await? };
        sleep(LEASE + MOMENT).await;
        released.release().await?;
        drop(dropped);
        assert_eq!(semaphore.available().await?, free + 6, "drained: {drained}");
        remove(&semaphore).await?;
    }
    Ok(())
}

pub async fn own_86_cancellation_racing_with_release_loses_no_permit(bench: &Bench) -> Outcome {
    let (semaphore, elsewhere) = (with(bench, 2).await?, semaphore(bench).await);
    let acquire = |of: &Semaphore, permits| of.acquire(permits).into_future();
    release_and_cancel(
        || acquire(&elsewhere, 2),
        |permits| acquire(&semaphore, permits),
        SemaphorePermits::release,
    )
    .await?;
    // The undo precedes the next request of the same client.
    assert_eq!(semaphore.available().await?, 2);
    remove(&semaphore).await
}

pub async fn own_87_plain_threads_can_acquire_permits(bench: &Bench) -> Outcome {
    let semaphore = with(bench, 1).await?;
    let held = semaphore.acquire(1).await?;
    let blocked = {
        let semaphore = semaphore.clone();
        tokio::spawn(on_a_thread(move || -> Outcome {
            semaphore.acquire(1).block()?.release().block()?;
            semaphore.release(1).block()?;
            assert_eq!(semaphore.add_permits(-1).block()?, 1);
            Ok(())
        }))
    };
    // The thread uses the system's clock, so this must not sleep.
    tokio::task::yield_now().await;
    held.release().await?;
    blocked.await??;
    remove(&semaphore).await
}

pub async fn own_344_a_handle_sets_the_permits_that_are_not_set(bench: &Bench) -> Outcome {
    let unset = semaphore(bench).await;
    match unset.acquire(1).wait(MOMENT).await {
        Err(AcquireError::NoPermitsSet { .. }) => {}
        other => panic!("{:?}", other?),
    }
    let handle = semaphore(bench).await.with_permits(3);
    let held = soon(handle.acquire(2)).await?;
    assert_eq!(unset.available().await?, 1);
    // What is set stays as it is, whichever number others have in mind.
    let other = semaphore(bench).await.with_permits(100);
    assert!(other.try_acquire(2).await?.is_none());
    other.try_acquire(1).await?.expect("one is free").release().await?;
    held.release().await?;
    assert_eq!(unset.available().await?, 3);
    // A handle sets them once, and again when they were found to be gone.
    remove(&unset).await?;
    let error = handle.acquire(1).wait(MOMENT).await.expect_err("they are gone");
    assert!(matches!(error, AcquireError::NoPermitsSet { .. }), "{error:?}");
    soon(handle.clone().acquire(3)).await?.release().await?;
    let invalid = unset.clone().with_permits(u32::MAX).acquire(1).await.expect_err("so many cannot be set");
    assert!(matches!(invalid, AcquireError::Invalid { .. }), "{invalid:?}");
    remove(&unset).await
}
