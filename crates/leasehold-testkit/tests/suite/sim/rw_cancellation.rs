//! Dropping a step of a read-write lock at every poll, under every network fault, and without a network.

use std::any::Any;
use std::fmt::Debug;

use leasehold::{AcquireError, Owner, RwLock};
use leasehold_testkit::cut::{Cut, Ended, cut_off, everywhere};
use tokio::time::sleep;

use super::cancellation::{Engine, Network, When};
use super::{MILLISECOND, NAME, soon};

/// After a case: no acquire waits, and another client acquires both halves at once.
async fn nothing_is_left(network: Network, engine: &Engine, what: impl Debug) {
    engine.settle(network).await;
    engine.nothing_waits((network, &what));
    let lock = engine.connect().await.rw_lock(NAME).prefer_writers();
    let reads = lock.read().try_acquire().await.unwrap();
    reads.unwrap_or_else(|| panic!("it cannot be read: {network:?}, {what:?}")).release().await.unwrap();
    let writes = lock.write().try_acquire().await.unwrap();
    writes.unwrap_or_else(|| panic!("it cannot be written: {network:?}, {what:?}")).release().await.unwrap();
    engine.is_empty((network, what));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_of_a_free_half_leaves_nothing_behind() {
    everywhere(Network::ALL, |network, cut| async move {
        let engine = Engine::new(network);
        let lock = engine.connect().await.rw_lock(NAME);
        network.begin(&engine);
        let reads = matches!(cut_off(cut, lock.read().acquire().into_future()).await, Ended::Cut);
        nothing_is_left(network, &engine, cut).await;
        network.begin(&engine);
        let writes = matches!(cut_off(cut, lock.write().acquire().into_future()).await, Ended::Cut);
        nothing_is_left(network, &engine, cut).await;
        reads || writes
    })
    .await;
}

/// A writer that is cut off while it waits for a reader, or a reader for a writer; and other waiters behind it, which must
/// acquire long before a waiter retries by itself.
async fn behind_another(
    network: Network,
    when: When,
    cut: Cut,
    writes: bool,
    lock: impl Fn(RwLock) -> RwLock,
) -> bool {
    let engine = Engine::new(network);
    let (holds, third) = (engine.connect().await, engine.connect().await);
    let (holds, third) = (lock(holds.rw_lock(NAME)), lock(third.rw_lock(NAME)));
    let lock = lock(engine.connect().await.rw_lock(NAME));
    let holder =
        if writes { hold(holds.read().acquire()).await } else { hold(holds.write().acquire()).await };
    if when == When::Asked {
        network.begin(&engine);
    }
    let first = {
        let lock = lock.clone();
        tokio::spawn(async move {
            if writes {
                matches!(cut_off(cut, lock.write().acquire().into_future()).await, Ended::Cut)
            } else {
                matches!(cut_off(cut, lock.read().acquire().into_future()).await, Ended::Cut)
            }
        })
    };
    if when == When::Asked {
        engine.settle(network).await;
    }
    sleep(MILLISECOND).await;
    let others = [(lock.clone(), true), (lock.clone(), false), (third, true)]
        .map(|(lock, writes)| tokio::spawn(comes_in(lock, writes)));
    sleep(MILLISECOND).await;
    if when == When::Released {
        network.begin(&engine);
    }
    drop(holder);
    let what = format!("{network:?}, {when:?}, {cut:?}");
    let was_cut = soon(&format!("the first waiter ends: {what}"), first).await.unwrap();
    for other in others {
        soon(&format!("another waiter is granted the lock: {what}"), other).await.unwrap();
    }
    nothing_is_left(network, &engine, (when, cut)).await;
    was_cut
}

/// The guard of either half.
async fn hold<G: Any>(acquire: impl IntoFuture<Output = Result<G, AcquireError>>) -> Box<dyn Any> {
    Box::new(acquire.await.unwrap())
}

/// A waiter that retries when its attempt had no reply, and releases at once.
async fn comes_in(lock: RwLock, writes: bool) {
    for _ in 0..5 {
        let came = if writes {
            lock.write().acquire().await.map(drop)
        } else {
            lock.read().acquire().await.map(drop)
        };
        match came {
            Ok(()) => return,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
    panic!("no attempt had a reply");
}

async fn behind_each(writes: bool, lock: impl Fn(RwLock) -> RwLock + Copy) {
    for when in [When::Asked, When::Released] {
        everywhere(Network::ALL, |network, cut| behind_another(network, when, cut, writes, lock)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_writer_behind_a_reader_strands_no_other_waiter() {
    behind_each(true, |lock| lock).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_preferred_writer_behind_a_reader_strands_no_other_waiter() {
    behind_each(true, RwLock::prefer_writers).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reader_behind_a_writer_strands_no_other_waiter() {
    behind_each(false, |lock| lock).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_upgrade_leaves_the_read_half_held() {
    everywhere(Network::ALL, |network, cut| async move {
        let engine = Engine::new(network);
        let lock = engine.connect().await.rw_lock(NAME);
        let reads = lock.read().acquire().await.unwrap();
        network.begin(&engine);
        let ended = cut_off(cut, reads.try_upgrade()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let upgraded = matches!(ended, Ended::Done(Ok(_)));
        engine.settle(network).await;
        assert_eq!(lock.write().is_locked().await.unwrap(), upgraded, "{network:?}, {cut:?}");
        drop(ended);
        engine.settle(network).await;
        assert!(reads.is_held() && lock.read().is_held_by(reads.owner()).await.unwrap());
        assert!(!lock.write().is_locked().await.unwrap(), "{network:?}, {cut:?}");
        drop(reads);
        nothing_is_left(network, &engine, cut).await;
        was_cut
    })
    .await;
}

/// With a nested guard of the same owner, which excludes writers throughout.
#[tokio::test(start_paused = true)]
async fn a_dropped_downgrade_leaves_no_write_half_held() {
    everywhere(Network::ALL, |network, cut| async move {
        let engine = Engine::new(network);
        let lock = engine.connect().await.rw_lock(NAME);
        let me = Owner::number(7);
        let writes = lock.write().acquire().as_owner(&me).await.unwrap();
        let nested = lock.read().acquire().as_owner(&me).await.unwrap();
        network.begin(&engine);
        let ended = cut_off(cut, writes.downgrade()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let downgraded = matches!(ended, Ended::Done(Ok(_)));
        engine.settle(network).await;
        assert!(!lock.write().is_locked().await.unwrap(), "{network:?}, {cut:?}");
        let reads = lock.read().hold_count(&me).await.unwrap();
        assert_eq!(reads, 1 + u32::from(downgraded), "{network:?}, {cut:?}");
        assert!(nested.is_held() && lock.write().try_acquire().await.unwrap().is_none());
        drop((nested, ended));
        nothing_is_left(network, &engine, cut).await;
        was_cut
    })
    .await;
}
