//! The read-write lock: many readers or one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{AcquireError, InvalidRequestError, Loss, Owner, ReleaseError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{MOMENT, Waiter, all_done, on_a_thread, short_watchdog, soon};
use crate::bench::{Bench, DOWNGRADE};
use crate::tally::Tally;

pub async fn rw_29_many_readers_or_one_writer_hold_the_lock(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let one = lock.read().acquire().await?;
    let two = elsewhere.read().try_acquire().await?.expect("many may read");
    assert!(lock.write().try_acquire().await?.is_none());
    let writer = Waiter::begin(elsewhere.write().acquire()).await;
    assert!(writer.waits());
    one.release().await?;
    sleep(MOMENT).await;
    assert!(writer.waits(), "one reader is left");
    two.release().await?;
    let written = writer.outcome().await?;
    assert!(lock.write().try_acquire().await?.is_none());
    written.release().await?;
    assert!(lock.write().try_acquire().await?.is_some());
    Ok(())
}

pub async fn rw_03_the_write_half_is_free_after_the_last_reader(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock().await;
    lock.read().acquire().await?.release().await?;
    assert!(!lock.read().is_locked().await?);
    let me = Owner::unique();
    for _ in 0..2 {
        let guard = lock.write().try_acquire().as_owner(&me).await?.expect("there is no reader");
        assert!(lock.write().is_locked().await? && lock.write().is_held_by(&me).await?);
        guard.release().await?;
        assert!(!lock.write().is_locked().await? && !lock.write().is_held_by(&me).await?);
    }
    Ok(())
}

pub async fn rw_04_force_unlock_of_one_half_leaves_the_other_half_alone(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    assert!(!lock.read().force_unlock().await? && !lock.write().force_unlock().await?);

    let reads = lock.read().acquire().await?;
    assert!(!lock.write().force_unlock().await?);
    assert!(reads.is_held() && lock.read().is_locked().await?);
    assert!(lock.read().force_unlock().await?);
    assert_eq!(soon(reads.lost()).await, Loss::ForceUnlocked);
    assert!(!elsewhere.read().is_locked().await? && !elsewhere.write().is_locked().await?);

    let writes = lock.write().acquire().await?;
    let also_reads = lock.read().acquire().as_owner(writes.owner()).await?;
    assert!(!lock.read().force_unlock().await?);
    assert!(writes.is_held() && lock.write().is_locked().await?);
    let waiter = Waiter::begin(elsewhere.write().acquire()).await;
    assert!(lock.write().force_unlock().await?);
    assert_eq!(soon(writes.lost()).await, Loss::ForceUnlocked);
    assert_eq!(soon(also_reads.lost()).await, Loss::ForceUnlocked);
    waiter.outcome().await?.release().await?;
    assert!(!elsewhere.read().is_locked().await? && !elsewhere.write().is_locked().await?);
    Ok(())
}

pub async fn rw_06_no_owner_reads_while_another_owner_writes(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let (me, other) = (Owner::unique(), Owner::unique());
    let outer = lock.write().acquire().as_owner(&me).await?;
    let inner = lock.write().try_acquire().as_owner(&me).await?.expect("the owner enters again");
    assert_eq!(lock.write().hold_count(&me).await?, 2);
    assert!(lock.write().is_locked().await? && !lock.write().is_held_by(&other).await?);
    for handle in [&lock, &elsewhere] {
        assert!(handle.read().try_acquire().as_owner(&other).await?.is_none());
    }
    let error = elsewhere.read().acquire().wait(MOMENT).await.expect_err("there is a writer");
    assert!(matches!(error, AcquireError::Timeout { holder: Some(holder), .. } if holder == outer.owner()));
    assert_eq!(inner.release().await?.holds_left, 1);
    assert!(elsewhere.read().try_acquire().await?.is_none());
    assert_eq!(outer.release().await?.holds_left, 0);
    let twice = [lock.read().try_acquire().await?, elsewhere.read().try_acquire().await?];
    assert!(twice.iter().all(Option::is_some));
    Ok(())
}

