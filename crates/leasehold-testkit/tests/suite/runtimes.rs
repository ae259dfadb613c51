//! Any runtime, several, and none.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use leasehold::test::Embedded;
use leasehold::{AcquireError, Client, Loss};

const LEASE: Duration = Duration::from_millis(50);

/// An executor that is neither tokio's nor this library's: it has only a thread.
fn foreign_executor<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn waits_and_leases_end_on_a_foreign_executor() {
    foreign_executor(async {
        let client = Client::connect("memory:").await.unwrap();
        let lock = client.lock("a");
        #[expect(clippy::disallowed_methods, reason = "there is no paused clock here")]
        let start = Instant::now();
        let guard = lock.acquire().lease(LEASE).await.unwrap();
        assert_eq!(guard.lost().await, Loss::Expired);
        let next = lock.acquire().await.unwrap();
        assert!(start.elapsed() >= LEASE, "not before the first lease was over");
        assert!(matches!(lock.acquire().wait(LEASE).await, Err(AcquireError::Timeout { .. })));
        drop(next);
    });
}

#[test]
fn waits_and_leases_end_on_a_plain_thread() {
    let client = Client::connect("memory:").block().unwrap();
    let lock = client.lock("a");
    let guard = lock.acquire().lease(LEASE).block().unwrap();
    let next = lock.acquire().block().unwrap();
    assert_eq!(guard.lost().block(), Loss::Expired);
    assert!(lock.acquire().wait(LEASE).block().unwrap_err().is_contended());
    assert!(lock.try_acquire().block().unwrap().is_none());
    next.release().block().unwrap();
    assert!(!lock.is_locked().block().unwrap());
}

#[test]
fn a_guard_dropped_outside_or_inside_a_runtime_releases_the_lock() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).block().unwrap();
    let lock = client.lock("a");

    let guard = runtime().block_on(lock.acquire().into_future()).unwrap();
    drop(guard);
    assert_eq!(engine.names(), 0);

    let guard = lock.acquire().block().unwrap();
    runtime().block_on(async move { drop(guard) });
    assert_eq!(engine.names(), 0);

    // A task that ends with its runtime releases too, and so does one that panics.
    let dying = runtime();
    dying.spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.acquire().await;
            std::future::pending::<()>().await;
        }
    });
    dying.block_on(tokio::task::yield_now());
    assert_eq!(engine.names(), 1);
    drop(dying);
    assert_eq!(engine.names(), 0);
}

#[test]
fn one_client_serves_several_runtimes_and_outlives_the_runtime_of_its_creation() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let client = first.block_on(Client::connect("memory:").into_future()).unwrap();
    let lock = client.lock("a");
    let guard = first.block_on(lock.acquire().into_future()).unwrap();
    drop(first);
    let second = runtime();
    let waiter = second.spawn(lock.acquire().into_future());
    assert!(guard.is_held());
    guard.release().block().unwrap();
    assert!(second.block_on(waiter).unwrap().unwrap().is_held());
}

#[test]
fn a_waiter_is_woken_across_threads_and_runtimes() {
    let engine = Embedded::new();
    let client = Client::connect(engine.url()).block().unwrap();
    let lock = client.lock("a");
    let holder = lock.acquire().block().unwrap();
    let blocked = std::thread::spawn({
        let lock = lock.clone();
        move || lock.acquire().block().map(|guard| guard.is_held())
    });
    let foreign = std::thread::spawn({
        let lock = lock.clone();
        move || foreign_executor(async move { lock.acquire().await.map(|guard| guard.is_held()) })
    });
    while engine.waiters("a") < 2 {
        std::thread::yield_now();
    }
    drop(holder);
    assert_eq!(blocked.join().unwrap(), Ok(true));
    assert_eq!(foreign.join().unwrap(), Ok(true));
    assert_eq!(engine.names(), 0);
}

#[tokio::test]
async fn blocking_calls_inside_a_task_work_repeatedly() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("a");
    for _ in 0..1000 {
        lock.acquire().block().unwrap().release().block().unwrap();
    }
}

#[test]
fn a_release_concurrent_with_a_shutdown_leaves_no_lock_to_expire() {
    for _ in 0..200 {
        let client = Client::connect("memory:").block().unwrap();
        let guard = client.lock("a").acquire().block().unwrap();
        let shutdown = std::thread::spawn(move || client.shutdown(Duration::MAX).block());
        assert_eq!(guard.release().block().unwrap().holds_left, 0);
        assert_eq!(shutdown.join().unwrap().left_to_expire, 0);
    }
}
