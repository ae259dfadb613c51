//! Requests behind the layer, in memory and under a paused clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::Client;
use lock_layer::LockLayer;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// A service whose requests take a second each; its response is the time at which the request began. It counts its calls.
async fn slow_and_counted(
    calls: Arc<AtomicU32>,
) -> impl Service<&'static str, Response = Instant, Error = BoxError, Future: Send> + Clone {
    let client = Client::connect("memory:").await.expect("it needs no server");
    let layer = LockLayer::new(client, |account: &&str| format!("account:{account}"));
    layer.wait(2 * SECOND).layer(service_fn(move |_| {
        calls.fetch_add(1, Ordering::SeqCst);
        async {
            let begun = Instant::now();
            tokio::time::sleep(SECOND).await;
            Ok::<_, Infallible>(begun)
        }
    }))
}

async fn slow() -> impl Service<&'static str, Response = Instant, Error = BoxError, Future: Send> + Clone {
    slow_and_counted(Arc::default()).await
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_key_run_one_after_the_other() {
    let service = slow().await;
    let (first, second) = tokio::join!(service.clone().oneshot("ann"), service.oneshot("ann"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(second - first >= SECOND, "{:?}", second - first);
}

#[tokio::test(start_paused = true)]
async fn requests_of_different_keys_run_side_by_side() {
    let service = slow().await;
    let start = Instant::now();
    let (ann, bob) = tokio::join!(service.clone().oneshot("ann"), service.oneshot("bob"));
    assert!(ann.is_ok() && bob.is_ok());
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_response_future_releases_the_lock() {
    let service = slow().await;
    let dropped = tokio::time::timeout(SECOND / 2, service.clone().oneshot("ann")).await;
    assert!(dropped.is_err(), "the request takes longer than that");
    let start = Instant::now();
    assert!(service.oneshot("ann").await.unwrap() - start < SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_fails_and_its_service_is_not_called() {
    let calls = Arc::default();
    let service = slow_and_counted(Arc::clone(&calls)).await;
    let all = tokio::join!(
        service.clone().oneshot("ann"),
        service.clone().oneshot("ann"),
        service.clone().oneshot("ann"),
        service.oneshot("ann"),
    );
    let last = all.3.expect_err("three seconds are longer than two");
    assert!(last.downcast_ref::<leasehold::Error>().is_some_and(leasehold::Error::is_contended), "{last}");
    assert!(calls.load(Ordering::SeqCst) < 4);
}
