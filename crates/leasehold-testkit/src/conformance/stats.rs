//! What a client has counted, against what the case has done.

use std::future::IntoFuture;

use leasehold::{AcquireError, Client, Loss, Stats};
use tokio::time::sleep;

use super::Outcome;
use super::common::{LEASE, MOMENT, Waiter, soon, until_waiting};
use crate::bench::Bench;
use crate::cut::{Cut, Ended, cut_off, everywhere};

/// How the acquires of a client have ended: granted, busy, timed out, failed and cancelled.
fn outcomes(client: &Client) -> [u64; 5] {
    let Stats { granted, busy, timed_out, failed, cancelled, .. } = client.stats();
    [granted, busy, timed_out, failed, cancelled]
}

/// The losses of a client: those for this cause, and all of them.
fn losses(client: &Client, cause: Loss) -> (u64, u64) {
    (client.stats().losses_by(cause), client.stats().losses())
}

pub async fn own_430_acquires_are_counted_by_their_outcome(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let lock = client.lock(bench.name("lock"));
    assert_eq!(client.stats().timeout_share().to_string(), "0");
    let guard = lock.acquire().await?;
    assert!(lock.try_acquire().await?.is_none());
    assert!(matches!(lock.acquire().wait(MOMENT).await, Err(AcquireError::Timeout { .. })));
    let cancelled = Waiter::begin(lock.acquire()).await;
    until_waiting(&client, 1).await;
    cancelled.cancel();
    drop(cancelled.gone().await);
    drop(lock.acquire().into_future());
    assert_eq!(outcomes(&client), [1, 1, 1, 0, 1], "a future that was never polled is none");
    assert_eq!((client.stats().granted_after_wait, client.stats().waited.as_nanos()), (0, 0));

    let waiter = Waiter::begin(lock.acquire()).await;
    until_waiting(&client, 1).await;
    sleep(MOMENT).await;
    guard.release().await?;
    waiter.outcome().await?.release().await?;
    let stats = client.stats();
    assert_eq!((outcomes(&client), stats.granted_after_wait), ([2, 1, 1, 0, 1], 1));
    assert!(stats.waited >= MOMENT, "{stats:?}");
    assert_eq!(stats.mean_wait(), stats.waited / 2);
    assert!((stats.timeout_share() - 1.0 / 3.0).abs() < 1e-9);

    client.shutdown(MOMENT).await;
    assert!(lock.acquire().await.is_err());
    assert_eq!(outcomes(&client), [2, 1, 1, 1, 1]);
    Ok(())
}

pub async fn own_431_waiters_and_guards_are_counted_while_they_are_there(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let lock = client.lock(bench.name("lock"));
    let now = || (client.stats().waiters, client.stats().held);
    let outer = lock.acquire().await?;
    assert_eq!(now(), (0, 1));
    let inner = outer.reenter().await?;
    let waiters = [Waiter::begin(lock.acquire()).await, Waiter::begin(lock.acquire()).await];
    let latch = client.latch(bench.name("latch"));
    // Not every engine has latches.
    let opened = latch.try_set_count(1).await.is_ok().then(|| tokio::spawn(latch.opened().into_future()));
    until_waiting(&client, 2).await;
    sleep(MOMENT).await;
    assert_eq!(now(), (2, 2), "a latch is not acquired");
    drop(inner);
    outer.release().await?;
    for waiter in waiters {
        waiter.outcome().await?.release().await?;
    }
    assert_eq!(now(), (0, 0));
    if let Some(opened) = opened {
        latch.count_down().await?;
        soon(opened).await??;
    }
    assert_eq!(outcomes(&client), [4, 0, 0, 0, 0]);
    Ok(())
}

pub async fn own_432_no_waiter_and_no_guard_is_counted_for_ever(bench: &Bench) -> Outcome {
    let client = &bench.client().await;
    let lock = &client.lock(bench.name("lock"));
    everywhere(&[false, true], async |is_busy, cut: Cut| {
        let before = outcomes(client);
        let holder = if is_busy { Some(lock.acquire().await.expect("it is free")) } else { None };
        let acquire = tokio::spawn(cut_off(cut, lock.acquire().into_future()));
        tokio::task::yield_now().await;
        if let Some(holder) = holder {
            holder.release().await.expect("it is held");
        }
        let is_cut = match soon(acquire).await.expect("no panic") {
            Ended::Cut => true,
            Ended::Done(granted) => {
                granted.expect("it is free").release().await.expect("it is held");
                false
            }
        };
        let stats = client.stats();
        assert_eq!((stats.waiters, stats.held), (0, 0), "{cut:?}, busy: {is_busy}");
        let after = outcomes(client);
        let was_polled = !matches!(cut, Cut::InPlaceOf(1));
        let cancelled = u64::from(is_cut && was_polled);
        assert_eq!(after[4] - before[4], cancelled, "{cut:?}, busy: {is_busy}");
        assert_eq!(after[0] - before[0], u64::from(is_busy) + u64::from(!is_cut), "{cut:?}");
        is_cut
    })
    .await;
    Ok(())
}

