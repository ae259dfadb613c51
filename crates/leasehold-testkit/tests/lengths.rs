//! Every duration that a caller can give may have any length that the type allows. Nothing panics, not even in a drop or on
//! a thread of the library: a duration that the clock cannot count is unlimited, or refused.
//!
//! A binary of its own, because it watches all panics of the process.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::future::{Future, IntoFuture};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use leasehold::{
    AcquireError, BackOff, ChangeError, Client, ConnectError, ConnectOptions, ExtendError, Guard,
    InvalidRequestError, MultiLock, QuorumLock,
};
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

const NANOSECOND: Duration = Duration::from_nanos(1);
const MOMENT: Duration = Duration::from_millis(30);

/// None of them can be added to the time.
const LONG: [Duration; 2] = [Duration::MAX, Duration::from_secs(i64::MAX.unsigned_abs())];

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            before(panic);
        }));
    });
}

fn nothing_panicked() {
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "{panics:?}");
}

async fn soon<T>(what: &str, work: impl IntoFuture<Output = T>) -> T {
    timeout(Duration::from_secs(10), work).await.unwrap_or_else(|_| panic!("not within 10 s: {what}"))
}

/// A waiting operation.
async fn waits<T: Send + 'static>(
    what: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let waiter = tokio::spawn(work);
    sleep(MOMENT).await;
    assert!(!waiter.is_finished(), "does not wait: {what}");
    waiter
}

fn too_long<T>(acquired: Result<T, AcquireError>) {
    let error = acquired.err();
    assert!(
        matches!(error, Some(AcquireError::Invalid { cause: InvalidRequestError::TooLong { .. }, .. })),
        "{error:?}"
    );
}

/// Waits for a held lock, by a task and by a thread, until it is free.
async fn wait_by_all_means(name: &str, client: &Client, guard: Guard, wait: Duration) {
    let lock = client.lock(name);
    // Each releases at once, whichever of them is the first.
    let (asked, blocked) = (lock.acquire().wait(wait), lock.acquire().wait(wait));
    let task = waits(name, async move { asked.await.map(drop) }).await;
    let thread = spawn_blocking(move || blocked.block().map(drop));
    sleep(MOMENT).await;
    guard.release().await.unwrap();
    soon("the task gets it", task).await.unwrap().unwrap();
    soon("the thread gets it", thread).await.unwrap().unwrap();
}

async fn locks(client: &Client, long: Duration) {
    let lock = client.lock("lock");
    let guard = soon("a free lock", lock.acquire().wait(long)).await.unwrap();
    too_long(lock.acquire().lease(long).await);
    too_long(lock.acquire().max_hold(long).await);
    too_long(lock.try_acquire().lease(long).await);
    let refused = guard.extend(long).await;
    assert!(
        matches!(refused, Err(ExtendError::Invalid { cause: InvalidRequestError::TooLong { .. }, .. })),
        "{refused:?}"
    );
    assert!(lock.acquire().wait(NANOSECOND).await.unwrap_err().is_contended());
    wait_by_all_means("lock", client, guard, long).await;

    let fair = client.fair_lock("fair");
    let guard = fair.acquire().wait(long).await.unwrap();
    let waiter = waits("fair", fair.acquire().wait(long).into_future()).await;
    guard.release().await.unwrap();
    drop(soon("the fair lock", waiter).await.unwrap().unwrap());

    let rw = client.rw_lock("rw");
    let reads = rw.read().acquire().wait(long).await.unwrap();
    let waiter = waits("a writer", rw.write().acquire().wait(long).into_future()).await;
    reads.release().await.unwrap();
    drop(soon("the write lock", waiter).await.unwrap().unwrap());
    too_long(rw.read().acquire().lease(long).await);

    let group = client.group_lock("group", ["a", "b"]);
    too_long(group.acquire().lease(long).await);
    drop(soon("the group", group.acquire().wait(long)).await.unwrap());
}

/// Endless pauses are ended by the wait limit, and by a shutdown.
async fn spins(connect: &ConnectOptions, long: Duration) {
    let client = connect.clone().await.unwrap();
    let guard = client.lock("spin").acquire().await.unwrap();
    let pauses = [
        BackOff::constant(long),
        BackOff::exponential(long, long),
        BackOff::exponential(Duration::from_millis(1), long).factor(u32::MAX),
    ];
    for back_off in pauses {
        assert!([0, 1, u32::MAX].map(|failures| back_off.pause(failures)) > [Duration::ZERO; 3]);
        let lock = client.spin_lock("spin").back_off(back_off);
        assert!(soon("its wait ends", lock.acquire().wait(MOMENT)).await.unwrap_err().is_contended());
        let blocked = lock.acquire().wait(MOMENT);
        let blocked = spawn_blocking(move || blocked.block());
        assert!(soon("its wait ends", blocked).await.unwrap().unwrap_err().is_contended());
    }
    assert!(BackOff::constant(NANOSECOND).pause(0) >= Duration::from_millis(1));
    let lock = client.spin_lock("spin").back_off(BackOff::constant(long));
    let task = waits("a spinning task", lock.acquire().into_future()).await;
    let thread = spawn_blocking(move || lock.acquire().block());
    sleep(MOMENT).await;
    let shutdown = waits("a shutdown", client.shutdown(long)).await;
    for spinning in [task, thread] {
        let ended = soon("it is notified of the shutdown", spinning).await.unwrap();
        assert!(
            matches!(ended, Err(AcquireError::Invalid { cause: InvalidRequestError::ShutDown, .. })),
            "{ended:?}"
        );
    }
    guard.release().await.unwrap();
    assert_eq!(soon("the shutdown ends with the last guard", shutdown).await.unwrap().left_to_expire, 0);
}

