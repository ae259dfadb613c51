//! Waiters for several locks at once.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::Owner;
use tokio::time::sleep;

use super::{MILLISECOND, connect, granted, soon, start};

/// Waits, and checks that futures are rarely polled meanwhile.
async fn come_to_rest(polls: &AtomicUsize) {
    polls.store(0, Ordering::SeqCst);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let polls = polls.load(Ordering::SeqCst);
    assert!(polls < 50, "{polls} polls while nothing happens");
}

/// Both share the position of their owner in the queue on the server. Neither waits behind the other, or it would join the
/// queue again and again.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_owner_for_a_fair_lock_do_not_requeue_endlessly() {
    let (simulation, client) = start().await;
    let held = connect(&simulation).await.fair_lock("a").acquire().await.unwrap();
    let (owner, polls) = (Owner::number(7), Arc::new(AtomicUsize::new(0)));
    let waiters = [(); 2].map(|()| {
        let acquire = client.fair_lock("a").acquire().as_owner(&owner).into_future();
        tokio::spawn(counted(acquire, &polls))
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    come_to_rest(&polls).await;
    drop(held);
    for waiter in waiters {
        drop(granted(waiter).await);
    }
}

/// Counts how often a future is polled.
fn counted<F: Future + Unpin>(
    mut future: F,
    polls: &Arc<AtomicUsize>,
) -> impl Future<Output = F::Output> + use<F> {
    let polls = Arc::clone(polls);
    poll_fn(move |context| {
        polls.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut future).poll(context)
    })
}

/// The first lock becomes free while another waiter is queued for the last one. That queue takes in the waiters for all
/// three, and the queue of the first must not take them back: they would alternate as long as the last one is held.
#[tokio::test(start_paused = true)]
async fn waiters_for_several_locks_stay_in_the_queue_of_a_held_lock() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    let (first, last) = (other.lock("a").acquire().await.unwrap(), other.lock("c").acquire().await.unwrap());
    let polls = Arc::new(AtomicUsize::new(0));
    let waiters = [(); 2]
        .map(|()| tokio::spawn(counted(client.multi_lock(["a", "b", "c"]).acquire().into_future(), &polls)));
    sleep(MILLISECOND).await;
    let before_them = tokio::spawn(client.lock("c").acquire().into_future());
    sleep(MILLISECOND).await;
    drop(first);
    come_to_rest(&polls).await;
    drop(last);
    granted(before_them).await.release().await.unwrap();
    for waiter in waiters {
        let all = soon("all locks", waiter).await.unwrap().unwrap();
        assert_eq!(all.members().iter().map(leasehold::Guard::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
