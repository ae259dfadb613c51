//! The lock whose every acquisition has a fencing token.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{BackOff, FencedLock};
use tokio::task::JoinSet;

use super::Outcome;
use super::common::{LEASE, MOMENT, all_done, is_nearly, soon};
use crate::bench::{Bench, SMALL_TOKENS};

/// The case's lock with tokens, with a new client.
async fn fenced_lock(bench: &Bench) -> FencedLock {
    bench.client().await.fenced_lock(bench.name("lock"))
}

pub async fn fe_01_tokens_count_from_one_for_every_way_to_acquire(bench: &Bench) -> Outcome {
    const TEN: Duration = Duration::from_secs(10);
    let lock = fenced_lock(bench).await;
    assert_eq!(lock.last_token().await?, 0);
    let guard = lock.acquire().await?;
    let first = guard.token();
    guard.release().await?;
    assert_eq!((first, lock.last_token().await?), (1, 1));
    assert_eq!(lock.acquire().await?.token(), 2);
    let guard = soon(lock.acquire()).await?;
    assert_eq!((guard.token(), lock.last_token().await?), (3, 3));
    guard.release().await?;
    let guard = lock.try_acquire().lease(TEN).await?.expect("the lock is free");
    assert_eq!((guard.token(), lock.last_token().await?), (4, 4));
    assert!(is_nearly(guard.remaining(), TEN));
    // A refused try costs no token.
    assert!(lock.try_acquire().await?.is_none());
    assert_eq!(lock.last_token().await?, 4);
    Ok(())
}

pub async fn own_47_a_fenced_lock_is_the_plain_lock_of_that_name(bench: &Bench) -> Outcome {
    bench.needs(SMALL_TOKENS)?;
    let (fenced, plain) = (fenced_lock(bench).await, bench.lock().await);
    let guard = plain.acquire().await?;
    assert!(fenced.try_acquire().await?.is_none() && guard.token().is_none());
    guard.release().await?;
    // An acquire with a token takes one from the count; a plain acquire leaves the count alone.
    assert_eq!(soon(fenced.acquire()).await?.token(), 1);
    assert_eq!(soon(plain.acquire().fenced()).await?.token(), 2);
    drop(soon(plain.acquire()).await?);
    let guard = soon(fenced.acquire()).await?;
    assert!(plain.is_held_by(guard.owner()).await? && plain.last_token().await? == 3);
    // A spin lock takes them from the same count.
    guard.release().await?;
    let spin = bench.client().await.spin_lock(bench.name("lock"));
    assert_eq!(soon(spin.acquire().fenced()).await?.token(), 4);
    // Handles with other settings have tokens, too.
    for (lock, token) in
        [(fenced.clone().non_reentrant(), 5), (fenced.clone().back_off(BackOff::default()), 6)]
    {
        let guard = soon(lock.acquire()).await?;
        assert_eq!((guard.token(), lock.last_token().await?), (token, token));
        guard.release().await?;
    }
    Ok(())
}

pub async fn own_48_every_entry_of_a_fenced_lock_has_its_own_token(bench: &Bench) -> Outcome {
    bench.needs(SMALL_TOKENS)?;
    let lock = fenced_lock(bench).await;
    let outer = lock.acquire().await?;
    let inner = outer.reenter().await?;
    assert_eq!((outer.token(), inner.token()), (1, 2));
    inner.release().await?;
    let inner = lock.acquire().as_owner(outer.owner()).await?;
    assert_eq!((outer.token(), inner.token(), lock.last_token().await?), (1, 3, 3));
    Ok(())
}

pub async fn own_49_tokens_rise_however_a_hold_ends(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (fenced_lock(bench).await, fenced_lock(bench).await);
    let mut last = 0;
    let mut rises = |token: u64| {
        assert!(token > last, "{token} after {last}");
        last = token;
    };
    let expired = lock.acquire().lease(LEASE).await?;
    rises(expired.token());
    let guard = soon(elsewhere.acquire()).await?;
    rises(guard.token());
    assert!(lock.force_unlock().await?);
    let guard = (guard, soon(lock.acquire()).await?);
    rises(guard.1.token());
    let stolen = elsewhere.acquire().steal().await?;
    rises(stolen.token());
    bench.remove(&bench.name("lock")).await?;
    let guard = soon(lock.acquire()).await?;
    rises(guard.token());
    drop(guard);
    rises(soon(elsewhere.acquire()).await?.token());
    drop((expired, stolen));
    Ok(())
}

/// Each holder records its token: the list is in order, without duplicates.
pub async fn own_50_tokens_rise_in_the_order_of_the_holds(bench: &Bench) -> Outcome {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (lock, seen) = (fenced_lock(bench).await, Arc::clone(&seen));
        tasks.spawn(async move {
            for turn in 0..6 {
                if turn == 3 {
                    // Cancelled at some point: a token may be lost by it, and none is minted twice.
                    drop(tokio::time::timeout(MOMENT / 25, lock.acquire()).await);
                }
                let guard = lock.acquire().await?;
                seen.lock().expect("no thread panicked").push(guard.token());
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    let seen = seen.lock().expect("no thread panicked").clone();
    assert_eq!(seen.len(), 8 * 6);
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    Ok(())
}