async fn several(client: &Client, long: Duration) {
    let plain = client.multi_lock(["multi-a", "multi-b"]);
    let kinds = MultiLock::new([client.lock("multi-a"), client.spin_lock("multi-b")]);
    for multi in [plain, kinds] {
        too_long(multi.acquire().lease(long).await);
        too_long(multi.acquire().max_hold(long).await);
        let guard = multi.acquire().wait(long).await.unwrap();
        assert!(matches!(guard.extend(long).await, Err(ExtendError::Invalid { .. })));
        let waiter = waits("for several", multi.acquire().wait(long).into_future()).await;
        guard.release().await.unwrap();
        drop(soon("several locks", waiter).await.unwrap().unwrap());
    }

    let quorum = QuorumLock::new([client], "quorum").server_timeout(long);
    too_long(quorum.acquire().lease(long).await);
    let guard = soon("a majority", quorum.acquire().wait(long)).await.unwrap();
    assert!(matches!(guard.extend(long).await, Err(ExtendError::Invalid { .. })));
    let waiter = waits("for a majority", quorum.acquire().wait(long).into_future()).await;
    guard.release().await.unwrap();
    drop(soon("a majority", waiter).await.unwrap().unwrap());
    let young = soon("a reply", quorum.clone().rejoin_delay(long).try_acquire()).await;
    assert!(young.is_ok() || young.is_err_and(|error| error.is_unavailable()));
    drop(soon("a reply", quorum.server_timeout(NANOSECOND).try_acquire()).await);
}

async fn counters(client: &Client, long: Duration) {
    let semaphore = client.semaphore("semaphore");
    let refused = semaphore.try_set_permits(1).ttl(long).await;
    assert!(
        matches!(refused, Err(ChangeError::Invalid { cause: InvalidRequestError::TooLong { .. }, .. })),
        "{refused:?}"
    );
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.acquire(1).wait(long).await.unwrap();
    let waiter = waits("for a permit", semaphore.acquire(1).wait(long).into_future()).await;
    permit.release().await.unwrap();
    soon("a permit", waiter).await.unwrap().unwrap().release().await.unwrap();
    semaphore.delete().await.unwrap();

    let leased = client.leased_semaphore("leased");
    leased.try_set_permits(1).await.unwrap();
    too_long(leased.acquire(1).lease(long).await);
    let permit = leased.acquire(1).wait(long).await.unwrap();
    let refused = leased.update_lease(permit.ids()[0], long).await;
    assert!(
        matches!(refused, Err(ChangeError::Invalid { cause: InvalidRequestError::TooLong { .. }, .. })),
        "{refused:?}"
    );
    let waiter = waits("for a leased permit", leased.acquire(1).wait(long).into_future()).await;
    permit.release().await.unwrap();
    soon("a leased permit", waiter).await.unwrap().unwrap().release().await.unwrap();
    let lasting = leased.acquire(1).permanent().wait(long).await.unwrap();
    leased.release(lasting).await.unwrap();
    leased.delete().await.unwrap();

    let latch = client.latch("latch");
    latch.try_set_count(1).await.unwrap();
    assert!(latch.opened().wait(NANOSECOND).await.is_err());
    let waiter = waits("for a latch", latch.opened().wait(long).into_future()).await;
    latch.count_down().await.unwrap();
    soon("the latch", waiter).await.unwrap().unwrap();
}

async fn every_length(connect: ConnectOptions) {
    watch_panics();
    for long in LONG {
        let refused = connect.clone().watchdog(long).await;
        assert!(
            matches!(refused, Err(ConnectError::Invalid(InvalidRequestError::TooLong { .. }))),
            "{refused:?}"
        );
        let connect =
            connect.clone().outage_limit(long).connect_timeout(long).response_timeout(long).linger(long);
        let client = connect.clone().await.unwrap();
        locks(&client, long).await;
        several(&client, long).await;
        counters(&client, long).await;
        spins(&connect, long).await;
        // With a release that is still in flight.
        drop(client.lock("last").acquire().await.unwrap());
        let begun = Instant::now();
        drop(client);
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing is left to wait for");
    }
    let client = connect.clone().outage_limit(NANOSECOND).linger(NANOSECOND).await.unwrap();
    drop(client.lock("short").acquire().await.unwrap());
    soon("no grace", client.shutdown(NANOSECOND)).await;
    drop(client);
    for short in [connect.clone().connect_timeout(NANOSECOND), connect.clone().response_timeout(NANOSECOND)] {
        if let Ok(client) = soon("a connection or none", short).await {
            drop(soon("a reply or a time-out", client.lock("short").try_acquire()).await);
        }
    }
    nothing_panicked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_duration_works_or_is_refused_without_a_panic_in_memory() {
    every_length(Client::connect("memory:")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_duration_works_or_is_refused_without_a_panic_on_a_server() {
    let server = Server::start(Flavour::Redis);
    every_length(Client::connect(server.url())).await;
}
