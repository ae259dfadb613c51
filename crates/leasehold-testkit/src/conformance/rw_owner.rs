//! One owner on both halves of a read-write lock: nested, upgraded, downgraded.

use leasehold::{AcquireError, InvalidRequestError, Loss, Owner};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::common::{LEASE, LONG_LEASE, MOMENT, Waiter, all_done, is_pending_for, soon};
use crate::bench::{Bench, DOWNGRADE};

pub async fn rw_08_a_writer_may_also_read(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock().await;
    let me = Owner::unique();
    let outer = lock.write().acquire().as_owner(&me).await?;
    lock.write().acquire().as_owner(&me).await?.release().await?;
    // Waiting readers are not before it.
    let reader = Waiter::begin(lock.read().acquire()).await;
    let reads = lock.read().try_acquire().as_owner(&me).await?.expect("its owner writes");
    assert!(lock.write().is_held_by(&me).await? && lock.read().is_held_by(&me).await?);
    let again = lock.read().acquire().as_owner(&me).await?;
    assert_eq!(lock.read().hold_count(&me).await?, 2);
    assert!(reader.waits());
    drop((again, reads, outer));
    assert!(reader.outcome().await?.is_held());
    Ok(())
}

pub async fn rw_09_a_writer_that_reads_still_reads_after_releasing_the_write_half(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let writes = lock.write().acquire().await?;
    let me = writes.owner();
    let reads = lock.read().acquire().as_owner(&me).await?;
    let reader = Waiter::begin(elsewhere.read().acquire()).await;
    let writer = Waiter::begin(elsewhere.write().acquire()).await;
    assert_eq!(writes.release().await?.holds_left, 0);
    let other = reader.outcome().await?;
    assert!(reads.is_held() && writer.waits());
    assert!(!lock.write().is_locked().await? && !lock.write().is_held_by(&me).await?);
    assert!(elsewhere.write().try_acquire().await?.is_none());
    reads.release().await?;
    other.release().await?;
    assert!(writer.outcome().await?.is_held());
    Ok(())
}

pub async fn rw_12_the_end_of_a_nested_read_does_not_end_the_write(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let writes = lock.write().acquire().await?;
    let reads = lock.read().acquire().as_owner(writes.owner()).lease(LEASE).await?;
    assert!(elsewhere.write().is_locked().await?);
    assert_eq!(reads.release().await?.holds_left, 0);
    assert!(elsewhere.write().is_locked().await? && elsewhere.read().try_acquire().await?.is_none());
    // Nor does its lease affect that of the write half.
    assert!(is_pending_for(LEASE * 3 / 2, writes.lost()).await);
    assert!(elsewhere.write().is_locked().await?);
    writes.release().await?;
    assert!(!elsewhere.write().is_locked().await?);
    Ok(())
}

pub async fn rw_13_each_half_is_queried_separately(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let writes = lock.write().acquire().lease(LONG_LEASE).await?;
    assert!(!elsewhere.read().is_locked().await? && elsewhere.write().is_locked().await?);
    let me = writes.owner();
    let reads = lock.read().acquire().as_owner(&me).wait(LONG_LEASE).await?;
    assert!(elsewhere.read().is_locked().await? && elsewhere.write().is_locked().await?);
    let holder = elsewhere.read().holder().await?.expect("it is read");
    assert_eq!((holder.owner, holder.holds), (Some(me.clone()), 1));
    assert!(holder.remaining > LONG_LEASE / 2, "{:?}", holder.remaining);
    writes.release().await?;
    assert!(elsewhere.read().is_locked().await? && !elsewhere.write().is_locked().await?);
    reads.release().await?;
    assert_eq!(elsewhere.read().holder().await?, None);
    assert_eq!(elsewhere.read().hold_count(&me).await?, 0);
    Ok(())
}

pub async fn own_168_an_owner_that_only_reads_cannot_wait_to_write(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock().await;
    let me = Owner::unique();
    let reads = lock.read().acquire().as_owner(&me).await?;
    let refused = |error: AcquireError| {
        matches!(error, AcquireError::Invalid { cause: InvalidRequestError::OnlyReads, .. })
    };
    // Whether other writers wait or not.
    for _ in 0..2 {
        assert!(refused(soon(lock.write().acquire().as_owner(&me)).await.expect_err("it reads")));
        assert!(refused(lock.write().try_acquire().as_owner(&me).await.expect_err("it reads")));
        let writer = Waiter::begin(lock.write().acquire()).await;
        assert!(refused(soon(lock.write().acquire().as_owner(&me)).await.expect_err("it reads")));
        writer.cancel();
        assert!(writer.gone().await.is_err());
    }
    assert!(reads.is_held());
    reads.release().await?;
    assert!(soon(lock.write().acquire().as_owner(&me)).await?.is_held());
    Ok(())
}

