//! Several locks as one.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{AcquireError, Client, InvalidRequestError, Loss, MultiLock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, LONG_LEASE, MOMENT, all_done, is_free_for, is_nearly, soon};
use crate::bench::{Bench, LEASES, ONE_STEP, SMALL_TOKENS};

const NAMES: [&str; 3] = ["c", "a", "b"];

fn multi_lock(bench: &Bench, client: &Client) -> MultiLock {
    client.multi_lock(NAMES.map(|name| bench.name(name)))
}

pub async fn ml_01_all_members_are_held_and_released_together(bench: &Bench) -> Outcome {
    bench.needs(LEASES)?;
    let client = bench.client().await;
    let lock = multi_lock(bench, &client);
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    let owner = guard.members()[0].owner();
    for name in NAMES {
        let member = client.lock(bench.name(name));
        assert!(member.is_locked().await? && member.is_held_by(&owner).await?, "{name}");
        assert!(is_nearly(member.ttl().await?.expect("held"), LONG_LEASE));
    }
    assert!(guard.is_held() && is_nearly(guard.remaining(), LONG_LEASE));
    guard.release().await?;
    for name in NAMES {
        assert!(is_free_for(&client.lock(bench.name(name))).await?, "{name}");
    }
    Ok(())
}

pub async fn ml_02_one_of_many_concurrent_tries_acquires_all_members(bench: &Bench) -> Outcome {
    let (client, winners) = (bench.client().await, Arc::new(Mutex::new(Vec::new())));
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let (lock, winners) = (multi_lock(bench, &client), Arc::clone(&winners));
        tasks.spawn(async move {
            if let Some(guard) = lock.try_acquire().await? {
                winners.lock().expect("no panic").push(guard);
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert_eq!(winners.lock().expect("no panic").len(), 1);
    Ok(())
}

pub async fn ml_04_a_busy_member_leaves_the_other_members_free(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, bench.client().await);
    let busy = other.lock(bench.name("b")).acquire().await?;
    let lock = multi_lock(bench, &client);
    for _ in 0..2 {
        assert!(lock.try_acquire().await?.is_none());
        let late = lock.acquire().wait(MOMENT).await;
        assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
        for name in ["a", "c"] {
            drop(soon(other.lock(bench.name(name)).acquire()).await?);
        }
    }
    busy.release().await?;
    drop(lock.try_acquire().await?.expect("all are free"));
    Ok(())
}

/// The same two names as locks that are acquired in one step, and as locks that are acquired one after the other.
fn both_ways(bench: &Bench, one: &Client, other: &Client) -> [MultiLock; 2] {
    let [a, b] = ["a", "b"].map(|name| bench.name(name));
    let kinds = [one.lock(&a), other.spin_lock(&b)];
    [one.multi_lock([&a, &b]), MultiLock::new(kinds)]
}

pub async fn ml_09_a_wait_for_several_locks_lasts_its_whole_limit(bench: &Bench) -> Outcome {
    let (one, other, wait) = (bench.client().await, bench.client().await, LEASE / 2);
    for busy in ["a", "b"] {
        let busy = bench.client().await.lock(bench.name(busy)).acquire().await?;
        for lock in both_ways(bench, &one, &other) {
            assert!(lock.try_acquire().await?.is_none());
            for acquire in [lock.acquire(), lock.acquire().lease(LONG_LEASE)] {
                let begun = Instant::now();
                let over = soon(acquire.wait(wait)).await.expect_err("one is busy");
                assert!(begun.elapsed() >= wait, "gave up after {:?}", begun.elapsed());
                assert!(matches!(over, AcquireError::Timeout { waited, .. } if waited >= wait), "{over:?}");
            }
        }
        busy.release().await?;
    }
    Ok(())
}

pub async fn ml_10_a_wait_limit_covers_all_members_together(bench: &Bench) -> Outcome {
    let (one, other, holder) = (bench.client().await, bench.client().await, bench.client().await);
    let wait = LEASE * 2;
    for lock in both_ways(bench, &one, &other) {
        let first = holder.lock(bench.name("a")).acquire().await?;
        let second = holder.lock(bench.name("b")).acquire().await?;
        let waiter = tokio::spawn(lock.acquire().wait(wait).into_future());
        sleep(wait * 2 / 3).await;
        first.release().await?;
        // A wait that restarted with the second member would still last.
        sleep(wait * 5 / 6).await;
        second.release().await?;
        let over = soon(waiter).await?;
        assert!(matches!(over, Err(AcquireError::Timeout { waited, .. }) if waited >= wait), "{over:?}");
    }
    Ok(())
}

pub async fn ml_06_a_multi_lock_without_members_or_with_duplicates_is_refused(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let none = client.multi_lock([""; 0]).acquire().await;
    assert!(
        matches!(none, Err(AcquireError::Invalid { cause: InvalidRequestError::NoMembers, .. })),
        "{none:?}"
    );
    let twice = client.multi_lock([bench.name("a"), bench.name("b"), bench.name("a")]).acquire().await;
    assert!(
        matches!(twice, Err(AcquireError::Invalid { cause: InvalidRequestError::MemberTwice(_), .. })),
        "{twice:?}"
    );
    let unnamed = client.multi_lock([bench.name("a"), String::new()]).acquire().await;
    assert!(
        matches!(unnamed, Err(AcquireError::Invalid { cause: InvalidRequestError::EmptyName, .. })),
        "{unnamed:?}"
    );
    Ok(())
}

pub async fn ml_11_the_loss_of_one_member_is_the_loss_of_the_multi_lock(bench: &Bench) -> Outcome {
    let client = bench.client_with(super::common::short_watchdog).await;
    let guard = multi_lock(bench, &client).acquire().await?;
    let watch = tokio::spawn(guard.lost());
    bench.remove(&bench.name("b")).await?;
    assert_eq!(soon(watch).await?, Loss::Gone);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.run(async {}).await.map_err(|lost| lost.loss), Err(Loss::Gone));
    assert!(guard.release().await.is_err());
    Ok(())
}

pub async fn own_110_a_multi_lock_dropped_while_waiting_releases_its_members(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, bench.client().await);
    let busy = other.lock(bench.name("c")).acquire().await?;
    // Locks of one client are acquired in one step: a waiter for the last of them holds none.
    let waiter = tokio::spawn(multi_lock(bench, &client).acquire().into_future());
    sleep(MOMENT).await;
    for name in ["a", "b"].iter().filter(|_| !bench.lacks(ONE_STEP)) {
        drop(other.lock(bench.name(name)).try_acquire().await?.expect("no other owner holds a part"));
    }
    waiter.abort();
    // Locks of several clients are acquired one after the other.
    let mixed = MultiLock::new([
        client.lock(bench.name("a")),
        other.lock(bench.name("c")),
        client.lock(bench.name("b")),
    ]);
    let waiter = tokio::spawn(mixed.acquire().into_future());
    let first = other.lock(bench.name("a"));
    while !first.is_locked().await? {
        sleep(Duration::from_millis(2)).await;
    }
    waiter.abort();
    for name in ["a", "b"] {
        drop(soon(other.lock(bench.name(name)).acquire()).await?);
    }
    assert!(busy.is_held());
    Ok(())
}

