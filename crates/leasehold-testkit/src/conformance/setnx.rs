//! The lock that is one key, set with `SET … NX`.

use std::sync::{Arc, Mutex};

use leasehold::{
    AcquireError, ConnectOptions, InvalidRequestError, Lock, Loss, MultiLock, Owner, ReleaseError,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{
    LEASE, LONG_LEASE, MOMENT, WATCHDOG, Waiter, all_done, is_free_for, is_nearly, short_watchdog, soon,
    taken,
};
use crate::bench::Bench;
use crate::tally::Tally;

/// The case's lock, with a new client.
async fn setnx_lock(bench: &Bench) -> Lock {
    setnx_lock_with(bench, |connect| connect).await
}

async fn setnx_lock_with(bench: &Bench, options: impl FnOnce(ConnectOptions) -> ConnectOptions) -> Lock {
    bench.client_with(options).await.setnx_lock(bench.name("lock"))
}

pub async fn own_53_a_setnx_lock_has_one_holder_and_a_fifo_queue(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (setnx_lock(bench).await, setnx_lock(bench).await);
    let guard = taken(&lock).await?;
    assert!(lock.try_acquire().await?.is_none() && elsewhere.try_acquire().await?.is_none());
    let over = soon(elsewhere.acquire().wait(LEASE)).await.expect_err("the lock is busy");
    assert!(over.is_contended(), "{over:?}");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..5 {
        let (lock, served) = (elsewhere.clone(), Arc::clone(&served));
        waiters.spawn(async move {
            let guard = lock.acquire().await?;
            served.lock().expect("no thread panicked").push(number);
            guard.release().await?;
            Ok(())
        });
        sleep(MOMENT).await;
    }
    assert_eq!(guard.release().await?.holds_left, 0);
    all_done(waiters).await?;
    assert_eq!(*served.lock().expect("no thread panicked"), [0, 1, 2, 3, 4]);
    Ok(())
}

pub async fn own_54_a_setnx_lock_is_not_re_entered(bench: &Bench) -> Outcome {
    let lock = setnx_lock(bench).await;
    let me = Owner::unique();
    let guard = lock.acquire().as_owner(&me).await?;
    for refused in [soon(lock.acquire().as_owner(&me)).await, soon(guard.reenter()).await] {
        assert!(
            matches!(refused, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. })),
            "{refused:?}"
        );
    }
    assert!(guard.is_held() && lock.hold_count(&me).await? == 1);
    assert_eq!(lock.as_owner(&me).release().await?.holds_left, 0);
    assert!(!guard.is_held() && is_free_for(&lock).await?);
    let again = lock.as_owner(&me).release().await;
    assert!(matches!(again, Err(ReleaseError::NotOwner { .. })), "{again:?}");
    // The same owner acquires it again, and its old guard does not affect that.
    let next = lock.acquire().as_owner(&me).await?;
    drop(guard);
    sleep(MOMENT).await;
    assert!(next.is_held() && lock.is_held_by(&me).await?);
    Ok(())
}

pub async fn own_55_all_queries_about_a_setnx_lock_agree(bench: &Bench) -> Outcome {
    let (lock, onlooker) = (setnx_lock(bench).await, setnx_lock(bench).await);
    assert!(onlooker.holder().await?.is_none() && onlooker.ttl().await?.is_none());
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    let holder = onlooker.holder().await?.expect("it is held");
    assert_eq!((holder.owner, holder.holds), (Some(guard.owner()), 1));
    assert!(is_nearly(holder.remaining, LONG_LEASE), "{:?}", holder.remaining);
    assert!(onlooker.is_locked().await? && onlooker.is_held_by(guard.owner()).await?);
    assert_eq!(onlooker.hold_count(Owner::unique()).await?, 0);
    guard.release().await?;
    assert!(!onlooker.is_locked().await?);
    Ok(())
}

pub async fn own_56_the_end_of_the_lease_of_a_setnx_lock_is_reported_as_a_loss(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (setnx_lock(bench).await, setnx_lock(bench).await);
    let begun = Instant::now();
    let stale = lock.acquire().lease(LEASE).await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert_eq!(soon(stale.lost()).await, Loss::Expired);
    let next = waiter.outcome().await?;
    assert!(begun.elapsed() >= LEASE && !stale.is_held());
    let late = stale.release().await;
    assert!(matches!(late, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })), "{late:?}");
    sleep(MOMENT).await;
    assert!(next.is_held() && !is_free_for(&lock).await?);
    Ok(())
}

pub async fn own_57_a_setnx_lock_is_renewed_while_its_guard_lives(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (setnx_lock_with(bench, short_watchdog).await, setnx_lock(bench).await);
    let guard = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    sleep(WATCHDOG * 5 / 2).await;
    assert!(guard.is_held() && waiter.waits());
    drop(guard);
    assert!(waiter.outcome().await?.is_held());
    Ok(())
}