pub async fn own_169_the_only_reader_can_upgrade(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let reads = lock.read().acquire().await?;
    let writer = Waiter::begin(lock.write().acquire()).await;
    let writes = reads.try_upgrade().await?;
    assert!(elsewhere.write().is_held_by(reads.owner()).await?);
    assert!(elsewhere.read().try_acquire().await?.is_none());
    let again = reads.try_upgrade().await?;
    assert_eq!(again.release().await?.holds_left, 1);
    writes.release().await?;
    assert!(reads.is_held() && writer.waits());
    elsewhere.read().try_acquire().await?.expect("others may read").release().await?;
    // The read guard may be released first.
    let writes = reads.try_upgrade().await?;
    reads.release().await?;
    assert!(writes.is_held() && writer.waits() && elsewhere.read().try_acquire().await?.is_none());
    writes.release().await?;
    assert!(writer.outcome().await?.is_held());
    Ok(())
}

pub async fn own_170_an_upgrade_beside_other_readers_is_refused(bench: &Bench) -> Outcome {
    bench.needs(DOWNGRADE)?;
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let (one, two) = (lock.read().acquire().await?, elsewhere.read().acquire().lease(LEASE).await?);
    let error = soon(one.try_upgrade()).await.expect_err("another reads");
    assert!(
        matches!(&error, AcquireError::OtherReaders { reader: Some(reader), .. } if *reader == two.owner())
    );
    assert!(error.is_contended());
    assert!(soon(two.try_upgrade()).await.is_err());
    assert!(one.is_held() && two.is_held() && !lock.write().is_locked().await?);
    // An expired reader does not count.
    soon(two.lost()).await;
    sleep(MOMENT).await;
    let error = two.try_upgrade().await.expect_err("it is lost");
    assert!(matches!(error, AcquireError::Lost { loss: Loss::Expired, .. }), "{error:?}");
    one.try_upgrade().await?.release().await?;
    assert!(one.is_held());
    Ok(())
}

pub async fn own_171_a_downgrade_admits_readers_and_no_writer(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let writes = lock.write().acquire().await?;
    let me = writes.owner();
    let writers =
        [Waiter::begin(lock.write().acquire()).await, Waiter::begin(elsewhere.write().acquire()).await];
    let reader = Waiter::begin(elsewhere.read().acquire()).await;
    let reads = soon(writes.downgrade()).await?;
    assert!(reads.is_held() && reads.owner() == me);
    let other = reader.outcome().await?;
    assert!(!lock.write().is_locked().await? && writers.iter().all(Waiter::waits));
    assert_eq!(reads.release().await?.holds_left, 0);
    other.release().await?;
    let mut ends = JoinSet::new();
    for writer in writers {
        // In whichever order they acquire.
        ends.spawn(async move {
            writer.outcome().await?.release().await?;
            Ok(())
        });
    }
    all_done(ends).await?;

    // Entered twice, it is held for writing until both are released.
    let outer = lock.write().acquire().await?;
    let reads = outer.reenter().await?.downgrade().await?;
    assert!(elsewhere.read().try_acquire().await?.is_none());
    let again = outer.downgrade().await?;
    assert_eq!(lock.read().hold_count(again.owner()).await?, 2);
    assert!(elsewhere.read().try_acquire().await?.is_some());
    assert_eq!(reads.release().await?.holds_left, 1);
    Ok(())
}

pub async fn own_172_a_downgraded_or_upgraded_hold_ends_at_its_original_time(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.rw_lock().await, bench.rw_lock().await);
    let begun = Instant::now();
    let reads = lock.write().acquire().lease(LEASE).await?.downgrade().await?;
    assert!(reads.remaining() <= LEASE);
    assert_eq!(soon(reads.lost()).await, Loss::Expired);
    drop(soon(elsewhere.write().acquire()).await?);
    assert!(begun.elapsed() + LEASE / 10 >= LEASE);

    let reads = lock.write().acquire().max_hold(LEASE).await?.downgrade().await?;
    assert_eq!(soon(reads.lost()).await, Loss::MaxHold);
    drop(soon(elsewhere.write().acquire()).await?);

    let reads = lock.read().acquire().lease(LEASE).await?;
    let writes = reads.try_upgrade().await?;
    assert_eq!(soon(writes.lost()).await, Loss::Expired);
    assert_eq!(soon(reads.lost()).await, Loss::Expired);
    drop(soon(elsewhere.write().acquire()).await?);

    let late = soon(lock.write().acquire().lease(LEASE)).await?;
    soon(late.lost()).await;
    assert!(matches!(late.downgrade().await, Err(AcquireError::Lost { loss: Loss::Expired, .. })));
    Ok(())
}

pub async fn own_173_two_acquires_of_one_task_wait_for_each_other(bench: &Bench) -> Outcome {
    let lock = bench.rw_lock().await;
    let reads = lock.read().acquire().await?;
    assert!(lock.write().acquire().wait(MOMENT).await.is_err_and(|error| error.is_contended()));
    reads.release().await?;
    let writes = lock.write().acquire().await?;
    assert!(lock.write().acquire().wait(MOMENT).await.is_err_and(|error| error.is_contended()));
    assert!(lock.read().acquire().wait(MOMENT).await.is_err_and(|error| error.is_contended()));
    assert!(writes.is_held());
    Ok(())
}
