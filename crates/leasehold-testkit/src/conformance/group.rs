//! Some values of a group as one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{
    AcquireError, BackOff, Client, ConnectOptions, InvalidRequestError, Lock, Loss, Owner, ReleaseError,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{
    LEASE, LONG_LEASE, MOMENT, PATIENCE, WATCHDOG, Waiter, all_done, is_nearly, on_a_thread, short_watchdog,
    soon,
};
use crate::bench::{Bench, LEASES};

/// Values of the case's group.
fn set<const N: usize>(bench: &Bench, client: &Client, values: [&str; N]) -> Lock {
    client.group_lock(bench.name("group"), values)
}

pub async fn fm_01_a_set_of_values_is_held_and_released_as_one(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.client().await);
    let lock = set(bench, &client, ["a", "b"]);
    let guard = lock.acquire().lease(LONG_LEASE).await?;
    for values in [["a", "b"], ["b", "a"], ["b", "c"]] {
        assert!(set(bench, &elsewhere, values).is_locked().await?);
        assert!(set(bench, &elsewhere, values).try_acquire().await?.is_none());
    }
    assert_eq!(lock.hold_count(guard.owner()).await?, 1);
    assert_eq!(set(bench, &client, ["b"]).hold_count(guard.owner()).await?, 1);
    assert!(!set(bench, &client, ["b", "c"]).is_held_by(guard.owner()).await?, "not all of it");
    let left = lock.ttl().await?.expect("held");
    assert!(bench.lacks(LEASES) || is_nearly(left, LONG_LEASE), "{left:?}");
    assert_eq!(guard.release().await?.holds_left, 0);
    assert!(!lock.is_locked().await? && lock.holder().await?.is_none());
    assert!(set(bench, &elsewhere, ["b", "c"]).try_acquire().await?.is_some());
    Ok(())
}

pub async fn fm_02_two_handles_on_a_set_count_for_one_owner(bench: &Bench) -> Outcome {
    let (client, me) = (bench.client().await, Owner::unique());
    let (one, two) = (set(bench, &client, ["a", "b"]), set(bench, &client, ["b", "a"]));
    let _outer = one.acquire().as_owner(&me).await?;
    let _inner = two.acquire().as_owner(&me).lease(LONG_LEASE).await?;
    assert_eq!(two.hold_count(&me).await?, 2);
    assert_eq!(one.as_owner(&me).release().await?.holds_left, 1);
    assert_eq!(two.hold_count(&me).await?, 1);
    assert_eq!(one.as_owner(&me).release().await?.holds_left, 0);
    assert!(!two.is_locked().await?);
    Ok(())
}

pub async fn fm_03_sets_are_renewed_while_their_guards_live(bench: &Bench) -> Outcome {
    let client = bench.client_with(short_watchdog).await;
    let me = Owner::unique();
    // The same for two sets of one owner.
    let first = set(bench, &client, ["a", "b"]).acquire().as_owner(&me).await?;
    let second = set(bench, &client, ["c"]).acquire().as_owner(&me).await?;
    sleep(WATCHDOG * 5 / 2).await;
    assert!(first.is_held() && second.is_held());
    assert!(set(bench, &client, ["b", "c"]).is_held_by(&me).await?);
    first.release().await?;
    second.release().await?;
    Ok(())
}

pub async fn fm_04_another_owner_does_not_acquire_a_held_set(bench: &Bench) -> Outcome {
    let (client, other) = (bench.client().await, Owner::number(999));
    let lock = set(bench, &client, ["a", "b"]);
    let guard = lock.try_acquire().await?.expect("it is free");
    assert!(lock.try_acquire().as_owner(&other).await?.is_none());
    let error = lock.acquire().as_owner(&other).wait(MOMENT).await.expect_err("held");
    assert!(matches!(error, AcquireError::Timeout { holder: Some(holder), .. } if holder == guard.owner()));
    let released = lock.as_owner(&other).release().await;
    assert!(matches!(released, Err(ReleaseError::NotOwner { .. })), "{released:?}");
    guard.release().await?;
    Ok(())
}

pub async fn fm_05_a_waiter_acquires_a_set_when_the_lease_expires(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.client().await);
    let begun = Instant::now();
    let guard = set(bench, &client, ["a", "b"]).acquire().lease(LEASE).await?;
    let lock = set(bench, &elsewhere, ["b", "c"]);
    let other = Owner::number(999);
    let next = soon(lock.acquire().as_owner(&other).wait(LEASE * 10).lease(LONG_LEASE)).await?;
    assert!(begun.elapsed() >= LEASE);
    assert!(!guard.is_held());
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Expired, .. })));
    assert!(lock.is_held_by(next.owner()).await?, "a stale guard leaves it alone");
    next.release().await?;
    Ok(())
}