pub async fn own_58_a_removed_setnx_lock_is_lost_and_the_next_holder_is_not_affected(
    bench: &Bench,
) -> Outcome {
    let (lock, elsewhere) = (setnx_lock_with(bench, short_watchdog).await, setnx_lock(bench).await);
    let guard = lock.acquire().await?;
    bench.remove(&bench.name("lock")).await?;
    let next = soon(elsewhere.acquire()).await?;
    let loss = soon(guard.lost()).await;
    assert!(matches!(loss, Loss::Gone | Loss::TakenOver), "{loss:?}");
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { .. })));
    sleep(MOMENT).await;
    assert!(next.is_held() && !is_free_for(&lock).await?);
    Ok(())
}

pub async fn own_59_a_setnx_lock_can_be_force_unlocked_and_taken_over(bench: &Bench) -> Outcome {
    let lock = setnx_lock_with(bench, short_watchdog).await;
    let elsewhere = setnx_lock_with(bench, short_watchdog).await;
    let victim = lock.acquire().await?;
    let waiter = Waiter::begin(elsewhere.acquire()).await;
    assert!(lock.force_unlock().await?);
    assert_eq!(soon(victim.lost()).await, Loss::ForceUnlocked);
    let next = waiter.outcome().await?;
    let stolen = lock.acquire().steal().await?;
    assert_eq!(soon(next.lost()).await, Loss::TakenOver);
    drop((victim, next));
    sleep(MOMENT).await;
    assert!(stolen.is_held() && elsewhere.is_held_by(stolen.owner()).await?);
    stolen.release().await?;
    assert!(!lock.force_unlock().await?);
    assert!(lock.acquire().steal().await?.is_held(), "what is free can be taken over, too");
    Ok(())
}

pub async fn own_60_a_setnx_lock_has_fencing_tokens(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (setnx_lock(bench).await, setnx_lock(bench).await);
    let stale = lock.acquire().fenced().lease(LEASE).await?;
    assert!(elsewhere.try_acquire().fenced().await?.is_none());
    let guard = soon(elsewhere.acquire().fenced()).await?;
    let stolen = lock.acquire().fenced().steal().await?;
    assert_eq!((stale.token(), guard.token(), stolen.token()), (1, 2, 3));
    stolen.release().await?;
    drop(soon(lock.acquire()).await?);
    assert_eq!(elsewhere.last_token().await?, 3);
    Ok(())
}

pub async fn own_61_waiters_for_a_setnx_lock_can_be_cancelled(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (setnx_lock(bench).await, setnx_lock(bench).await);
    let guard = lock.acquire().await?;
    let (first, second) =
        (Waiter::begin(elsewhere.acquire()).await, Waiter::begin(elsewhere.acquire()).await);
    first.cancel();
    assert!(first.gone().await.is_err_and(|error| error.is_cancelled()));
    guard.release().await?;
    drop(second.outcome().await?);
    for polls in 0..4 {
        let mut acquire = Box::pin(lock.acquire().into_future());
        for _ in 0..polls {
            let polled = tokio::time::timeout(MOMENT / 50, &mut acquire).await;
            if polled.is_ok() {
                break;
            }
        }
        drop(acquire);
        drop(soon(elsewhere.acquire()).await?);
    }
    Ok(())
}

pub async fn own_62_tasks_hold_a_setnx_lock_one_at_a_time(bench: &Bench) -> Outcome {
    let tally = Arc::new(Tally::default());
    let mut tasks = JoinSet::new();
    for client in 0..4 {
        let lock = setnx_lock(bench).await;
        for _ in 0..4 {
            let (lock, tally) = (lock.clone(), Arc::clone(&tally));
            tasks.spawn(async move {
                for turn in 0..4 {
                    let guard = lock.acquire().await?;
                    tally.add().await;
                    if (turn + client) % 2 == 0 {
                        guard.release().await?;
                    }
                }
                Ok(())
            });
        }
    }
    all_done(tasks).await?;
    assert_eq!(tally.count(), 4 * 4 * 4);
    Ok(())
}

pub async fn own_71_a_setnx_lock_can_be_a_member_of_a_multi_lock(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (plain, setnx) = (client.lock(bench.name("other")), client.setnx_lock(bench.name("lock")));
    let all = MultiLock::new([plain.clone(), setnx.clone()]);
    let guard = soon(all.acquire()).await?;
    assert!(plain.is_locked().await? && setnx.is_locked().await?);
    guard.release().await?;
    let held = taken(&setnx).await?;
    assert!(all.try_acquire().await?.is_none() && !plain.is_locked().await?);
    held.release().await?;
    Ok(())
}

pub async fn own_63_the_lease_of_a_setnx_lock_can_be_extended(bench: &Bench) -> Outcome {
    let lock = setnx_lock(bench).await;
    let guard = lock.acquire().lease(LEASE).await?;
    let left = guard.extend(LONG_LEASE).await?;
    assert!(is_nearly(left, LONG_LEASE), "{left:?}");
    guard.extend(LEASE).await?;
    sleep(LEASE * 2).await;
    assert!(guard.is_held());
    let left = lock.ttl().await?.expect("it is held");
    assert!(is_nearly(left, LONG_LEASE), "{left:?}");
    Ok(())
}
