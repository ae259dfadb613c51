//! One holder, and the queries about it.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectError, ExtendError, Holder, InvalidRequestError, Loss, Owner};

use super::Outcome;
use super::common::{LONG_LEASE, is_free_for, is_pending_after, soon, taken};
use crate::bench::{Bench, VIEW};

pub async fn lk_01_a_lock_is_reported_locked_from_acquire_to_release(bench: &Bench) -> Outcome {
    let (lock, onlooker) = (bench.lock().await, bench.lock().await);
    assert!(!lock.is_locked().await? && !onlooker.is_locked().await?);
    let guard = lock.acquire().await?;
    assert!(lock.is_locked().await? && onlooker.is_locked().await?);
    guard.release().await?;
    assert!(!lock.is_locked().await? && !onlooker.is_locked().await?);
    Ok(())
}

pub async fn lk_07_a_lock_handle_can_be_reused(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    for _ in 0..2 {
        let guard = soon(lock.acquire()).await?;
        assert_eq!(guard.release().await?.holds_left, 0);
    }
    Ok(())
}

pub async fn hd_01_a_second_try_returns_none_while_the_lock_is_held(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = taken(&lock).await?;
    assert!(!is_free_for(&lock).await?);
    let thief = lock.acquire().steal().await?;
    assert!(!is_free_for(&lock).await?);
    drop(guard);
    assert!(thief.is_held());
    assert!(!is_free_for(&lock).await?);
    Ok(())
}

pub async fn lk_10_force_unlock_frees_the_lock_for_all_clients(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().await?;
    assert!(lock.force_unlock().await?);
    assert!(!lock.is_locked().await?);
    assert!(!bench.lock().await.is_locked().await?);
    assert_eq!(soon(guard.lost()).await, Loss::ForceUnlocked);
    assert!(!guard.is_held());
    assert!(!lock.force_unlock().await?, "there is nothing to free");
    Ok(())
}

pub async fn hd_16_dropping_a_guard_releases_the_lock(bench: &Bench) -> Outcome {
    let guard = bench.lock().await.acquire().await?;
    drop(guard);
    drop(soon(bench.lock().await.acquire()).await?);
    Ok(())
}

pub async fn hd_03_durations_out_of_range_are_refused(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let guard = lock.acquire().await?;
    for length in [Duration::ZERO, Duration::from_millis(19), Duration::MAX] {
        for refused in [lock.acquire().lease(length).await, lock.acquire().max_hold(length).await] {
            // The lock is busy: a request to the engine would wait.
            assert!(matches!(refused, Err(AcquireError::Invalid { .. })), "{refused:?}");
        }
        let refused = guard.extend(length).await;
        assert!(matches!(refused, Err(ExtendError::Invalid { .. })), "{refused:?}");
    }
    guard.release().await?;
    let patient = lock.acquire().wait(Duration::MAX).lease(Duration::from_millis(20));
    assert_eq!(patient.await?.name(), bench.name("lock"), "every wait is fine");
    Ok(())
}

pub async fn hd_23_a_client_with_an_unknown_url_or_an_invalid_option_is_refused(bench: &Bench) -> Outcome {
    for url in ["", "localhost", "no-such-engine://localhost"] {
        let refused = Client::connect(url).await;
        assert!(matches!(refused, Err(ConnectError::Url(_))), "{url}: {refused:?}");
    }
    let refused = Client::connect(bench.url()).watchdog(Duration::ZERO).await;
    assert!(
        matches!(refused, Err(ConnectError::Invalid(InvalidRequestError::TooShort { .. }))),
        "{refused:?}"
    );
    Ok(())
}

pub async fn own_11_a_try_succeeds_right_after_a_guard_is_dropped(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    for _ in 0..10 {
        drop(taken(&lock).await?);
    }
    Ok(())
}

pub async fn own_12_a_release_is_carried_out_though_its_future_is_dropped(bench: &Bench) -> Outcome {
    let (lock, other) = (bench.lock().await, bench.lock().await);
    let mut dropped = true;
    for polls in 0.. {
        if !dropped {
            break;
        }
        let guard = taken(&lock).await?;
        dropped = is_pending_after(polls, guard.release().into_future()).await;
        soon(other.acquire()).await?.release().await?;
    }
    Ok(())
}

pub async fn own_13_all_queries_about_a_hold_agree(bench: &Bench) -> Outcome {
    bench.needs(VIEW)?;
    let client = bench.client().await;
    let (lock, onlooker) = (client.lock(bench.name("lock")), bench.lock().await);
    let (owner, stranger) = (Owner::number(7), Owner::number(8));
    assert_eq!(onlooker.holder().await?, None);
    assert_eq!(onlooker.ttl().await?, None);

    let outer = lock.acquire().as_owner(&owner).lease(LONG_LEASE).await?;
    let _inner = outer.reenter().await?;
    let Some(Holder { owner: Some(shown), holds: 2, remaining, .. }) = onlooker.holder().await? else {
        panic!("one holder, two holds")
    };
    assert_eq!(shown, outer.owner());
    assert_eq!(shown.to_string(), format!("{}:7", client.id()));
    assert!(remaining <= LONG_LEASE);
    assert!(onlooker.ttl().await?.is_some_and(|later| later <= remaining));
    assert!(onlooker.is_held_by(&shown).await?);
    assert_eq!(onlooker.hold_count(&shown).await?, 2);
    assert_eq!((lock.hold_count(&owner).await?, lock.hold_count(&stranger).await?), (2, 0));
    // The same number at another client is another owner.
    assert!(lock.is_held_by(&owner).await? && !onlooker.is_held_by(&owner).await?);
    Ok(())
}