pub async fn own_180_disjoint_sets_do_not_wait_for_each_other(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let one = set(bench, &client, ["a", "b"]).try_acquire().await?.expect("free");
    let two = set(bench, &client, ["c", "d"]).try_acquire().await?.expect("free");
    let waiter = Waiter::begin(set(bench, &client, ["b", "c"]).acquire()).await;
    one.release().await?;
    sleep(MOMENT).await;
    assert!(waiter.waits(), "half of it is free");
    assert!(set(bench, &client, ["a"]).try_acquire().await?.is_some());
    two.release().await?;
    waiter.outcome().await?.release().await?;
    Ok(())
}

pub async fn own_181_sets_of_one_owner_are_equal_or_disjoint(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let guard = set(bench, &client, ["a", "b"]).acquire().await?;
    let mine = guard.owner();
    for values in [["b", "c"].as_slice(), &["a"], &["a", "b", "c"]] {
        let error = client.group_lock(bench.name("group"), values).acquire().as_owner(&mine).await;
        assert!(
            matches!(error, Err(AcquireError::Invalid { cause: InvalidRequestError::SetsOverlap, .. })),
            "{error:?}"
        );
    }
    let apart = set(bench, &client, ["c"]).acquire().as_owner(&mine).await?;
    let inner = guard.reenter().await?;
    assert_eq!(inner.release().await?.holds_left, 1);
    guard.release().await?;
    let again = set(bench, &client, ["a"]).acquire().as_owner(&mine).await?;
    assert!(apart.is_held() && again.is_held());
    Ok(())
}

pub async fn own_182_values_can_be_force_unlocked_and_taken_over(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.client_with(short_watchdog).await);
    assert!(!set(bench, &client, ["b"]).force_unlock().await?);
    let victim = set(bench, &client, ["a", "b"]).acquire().await?;
    let bystander = set(bench, &client, ["c"]).acquire().await?;
    assert!(set(bench, &client, ["b"]).force_unlock().await?);
    assert_eq!(soon(victim.lost()).await, Loss::ForceUnlocked);
    assert!(!set(bench, &client, ["b"]).is_locked().await?);
    assert!(set(bench, &client, ["a"]).is_locked().await?, "until the guard is dropped");
    drop(victim);
    soon(set(bench, &client, ["a"]).acquire()).await?.release().await?;

    let victim = set(bench, &elsewhere, ["a", "b"]).acquire().await?;
    let thief = set(bench, &client, ["b", "d"]).acquire().steal().await?;
    assert_eq!(soon(victim.lost()).await, Loss::TakenOver);
    drop(victim);
    soon(set(bench, &client, ["a"]).acquire()).await?.release().await?;
    assert!(thief.is_held() && bystander.is_held());
    assert!(set(bench, &client, ["b", "d"]).is_held_by(thief.owner()).await?);
    Ok(())
}

pub async fn own_183_cancelled_waiters_for_sets_leave_nothing_behind(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.client().await);
    let held = set(bench, &client, ["b"]).acquire().await?;
    for values in [["a", "b"], ["b", "c"]] {
        let waiter = Waiter::begin(set(bench, &elsewhere, values).acquire()).await;
        let next = Waiter::begin(set(bench, &elsewhere, values).acquire().wait(LEASE)).await;
        waiter.cancel();
        assert!(waiter.gone().await.is_err());
        assert!(matches!(next.outcome().await, Err(AcquireError::Timeout { .. })));
    }
    let waiter = Waiter::begin(set(bench, &elsewhere, ["a", "b"]).acquire()).await;
    let next = Waiter::begin(set(bench, &elsewhere, ["a", "b"]).acquire()).await;
    waiter.cancel();
    held.release().await?;
    drop(waiter.gone().await);
    next.outcome().await?.release().await?;
    Ok(())
}