pub async fn rw_25_read_write_locks_accept_unusual_names(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    for name in ["{tag}:of:its:own", "a:{b}:c", ":", "\0 \u{1}\\ 🔒 锁", "mode", "n:write"] {
        let lock = client.rw_lock(bench.name(name));
        let mut tasks = JoinSet::new();
        for _ in 0..10 {
            let (lock, name) = (lock.clone(), bench.name(name));
            tasks.spawn(async move {
                let guard = lock.read().acquire().await?;
                assert_eq!(guard.name(), name);
                guard.release().await?;
                Ok(())
            });
        }
        all_done(tasks).await?;
        lock.write().acquire().await?.release().await?;
    }
    let broken = client.rw_lock(bench.name("{")).read().acquire().await;
    assert!(
        matches!(
            broken,
            Err(AcquireError::Invalid { cause: InvalidRequestError::NameSplitsSlots { .. }, .. })
        ),
        "{broken:?}"
    );
    Ok(())
}

pub async fn rw_31_durations_out_of_range_are_refused_on_both_halves(bench: &Bench) -> Outcome {
    bench.needs("read-write lock")?;
    let lock = bench.rw_lock().await;
    let short = |error: AcquireError| {
        matches!(error, AcquireError::Invalid { cause: InvalidRequestError::TooShort { .. }, .. })
    };
    let nothing = Duration::ZERO;
    assert!(short(lock.read().acquire().lease(nothing).await.expect_err("no time")));
    assert!(short(lock.write().acquire().lease(nothing).await.expect_err("no time")));
    assert!(short(lock.read().try_acquire().max_hold(nothing).await.expect_err("no time")));
    assert!(short(lock.write().try_acquire().max_hold(nothing).await.expect_err("no time")));
    drop(lock.read().acquire().wait(Duration::MAX).await?);
    Ok(())
}

pub async fn rw_35_a_writer_acquires_the_lock_when_the_guard_of_a_reader_is_dropped(
    bench: &Bench,
) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let reads = lock.read().acquire().await?;
    let writer = Waiter::begin(elsewhere.write().acquire()).await;
    drop(reads);
    let written = writer.outcome().await?;
    let reader = Waiter::begin(lock.read().acquire()).await;
    assert!(reader.waits());
    drop(written);
    assert!(reader.outcome().await?.is_held());
    Ok(())
}

/// Two numbers that are equal except in the middle of a write.
#[derive(Debug, Default)]
struct Pair {
    left: AtomicU64,
    right: AtomicU64,
}

impl Pair {
    fn read(&self) -> u64 {
        let (left, right) = (self.left.load(Ordering::SeqCst), self.right.load(Ordering::SeqCst));
        assert_eq!(left, right, "a reader and a writer hold the lock at once");
        left
    }

    async fn write(&self) {
        let seen = self.read();
        self.left.store(seen + 1, Ordering::SeqCst);
        sleep(Duration::from_millis(1)).await;
        self.right.store(seen + 1, Ordering::SeqCst);
        self.read();
    }
}

pub async fn own_160_readers_never_see_a_partial_write(bench: &Bench) -> Outcome {
    const ROUNDS: u64 = 5;
    let pair = Arc::new(Pair::default());
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (lock, pair) = (bench.rw_lock().await, Arc::clone(&pair));
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                if n % 2 == 0 {
                    let guard = lock.write().acquire().await?;
                    pair.write().await;
                    let guard = guard.downgrade().await?;
                    pair.read();
                    guard.release().await?;
                } else {
                    let guard = lock.read().acquire().await?;
                    let seen = pair.read();
                    sleep(Duration::from_millis(2)).await;
                    assert_eq!(pair.read(), seen, "a writer has written while a reader held the lock");
                    guard.release().await?;
                }
            }
            Ok(())
        });
    }
    all_done(tasks).await?;
    assert_eq!(pair.read(), 4 * ROUNDS);
    Ok(())
}

pub async fn own_161_blocking_threads_never_see_a_partial_write(bench: &Bench) -> Outcome {
    bench.needs("read-write lock")?;
    let (lock, downgrades) = (bench.rw_lock().await, !bench.lacks(DOWNGRADE));
    let tally = Arc::new(Tally::default());
    let threads = (0..4).map(|_| {
        let (lock, tally) = (lock.clone(), Arc::clone(&tally));
        on_a_thread(move || {
            let me = Owner::this_thread();
            for _ in 0..3 {
                let guard = lock.write().acquire().as_owner(&me).block().expect("the write lock");
                tally.add_on_thread();
                let read = if downgrades {
                    guard.downgrade().block().expect("the read lock")
                } else {
                    guard.release().block().expect("it was held");
                    lock.read().acquire().as_owner(&me).block().expect("the read lock")
                };
                let seen = tally.count();
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(tally.count(), seen);
                read.release().block().expect("it was held");
                drop(lock.read().acquire().as_owner(&me).block().expect("the read lock"));
            }
        })
    });
    let threads: Vec<_> = threads.map(tokio::spawn).collect();
    for thread in threads {
        soon(thread).await?;
    }
    assert_eq!(tally.count(), 12);
    Ok(())
}

