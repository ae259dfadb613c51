//! Dropping a step of a read-write lock at every point where it can be dropped.

use std::any::Any;
use std::fmt::Debug;
use std::time::Duration;

use leasehold::test::Faults;
use leasehold::{AcquireError, Client, Owner, RwLock};
use tokio::time::{sleep, timeout};

use crate::cancellation::Answers;
use crate::cut::{Cut, Ended, cut_off, everywhere};

const NAME: &str = "n";

/// After whatever happened: nobody waits, and both halves can be had at once.
async fn nothing_is_left(client: &Client, faults: &Faults, what: impl Debug) {
    faults.clear();
    assert_eq!(faults.waiters(NAME), 0, "{what:?}");
    let lock = client.rw_lock(NAME).prefer_writers();
    assert!(lock.read().try_acquire().await.unwrap().is_some(), "it cannot be read: {what:?}");
    assert!(lock.write().try_acquire().await.unwrap().is_some(), "it cannot be written: {what:?}");
    assert_eq!(faults.names(), 0, "{what:?}");
}

#[tokio::test(start_paused = true)]
async fn a_free_half() {
    everywhere(Answers::ALL, |answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let lock = client.rw_lock(NAME);
        answers.arrange(&faults);
        let reads = matches!(cut_off(cut, lock.read().acquire().into_future()).await, Ended::Cut);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        answers.arrange(&faults);
        let writes = matches!(cut_off(cut, lock.write().acquire().into_future()).await, Ended::Cut);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        reads || writes
    })
    .await;
}

/// A writer that is cut off while it waits for a reader, or a reader for a writer; and others behind it, who are to come in
/// without looking by themselves.
async fn behind_another(answers: Answers, cut: Cut, writes: bool, prefer_writers: bool) -> bool {
    let (client, faults) = leasehold::test::memory();
    let lock = client.rw_lock(NAME);
    let lock = if prefer_writers { lock.prefer_writers() } else { lock };
    let holder = if writes { hold(lock.read().acquire()).await } else { hold(lock.write().acquire()).await };
    if matches!(answers, Answers::Late | Answers::FirstLost) {
        answers.arrange(&faults);
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
    sleep(Duration::from_millis(500)).await;
    if !matches!(answers, Answers::Late) {
        faults.clear();
    }
    let others = [tokio::spawn(comes_in(lock.clone(), true)), tokio::spawn(comes_in(lock.clone(), false))];
    sleep(Duration::from_millis(500)).await;
    if matches!(answers, Answers::AllLost) {
        (0..2).for_each(|_| faults.lose_reply());
    }
    drop(holder);
    let was_cut = timeout(SOON, first).await.expect("the first ends").unwrap();
    for other in others {
        timeout(SOON, other).await.unwrap_or_else(|_| panic!("one waits: {answers:?} {cut:?}")).unwrap();
    }
    nothing_is_left(&client, &faults, (answers, cut)).await;
    was_cut
}

/// The guard of either half.
async fn hold<G: Any>(acquire: impl IntoFuture<Output = Result<G, AcquireError>>) -> Box<dyn Any> {
    Box::new(acquire.await.unwrap())
}

/// Shorter than the time after which a waiter to whom nothing is said looks by itself.
const SOON: Duration = Duration::from_secs(10);

async fn comes_in(lock: RwLock, writes: bool) {
    // Whose answer is lost has to ask again.
    for _ in 0..3 {
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
    panic!("it never came in");
}

#[tokio::test(start_paused = true)]
async fn a_writer_behind_a_reader() {
    everywhere(Answers::ALL, |answers, cut| behind_another(answers, cut, true, false)).await;
}

#[tokio::test(start_paused = true)]
async fn a_preferred_writer_behind_a_reader() {
    everywhere(Answers::ALL, |answers, cut| behind_another(answers, cut, true, true)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_behind_a_writer() {
    everywhere(Answers::ALL, |answers, cut| behind_another(answers, cut, false, false)).await;
}

#[tokio::test(start_paused = true)]
async fn an_upgrade() {
    everywhere(Answers::ALL, |answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let lock = client.rw_lock(NAME);
        let reads = lock.read().acquire().await.unwrap();
        answers.arrange(&faults);
        let ended = cut_off(cut, reads.try_upgrade()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let upgraded = matches!(ended, Ended::Done(Ok(_)));
        faults.clear();
        assert_eq!(lock.write().is_locked().await.unwrap(), upgraded, "{answers:?} {cut:?}");
        drop(ended);
        assert!(reads.is_held() && lock.read().is_held_by(&reads.owner()).await.unwrap());
        assert!(!lock.write().is_locked().await.unwrap());
        drop(reads);
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}

/// With a writer that waits, who must not come in between, and a nested guard of the same owner.
#[tokio::test(start_paused = true)]
async fn a_downgrade() {
    everywhere(Answers::ALL, |answers, cut| async move {
        let (client, faults) = leasehold::test::memory();
        let lock = client.rw_lock(NAME);
        let me = Owner::number(7);
        let writes = lock.write().acquire().as_owner(&me).await.unwrap();
        let nested = lock.read().acquire().as_owner(&me).await.unwrap();
        answers.arrange(&faults);
        let ended = cut_off(cut, writes.downgrade()).await;
        let was_cut = matches!(ended, Ended::Cut);
        let downgraded = matches!(ended, Ended::Done(Ok(_)));
        faults.clear();
        assert!(!lock.write().is_locked().await.unwrap(), "{answers:?} {cut:?}");
        let reads = lock.read().hold_count(&me).await.unwrap();
        assert_eq!(reads, 1 + u32::from(downgraded), "{answers:?} {cut:?}");
        assert!(nested.is_held() && lock.write().try_acquire().await.unwrap().is_none());
        drop((nested, ended));
        nothing_is_left(&client, &faults, (answers, cut)).await;
        was_cut
    })
    .await;
}