pub async fn own_111_the_lease_of_a_multi_lock_begins_with_its_last_member(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, bench.client().await);
    let busy = other.lock(bench.name("c")).acquire().await?;
    let waiter = tokio::spawn(multi_lock(bench, &client).acquire().lease(LEASE).into_future());
    // Longer than the lease: locks that are held already must not expire meanwhile.
    sleep(LEASE * 2).await;
    busy.release().await?;
    let guard = soon(waiter).await??;
    assert!(guard.is_held() && guard.remaining() > LEASE / 2, "{:?}", guard.remaining());
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    Ok(())
}

pub async fn own_112_a_multi_lock_can_combine_kinds_and_clients(bench: &Bench) -> Outcome {
    bench.needs(SMALL_TOKENS)?;
    let (one, other) = (bench.client().await, bench.client().await);
    let locks = || {
        let fair = one.fair_lock(bench.name("fair"));
        [fair.into(), other.lock(bench.name("plain")), one.spin_lock(bench.name("spin"))]
    };
    let guard = MultiLock::new(locks()).acquire().fenced().await?;
    let tokens: Vec<_> = guard.tokens().map(|(name, token)| (name.to_owned(), token)).collect();
    assert_eq!(tokens, ["fair", "plain", "spin"].map(|name| (bench.name(name), 1)));
    assert!(MultiLock::new(locks()).try_acquire().await?.is_none());
    guard.release().await?;
    let guard = MultiLock::new(locks()).acquire().fenced().await?;
    assert!(guard.tokens().all(|(_, token)| token == 2));
    Ok(())
}

pub async fn own_113_tasks_that_want_some_of_the_same_locks_do_not_deadlock(bench: &Bench) -> Outcome {
    let clients = [bench.client().await, bench.client().await];
    let values: Arc<[Mutex<u32>; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let (client, values) = (clients[task % 2].clone(), Arc::clone(&values));
        // Every pair, in both orders.
        let pair = [[0, 1], [1, 2], [2, 0], [1, 0], [2, 1], [0, 2]][task];
        let lock = client.multi_lock(pair.map(|number| bench.name(NAMES[number])));
        tasks.spawn(async move {
            for _ in 0..20 {
                let guard = lock.acquire().await?;
                let seen = pair.map(|number| *values[number].lock().expect("no panic"));
                tokio::task::yield_now().await;
                for (number, seen) in pair.into_iter().zip(seen) {
                    *values[number].lock().expect("no panic") = seen + 1;
                }
                guard.release().await?;
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert!(values.iter().all(|value| *value.lock().expect("no panic") == 80));
    Ok(())
}