pub async fn own_162_a_writer_can_have_a_fencing_token(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let first = lock.write().acquire().fenced().await?;
    let token = first.token().expect("one was requested");
    assert_eq!(elsewhere.write().last_token().await?, token);
    assert_eq!(first.downgrade().await?.release().await?.holds_left, 0);
    assert_eq!(lock.write().acquire().await?.token(), None);
    let second = soon(elsewhere.write().acquire().fenced()).await?;
    assert!(second.token() > Some(token));
    Ok(())
}

pub async fn own_163_both_halves_can_be_taken_over(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock_with(short_watchdog).await;
    let thief = bench.rw_lock().await;
    let readers = [lock.read().acquire().await?, lock.read().acquire().await?];
    let written = thief.write().acquire().steal().await?;
    for reader in readers {
        assert_eq!(soon(reader.lost()).await, Loss::TakenOver);
        assert!(matches!(reader.release().await, Err(ReleaseError::NotHeld { loss: Loss::TakenOver, .. })));
    }
    assert!(written.is_held() && lock.read().try_acquire().await?.is_none());
    written.release().await?;

    let written = lock.write().acquire().await?;
    let read = thief.read().acquire().steal().await?;
    // Whether the lock is held for reading by now or gone, the hold is lost.
    assert!(matches!(soon(written.lost()).await, Loss::TakenOver));
    drop(written);
    assert!(read.is_held() && lock.read().try_acquire().await?.is_some());
    Ok(())
}

pub async fn own_178_a_take_over_of_the_read_half_admits_waiting_readers(bench: &Bench) -> Outcome {
    let (lock, thief) = (bench.rw_lock().await, bench.rw_lock().await);
    let written = lock.write().acquire().await?;
    let reader = Waiter::begin(lock.read().acquire()).await;
    let begun = Instant::now();
    let read = thief.read().acquire().steal().await?;
    drop(reader.outcome().await?);
    assert!(read.is_held() && begun.elapsed() < Duration::from_secs(5), "after {:?}", begun.elapsed());
    drop(written);
    Ok(())
}

pub async fn own_164_a_removed_read_write_lock_is_lost_to_readers_and_writers(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock_with(short_watchdog).await;
    let readers = [lock.read().acquire().await?, lock.read().acquire().await?];
    bench.remove(readers[0].name()).await?;
    for reader in readers {
        assert_eq!(soon(reader.lost()).await, Loss::Gone);
        assert!(matches!(reader.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    }
    let writer = lock.write().acquire().await?;
    bench.remove(writer.name()).await?;
    assert_eq!(soon(writer.lost()).await, Loss::Gone);
    // The client is still usable.
    drop(lock.write().acquire().await?);
    drop(soon(lock.read().acquire()).await?);
    Ok(())
}

pub async fn own_165_a_shutdown_counts_readers_and_writers(bench: &Bench) -> Outcome {
    let (name, other) = (bench.name("lock"), bench.name("other"));
    let client = bench.client_with(short_watchdog).await;
    let elsewhere = bench.client().await;
    let one = client.rw_lock(&name).read().acquire().await?;
    let two = client.rw_lock(&name).read().acquire().await?;
    let three = client.rw_lock(&other).write().acquire().await?;
    let writer = Waiter::begin(elsewhere.rw_lock(&name).write().acquire()).await;
    let reader = Waiter::begin(elsewhere.rw_lock(&other).read().acquire()).await;
    assert_eq!(client.shutdown(Duration::ZERO).await.left_to_expire, 3);
    for lost in [one.lost(), two.lost(), three.lost()] {
        assert_eq!(soon(lost).await, Loss::Shutdown);
    }
    let refused = client.rw_lock(&name).read().try_acquire().await;
    assert!(
        matches!(refused, Err(AcquireError::Invalid { cause: InvalidRequestError::ShutDown, .. })),
        "{refused:?}"
    );
    writer.outcome().await?.release().await?;
    reader.outcome().await?.release().await?;
    Ok(())
}