pub async fn own_433_losses_are_counted_by_their_cause(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let lock = client.lock(bench.name("lock"));
    let expires = lock.acquire().lease(LEASE).await?;
    assert_eq!(soon(expires.lost()).await, Loss::Expired);
    assert!(!expires.is_held());
    drop(expires);
    assert_eq!(losses(&client, Loss::Expired), (1, 1), "each once, however often it is noticed");
    let limited = lock.acquire().max_hold(LEASE).await?;
    assert_eq!(soon(limited.lost()).await, Loss::MaxHold);
    assert!(limited.release().await.is_err());
    assert_eq!(losses(&client, Loss::MaxHold), (1, 2));
    let kept = lock.acquire().await?;
    client.shutdown(MOMENT).await;
    assert!(!kept.is_held());
    assert_eq!(losses(&client, Loss::Shutdown), (1, 3));
    assert_eq!(client.stats().held, 1, "its work may still go on");
    drop(kept);
    assert_eq!(client.stats().held, 0);
    Ok(())
}

pub async fn own_434_locks_that_are_taken_away_are_counted_as_losses(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, bench.client().await);
    let lock = client.lock(bench.name("lock"));
    let freed = lock.acquire().await?;
    lock.force_unlock().await?;
    assert_eq!(soon(freed.lost()).await, Loss::ForceUnlocked);
    assert_eq!(losses(&client, Loss::ForceUnlocked), (1, 1));
    let taken_over = lock.acquire().await?;
    let taker = lock.acquire().steal().await?;
    assert_eq!(soon(taken_over.lost()).await, Loss::TakenOver);
    taker.release().await?;
    assert_eq!(losses(&client, Loss::TakenOver), (1, 2));
    assert_eq!(other.stats().losses(), 0);
    Ok(())
}

pub async fn own_435_a_lock_that_is_found_gone_by_its_release_is_a_loss(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let lock = client.lock(bench.name("lock"));
    let guard = lock.acquire().await?;
    bench.remove(guard.name()).await?;
    // An engine that does not notice it at a release has notified the guard before, or never does.
    let is_noticed = u64::from(guard.release().await.is_err());
    assert_eq!(losses(&client, Loss::Gone), (is_noticed, is_noticed));
    Ok(())
}

pub async fn own_436_locks_of_every_kind_are_counted(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let granted = || client.stats().granted;
    client.fair_lock(bench.name("fair")).acquire().await?.release().await?;
    client.spin_lock(bench.name("spin")).acquire().await?.release().await?;
    client.fenced_lock(bench.name("fenced")).acquire().await?.release().await?;
    assert_eq!(granted(), 3);
    let names = ["one", "two", "three"].map(|name| bench.name(name));
    let all = client.multi_lock(&names);
    let guard = all.acquire().await?;
    assert_eq!(client.stats().held, 3);
    guard.release().await?;
    assert_eq!(granted(), 6);
    let held = client.lock(&names[1]).acquire().await?;
    assert!(all.try_acquire().await?.is_none());
    assert!(all.acquire().wait(MOMENT).await.is_err());
    held.release().await?;
    let Stats { busy, timed_out, .. } = client.stats();
    assert_eq!((busy, timed_out), (1, 1));
    Ok(())
}

pub async fn own_437_permits_and_read_write_locks_are_counted(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let rw = client.rw_lock(bench.name("rw"));
    rw.read().acquire().await?.release().await?;
    let writer = rw.write().acquire().await?;
    assert!(rw.read().try_acquire().await?.is_none());
    assert_eq!(outcomes(&client), [2, 1, 0, 0, 0]);
    writer.downgrade().await?.release().await?;
    assert_eq!(outcomes(&client), [3, 1, 0, 0, 0], "a downgrade acquires the other half");
    let semaphore = client.semaphore(bench.name("semaphore"));
    semaphore.try_set_permits(2).await?;
    let permits = semaphore.acquire(2).await?;
    assert!(semaphore.try_acquire(1).await?.is_none());
    permits.release().await?;
    semaphore.delete().await?;
    assert_eq!(outcomes(&client), [4, 2, 0, 0, 0]);
    assert_eq!((client.stats().held, client.stats().waiters), (0, 0));
    Ok(())
}