pub async fn own_184_overlapping_sets_exclude_each_other(bench: &Bench) -> Outcome {
    let accounts: Arc<[AtomicU64; 4]> = Arc::new([const { AtomicU64::new(100) }; 4]);
    let clients = [bench.client().await, bench.client().await];
    let mut tasks = JoinSet::new();
    for n in 0..24_usize {
        let (accounts, client, name) = (Arc::clone(&accounts), clients[n % 2].clone(), bench.name("group"));
        tasks.spawn(async move {
            for round in 0..4 {
                let (from, to) = ((n + round) % 4, (n * 3 + round + 1) % 4);
                if from == to {
                    continue;
                }
                let guard = client.group_lock(&name, [from, to].map(|n| n.to_string())).acquire().await?;
                let before = [from, to].map(|n| accounts[n].load(Ordering::SeqCst));
                tokio::task::yield_now().await;
                accounts[from].store(before[0] - 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                accounts[to].store(before[1] + 1, Ordering::SeqCst);
                guard.release().await?;
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    let sum: u64 = accounts.iter().map(|account| account.load(Ordering::SeqCst)).sum();
    assert_eq!(sum, 400, "nothing is lost: {accounts:?}");
    Ok(())
}

pub async fn own_185_an_empty_set_or_a_duplicate_value_is_refused(bench: &Bench) -> Outcome {
    bench.needs("group lock")?;
    let client = bench.client().await;
    let refused = |error: AcquireError| match error {
        AcquireError::Invalid { cause: invalid, .. } => invalid,
        other => panic!("{other:?}"),
    };
    let none = client.group_lock(bench.name("group"), [""; 0]).acquire().await;
    assert_eq!(refused(none.expect_err("no values")), InvalidRequestError::NoMembers);
    let twice = set(bench, &client, ["a", "b", "a"]).acquire().await;
    assert_eq!(refused(twice.expect_err("one twice")), InvalidRequestError::MemberTwice("a".into()));
    let odd = set(bench, &client, ["", " ", "{", "ä:b", "mode"]);
    odd.acquire().await?.release().await?;
    Ok(())
}

pub async fn own_241_a_set_can_have_thousands_of_values(bench: &Bench) -> Outcome {
    // They take long where each is a separate hold, and longer on a busy machine.
    let patient = |connect: ConnectOptions| connect.response_timeout(PATIENCE);
    let (client, elsewhere) = (bench.client_with(patient).await, bench.client_with(patient).await);
    let many = |from: usize, count: usize| (from..from + count).map(|value| value.to_string());
    let lock = client.group_lock(bench.name("group"), many(0, 5000));
    let outer = lock.acquire().lease(LONG_LEASE).await?;
    let inner = outer.reenter().await?;
    assert_eq!(lock.hold_count(outer.owner()).await?, 2);
    let beside = elsewhere.group_lock(bench.name("group"), many(5000, 5000)).try_acquire().await?;
    let overlapping = elsewhere.group_lock(bench.name("group"), many(4999, 2));
    assert!(overlapping.try_acquire().await?.is_none());
    beside.expect("they have nothing in common").release().await?;
    outer.extend(LONG_LEASE * 2).await?;
    let waiter = Waiter::begin(overlapping.acquire()).await;
    inner.release().await?;
    assert!(waiter.waits());
    outer.release().await?;
    waiter.outcome().await?.release().await?;
    assert!(!lock.is_locked().await?);

    let most = client.group_lock(bench.name("group"), many(0, leasehold::limits::MOST_VALUES));
    most.acquire().await?.release().await?;
    let more =
        client.group_lock(bench.name("group"), many(0, leasehold::limits::MOST_VALUES + 1)).acquire().await;
    assert!(
        matches!(
            more,
            Err(AcquireError::Invalid { cause: InvalidRequestError::TooManyValues { given: 10_001 }, .. })
        ),
        "{more:?}"
    );
    Ok(())
}

pub async fn own_242_a_set_can_be_acquired_by_retries_beside_queued_waiters(bench: &Bench) -> Outcome {
    let (client, elsewhere) = (bench.client().await, bench.client().await);
    let spinning = set(bench, &elsewhere, ["b", "c"]).back_off(BackOff::constant(MOMENT / 5));
    let held = set(bench, &client, ["a", "b"]).acquire().await?;
    let late = spinning.acquire().wait(MOMENT).await;
    assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
    let in_line = set(bench, &elsewhere, ["b", "c"]);
    let waiters = [&spinning, &in_line].map(|lock| {
        let acquire = lock.acquire().into_future();
        tokio::spawn(async { acquire.await.map(drop) })
    });
    sleep(MOMENT).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    held.release().await?;
    for waiter in waiters {
        soon(waiter).await??;
    }
    soon(in_line.acquire()).await?.release().await?;
    Ok(())
}

pub async fn own_186_a_set_supports_leases_limits_and_threads(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let (lock, me) = (set(bench, &client, ["a", "b"]), Owner::unique());
    let outer = lock.acquire().as_owner(&me).lease(LONG_LEASE).await?;
    let inner = lock.acquire().as_owner(&me).lease(LEASE).await?;
    assert!(bench.lacks(LEASES) || is_nearly(outer.remaining(), LONG_LEASE), "the longer lease stays");
    inner.release().await?;
    let extended = outer.extend(LONG_LEASE * 2).await?;
    assert!(bench.lacks(LEASES) || extended > LONG_LEASE, "{extended:?}");
    outer.release().await?;

    let guard = lock.acquire().max_hold(LEASE).await?;
    assert_eq!(soon(guard.lost()).await, Loss::MaxHold);
    drop(guard);
    let again = lock.clone().non_reentrant();
    let guard = soon(again.acquire().as_owner(&me)).await?;
    let refused = again.acquire().as_owner(&me).await;
    assert!(
        matches!(refused, Err(AcquireError::Invalid { cause: InvalidRequestError::NotReentrant, .. })),
        "{refused:?}"
    );
    bench.remove(&bench.name("group")).await?;
    drop(guard);

    let on_a_thread = on_a_thread(move || {
        let guard = lock.acquire().block()?;
        guard.release().block().expect("held");
        Ok::<_, AcquireError>(())
    });
    on_a_thread.await?;
    Ok(())
}
