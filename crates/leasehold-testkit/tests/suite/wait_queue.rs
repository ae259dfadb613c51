//! No waiter in the queue is stranded, whatever the waiters before it do.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::Client;
use leasehold::test::Embedded;
use tokio::time::{Instant, sleep};

/// Polls once, and never again.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_front_waiter_is_skipped_and_not_removed() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    let lock = client.lock("a");
    let holder = lock.acquire().await.unwrap();
    let mut sleeper = pin!(lock.acquire().into_future());
    assert!(poll_once(sleeper.as_mut()).is_pending());
    let behind = lock.acquire().into_future();
    let behind = tokio::spawn(async { drop(behind.await.unwrap()) });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(engine.waiters("a"), 2);

    drop(holder);
    assert!(lock.try_acquire().await.unwrap().is_none(), "it is the sleeper's turn");
    let freed = Instant::now();
    let newcomer = lock.acquire().await.unwrap();
    assert!(freed.elapsed() <= Duration::from_millis(200), "{:?}", freed.elapsed());
    drop(newcomer);
    behind.await.unwrap();
    assert!(freed.elapsed() <= Duration::from_millis(200), "{:?}", freed.elapsed());

    // The sleeper was overtaken, not removed.
    assert!(sleeper.await.unwrap().is_held());
    assert_eq!(engine.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_releases_and_acquires_again_queues_at_the_end() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("a");
    let served = Arc::new(Mutex::new(String::new()));
    let gate = lock.acquire().await.unwrap();
    let greedy = ["a", "b", "c"].map(|who| {
        let (lock, served) = (lock.clone(), Arc::clone(&served));
        tokio::spawn(async move {
            for _ in 0..4 {
                let guard = lock.acquire().await.unwrap();
                served.lock().unwrap().push_str(who);
                drop(guard);
            }
        })
    });
    tokio::task::yield_now().await;
    drop(gate);
    for task in greedy {
        task.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), "abcabcabcabc");
}

#[tokio::test(start_paused = true)]
async fn a_try_succeeds_at_once_after_a_drop_when_the_queue_is_empty() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("a");
    for _ in 0..100 {
        let guard = lock.try_acquire().await.unwrap();
        assert!(guard.is_some());
        drop(guard);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_queued_waiters_all_acquire_the_lock() {
    let client = Client::connect("memory:").await.unwrap();
    let waiters: Vec<_> = (0..50_000)
        .map(|_| {
            let lock = client.lock("a");
            tokio::spawn(async move { drop(lock.acquire().await.unwrap()) })
        })
        .collect();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn new_waiters_do_not_starve_a_waiter_behind_an_unpolled_waiter() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).await.unwrap();
    let lock = client.lock("a");
    let holder = lock.acquire().await.unwrap();
    let mut sleeper = pin!(lock.acquire().into_future());
    assert!(poll_once(sleeper.as_mut()).is_pending());
    let behind = tokio::spawn(lock.acquire().into_future());
    tokio::task::yield_now().await;
    drop(holder);
    let freed = Instant::now();
    let newcomers = tokio::spawn({
        let lock = lock.clone();
        async move {
            loop {
                drop(lock.acquire().await.unwrap());
                sleep(Duration::from_millis(10)).await;
            }
        }
    });
    drop(behind.await.unwrap().unwrap());
    assert!(freed.elapsed() <= Duration::from_secs(1), "{:?}", freed.elapsed());
    newcomers.abort();
    assert!(newcomers.await.unwrap_err().is_cancelled());
    assert!(sleeper.await.unwrap().is_held());
    assert_eq!(engine.names(), 0);
}

/// Without new waiters, and with any number of futures that are not polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_unpolled_waiters_acquire_the_lock() {
    let client = Client::connect("memory:").await.unwrap();
    let (lock, fair) = (client.lock("a"), client.fair_lock("b"));
    let holders = (lock.acquire().await.unwrap(), fair.acquire().await.unwrap());
    let mut sleepers =
        [0; 2].map(|_| (Box::pin(lock.acquire().into_future()), Box::pin(fair.acquire().into_future())));
    for (sleeper, fair) in &mut sleepers {
        assert!(poll_once(sleeper.as_mut()).is_pending());
        assert!(poll_once(fair.as_mut()).is_pending());
    }
    let behind = [0; 10]
        .map(|_| lock.acquire().into_future())
        .map(|wait| tokio::spawn(async { drop(wait.await.unwrap()) }));
    let fair_behind = [0; 2]
        .map(|_| fair.acquire().into_future())
        .map(|wait| tokio::spawn(async { drop(wait.await.unwrap()) }));
    tokio::task::yield_now().await;
    drop(holders);
    let all = async {
        for waiter in behind.into_iter().chain(fair_behind) {
            waiter.await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("long before the safety cap of 30 s");
    for (sleeper, fair) in sleepers {
        assert!(sleeper.await.unwrap().is_held() && fair.await.unwrap().is_held(), "passed, not forgotten");
    }
}

#[tokio::test]
async fn a_waiter_for_a_value_acquires_the_value_when_its_holder_loses_another_value() {
    let client = Client::connect("memory:").watchdog(Duration::from_millis(300)).await.unwrap();
    let both = client.group_lock("g", ["a", "b"]).acquire().await.unwrap();
    let behind = tokio::spawn(client.group_lock("g", ["b"]).acquire().into_future());
    tokio::task::yield_now().await;
    assert!(client.group_lock("g", ["a"]).force_unlock().await.unwrap());
    let guard =
        tokio::time::timeout(Duration::from_secs(20), behind).await.expect("nothing keeps it any more");
    assert!(guard.unwrap().unwrap().is_held() && !both.is_held());
}
