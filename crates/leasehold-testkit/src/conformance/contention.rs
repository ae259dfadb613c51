//! Many owners that want the same lock, and a count that detects when two hold it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Lock, Owner};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Outcome;
use super::common::{LEASE, all_done, on_a_thread, soon, taken};
use crate::bench::Bench;
use crate::tally::Tally;

pub async fn lk_15_threads_of_one_client_hold_the_lock_one_at_a_time(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let tally = Arc::new(Tally::default());
    let mut threads = JoinSet::new();
    for _ in 0..15 {
        let (lock, tally) = (lock.clone(), Arc::clone(&tally));
        threads.spawn(on_a_thread(move || {
            let guard = lock.acquire().block()?;
            tally.add_on_thread();
            guard.release().block()?;
            Ok(())
        }));
    }
    all_done(threads).await?;
    assert_eq!(tally.count(), 15);
    Ok(())
}

pub async fn lk_16_a_hundred_clients_hold_the_lock_one_at_a_time(bench: &Bench) -> Outcome {
    let tally = Arc::new(Tally::default());
    let mut clients = JoinSet::new();
    for _ in 0..100 {
        clients.spawn(rounds(1, bench.lock().await, Arc::clone(&tally)));
    }
    all_done(clients).await?;
    assert_eq!(tally.count(), 100);
    Ok(())
}

pub async fn cx_03_every_client_finishes_its_rounds(bench: &Bench) -> Outcome {
    let tally = Arc::new(Tally::default());
    let mut clients = JoinSet::new();
    for _ in 0..10 {
        clients.spawn(rounds(20, bench.lock().await, Arc::clone(&tally)));
    }
    all_done(clients).await?;
    assert_eq!(tally.count(), 200);
    Ok(())
}

/// Counts so many times under the lock.
async fn rounds(count: usize, lock: Lock, tally: Arc<Tally>) -> Outcome {
    for _ in 0..count {
        let guard = soon(lock.acquire()).await?;
        tally.add().await;
        guard.release().await?;
    }
    Ok(())
}

pub async fn lk_17_a_lock_acquired_through_one_handle_is_released_through_another(bench: &Bench) -> Outcome {
    let name = bench.name("lock");
    let tally = Arc::new(Tally::default());
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let (client, name, tally) = (bench.client().await, name.clone(), Arc::clone(&tally));
        clients.spawn(async move {
            let me = Owner::unique();
            for _ in 0..5 {
                let _guard = soon(client.lock(&name).acquire().as_owner(&me)).await?;
                tally.add().await;
                client.lock(&name).as_owner(&me).release().await?;
            }
            Ok(())
        });
    }
    all_done(clients).await?;
    assert_eq!(tally.count(), 80);
    Ok(())
}

pub async fn lk_23_many_tasks_on_few_lock_names_all_finish(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let locks: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| client.lock(bench.name(name))).into();
    let tallies: Vec<_> = locks.iter().map(|_| Arc::new(Tally::default())).collect();
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let (locks, tallies) = (locks.clone(), tallies.clone());
        tasks.spawn(async move {
            for round in 0..10 {
                let which = (task * 7 + round * 3) % locks.len();
                rounds(1, locks[which].clone(), Arc::clone(&tallies[which])).await?;
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert_eq!(tallies.iter().map(|tally| tally.count()).sum::<u64>(), 320);
    Ok(())
}

pub async fn rl_08_short_waits_that_race_with_releases_never_block_the_lock_for_good(
    bench: &Bench,
) -> Outcome {
    let lock = bench.lock().await;
    let tally = Arc::new(Tally::default());
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let (lock, tally) = (lock.clone(), Arc::clone(&tally));
        tasks.spawn(async move {
            for round in 0..20 {
                // The last one is longer than any engine needs for an acquire.
                let short = Duration::from_millis((task * 7 + round * 3) % 10);
                let wait = if round == 19 { LEASE * 4 } else { short };
                match soon(lock.acquire().wait(wait)).await {
                    Ok(guard) => {
                        tally.add().await;
                        guard.release().await?;
                    }
                    Err(error) if error.is_contended() => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert!(tally.count() > 0);
    taken(&lock).await?.release().await?;
    Ok(())
}

pub async fn cx_14_clients_that_only_try_acquire_the_lock_in_the_end(bench: &Bench) -> Outcome {
    let tally = Arc::new(Tally::default());
    let mut clients = JoinSet::new();
    for _ in 0..10 {
        let (lock, tally) = (bench.lock().await, Arc::clone(&tally));
        clients.spawn(async move {
            let mut successes = 0;
            while successes < 20 {
                if let Some(guard) = lock.try_acquire().await? {
                    tally.add().await;
                    guard.release().await?;
                    successes += 1;
                }
                sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        });
    }
    all_done(clients).await?;
    assert_eq!(tally.count(), 200);
    Ok(())
}
