//! The day. Each part awaits its end before the next one begins, so that the lines have one order.

use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, InvalidRequestError, Loss};
use leasehold_testkit::bench::Backend;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::Server;
use tokio::time::{Instant, sleep, timeout};

use crate::recorder;

/// Long enough for a machine that is busy with other tests, and a third of it is not long to wait for.
const WATCHDOG: Duration = Duration::from_secs(3);
/// After which a wait is long. Every wait of the day that is to be long is much longer, and no other is.
const SHORT: Duration = Duration::from_millis(100);
/// Of locks that are to be lost: no reply takes as long.
const LEASE: Duration = Duration::from_millis(700);
const LONG: Duration = Duration::from_secs(30);

/// Where the day is spent.
pub(crate) enum Place<'a> {
    /// An engine without a server.
    Local(&'a dyn Backend),
    /// The client is behind the proxy, the other one is not.
    Behind(&'a Proxy, &'a Server),
}

impl<'a> Place<'a> {
    pub(crate) fn local(backend: &'a dyn Backend) -> Self {
        Self::Local(backend)
    }

    pub(crate) fn behind(proxy: &'a Proxy, server: &'a Server) -> Self {
        Self::Behind(proxy, server)
    }

    fn urls(&self) -> [String; 2] {
        match self {
            Self::Local(backend) => [backend.url().to_owned(), backend.url().to_owned()],
            Self::Behind(proxy, server) => [proxy.url(), server.url()],
        }
    }

    async fn remove(&self, name: &str) {
        match self {
            Self::Local(backend) => backend.remove(name).await,
            Self::Behind(_, server) => assert_eq!(server.cli(&["DEL", name]), 1),
        }
    }
}

/// Waits for what happens in any case.
async fn soon<T>(what: &str, work: impl IntoFuture<Output = T>) -> T {
    timeout(LONG, work.into_future()).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}

/// Waits until these words were logged so often.
async fn logged(words: &str, times: usize) {
    let begun = Instant::now();
    while recorder::count(words) < times {
        assert!(begun.elapsed() < LONG, "{words} is not logged {times} times:\n{}", recorder::text());
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for the loss of a guard, and drops it.
async fn lost(name: &str, guard: Guard, cause: Loss) {
    assert_eq!(soon("the loss", guard.lost()).await, cause);
    drop(guard);
    logged(&format!("a held lock is lost lock={name} "), 1).await;
}

/// Unless the engine has no such thing.
fn supported<T>(result: Result<T, AcquireError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(AcquireError::Invalid { cause: InvalidRequestError::Unsupported { .. }, .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn play(place: &Place<'_>) {
    let [url, direct] = place.urls();
    // No hold is so long. With a limit, how long each lasts is known on every engine, with and without the feature `metrics`.
    let long = Duration::from_secs(3600);
    let client = Client::connect(url).label("till").watchdog(WATCHDOG).warn_wait(SHORT).warn_hold(long);
    let client = client.await.unwrap();
    let other = Client::connect(direct).label("office").await.unwrap();
    contention(&client).await;
    losses(&client, &other, place).await;
    if let Place::Behind(proxy, _) = place {
        outages(&client, proxy).await;
    }
    let left = client.lock("left").acquire().await.unwrap();
    assert_eq!(soon("the end", client.shutdown(Duration::ZERO)).await.left_to_expire, 1);
    assert_eq!(soon("the loss", left.lost()).await, Loss::Shutdown);
    drop(left);
    soon("the end", other.shutdown(LONG)).await;
}

/// A wait that is granted, and one that times out.
async fn contention(client: &Client) {
    let lock = client.lock("contended");
    let held = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(lock.acquire().into_future());
    logged("a wait is long", 1).await;
    held.release().await.unwrap();
    let held = soon("the lock", waiter).await.unwrap().unwrap();
    let over = lock.acquire().wait(10 * SHORT).await.unwrap_err();
    assert!(matches!(over, AcquireError::Timeout { .. }), "{over:?}");
    held.release().await.unwrap();
}

/// A loss of each cause that needs no outage.
async fn losses(client: &Client, other: &Client, place: &Place<'_>) {
    let acquire = |name: &str| client.lock(name).acquire();
    lost("expired", acquire("expired").lease(LEASE).await.unwrap(), Loss::Expired).await;
    lost("max_hold", acquire("max_hold").max_hold(LEASE).await.unwrap(), Loss::MaxHold).await;
    lost("no_progress", acquire("no_progress").renew_while_progress(LEASE).await.unwrap(), Loss::NoProgress)
        .await;

    let guard = acquire("gone").await.unwrap();
    place.remove("gone").await;
    lost("gone", guard, Loss::Gone).await;

    let guard = acquire("taken-over").await.unwrap();
    match supported(other.lock("taken-over").acquire().steal().await) {
        Some(thief) => {
            lost("taken-over", guard, Loss::TakenOver).await;
            thief.release().await.unwrap();
        }
        None => drop(guard),
    }

    let guard = acquire("force-unlocked").await.unwrap();
    if client.lock("force-unlocked").force_unlock().await.is_ok() {
        lost("force-unlocked", guard, Loss::ForceUnlocked).await;
    }
}

/// A connection that breaks and is replaced at once, and an outage that lasts longer than a lock. Another lock is released meanwhile,
/// which is no loss.
async fn outages(client: &Client, proxy: &Proxy) {
    let guard = client.lock("kept").acquire().await.unwrap();
    proxy.cut(Which::Command);
    logged("connected again", 1).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();

    let released = client.lock("released").acquire().await.unwrap();
    let guard = client.lock("unreachable").acquire().await.unwrap();
    proxy.refuse();
    proxy.cut(Which::All);
    logged("the server cannot be reached", 2).await;
    assert!(released.is_held());
    drop(released);
    lost("unreachable", guard, Loss::Unreachable).await;
    proxy.accept();
    logged("connected again", 2).await;
}
