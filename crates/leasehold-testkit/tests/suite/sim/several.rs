//! Waiters for several locks at once.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::sleep;

use super::{MILLISECOND, connect, granted, soon, start};

/// The first lock becomes free while another waiter stands in line for the last one. Its line sends the waiters for all of
/// them there, and the line of the first must not send them back: they would go round as long as the last one is held.
#[tokio::test(start_paused = true)]
async fn waiters_for_several_locks_come_to_rest_in_the_line_of_one_that_is_held() {
    let (simulation, client) = start().await;
    let other = connect(&simulation).await;
    let (first, last) = (other.lock("a").acquire().await.unwrap(), other.lock("c").acquire().await.unwrap());
    let polls = Arc::new(AtomicUsize::new(0));
    let waiters = [(); 2].map(|()| {
        let (mut acquire, polls) =
            (client.multi_lock(["a", "b", "c"]).acquire().into_future(), Arc::clone(&polls));
        tokio::spawn(poll_fn(move |context| {
            polls.fetch_add(1, Ordering::SeqCst);
            Pin::new(&mut acquire).poll(context)
        }))
    });
    sleep(MILLISECOND).await;
    let before_them = tokio::spawn(client.lock("c").acquire().into_future());
    sleep(MILLISECOND).await;
    drop(first);
    polls.store(0, Ordering::SeqCst);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let polls = polls.load(Ordering::SeqCst);
    assert!(polls < 50, "{polls} polls while nothing happens");
    drop(last);
    granted(before_them).await.release().await.unwrap();
    for waiter in waiters {
        let all = soon("all locks", waiter).await.unwrap().unwrap();
        assert_eq!(all.members().iter().map(leasehold::Guard::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
