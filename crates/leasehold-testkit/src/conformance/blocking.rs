//! Waits that block a thread.

use leasehold::{AcquireError, AnyLock, Error, Interrupt, InvalidRequestError, MultiLock, WaitError};

use super::Outcome;
use super::common::{MOMENT, is_free_for, on_a_thread, soon};
use crate::bench::{Bench, FREE_WITH_WAITERS};

pub async fn own_357_a_blocked_wait_can_be_interrupted(bench: &Bench) -> Outcome {
    let (lock, elsewhere) = (bench.lock().await, bench.lock().await);
    let held = elsewhere.acquire().await?;
    let interrupt = Interrupt::new();
    let (waits, trigger) = (lock.clone(), interrupt.clone());
    let waiter = std::thread::spawn(move || waits.acquire().block_until(&trigger));
    // Whether it is triggered before or after the wait has begun makes no difference.
    on_a_thread(|| std::thread::sleep(MOMENT)).await;
    interrupt.trigger();
    let ended = on_a_thread(|| waiter.join().expect("the thread does not panic")).await;
    assert!(matches!(&ended, Err(AcquireError::Interrupted { .. })), "{ended:?}");
    assert!(held.is_held());
    held.release().await?;
    if bench.lacks(FREE_WITH_WAITERS) {
        // The server may still have the place of the waiter, whose client is about to remove it.
        soon(elsewhere.acquire()).await?.release().await?;
    } else {
        assert!(is_free_for(&elsewhere).await?, "the wait has left nothing");
    }

    // It stays triggered, and a free lock is not acquired either.
    let (free, later) = (lock.clone(), interrupt.clone());
    let ended = on_a_thread(move || free.acquire().block_until(&later)).await;
    assert!(matches!(&ended, Err(AcquireError::Interrupted { .. })), "{ended:?}");
    assert!(is_free_for(&elsewhere).await?);
    let guard = on_a_thread(move || lock.acquire().block_until(&Interrupt::new())).await?;
    assert!(guard.is_held() && interrupt.is_triggered());
    Ok(())
}

pub async fn own_358_a_wait_for_a_latch_or_permits_can_be_interrupted(bench: &Bench) -> Outcome {
    let client = bench.client().await;
    let interrupt = Interrupt::new();
    interrupt.trigger();
    let (latch, later) = (client.latch(bench.name("latch")), interrupt.clone());
    latch.try_set_count(1).await?;
    let ended = on_a_thread(move || latch.opened().block_until(&later)).await;
    assert!(matches!(&ended, Err(WaitError::Interrupted { .. })), "{ended:?}");
    client.latch(bench.name("latch")).delete().await?;
    let (semaphore, later) = (client.semaphore(bench.name("semaphore")), interrupt.clone());
    let ended = on_a_thread(move || semaphore.acquire(1).block_until(&later)).await;
    assert!(matches!(&ended, Err(AcquireError::Interrupted { .. })), "{ended:?}");
    Ok(())
}

pub async fn own_359_work_that_would_wait_for_itself_is_refused(bench: &Bench) -> Outcome {
    let lock = bench.lock().await;
    let is_refused = |outcome: Result<(), AcquireError>| {
        assert!(
            matches!(&outcome, Err(AcquireError::Invalid { cause: InvalidRequestError::WouldDeadlock, .. })),
            "{outcome:?}"
        );
    };
    let (outer, inner) = (lock.clone(), lock.clone());
    let done = on_a_thread(move || {
        outer.acquire().run_blocking(|hold| {
            is_refused(inner.acquire().block().map(drop));
            is_refused(MultiLock::new([inner.clone()]).acquire().block().map(drop));
            is_refused(AnyLock::acquire(&inner).block().map(drop));
            // These end by themselves, or another thread can end them.
            let interrupt = Interrupt::new();
            interrupt.trigger();
            let ended = inner.acquire().block_until(&interrupt);
            assert!(matches!(&ended, Err(AcquireError::Interrupted { .. })), "{ended:?}");
            assert!(hold.is_held(), "its own hold is not affected");
            assert!(inner.try_acquire().block()?.is_none());
            let waited = inner.acquire().wait(MOMENT).block();
            assert!(matches!(waited, Err(AcquireError::Timeout { .. })), "{waited:?}");
            Ok::<_, Error>(())
        })
    });
    done.await?;
    assert!(is_free_for(&lock).await?);

    let inner = lock.clone();
    let work = async move {
        is_refused(inner.acquire().block().map(drop));
        Ok::<_, Error>(())
    };
    soon(lock.acquire().run(work)).await?;
    // Neither afterwards nor under another lock.
    let other = bench.client().await.lock(bench.name("other"));
    let done = on_a_thread(move || {
        lock.acquire().block()?.release().block()?;
        lock.acquire().run_blocking(|_| Ok::<_, Error>(other.acquire().block()?.release().block().map(drop)?))
    });
    Ok(done.await?)
}
