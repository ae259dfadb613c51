//! An outage is not contention, and a step without a reply is never taken for one that succeeded.

use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{
    AcquireError, Client, ConnectError, ExtendError, Loss, QueryError, ReleaseError, ServerError,
};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// The time in which a reply times out, the connection is replaced and operations in flight are rolled back.
const RECOVERS: Duration = Duration::from_secs(3);

/// A simulated server and a client of it.
async fn start() -> (Simulation, Client) {
    let simulation = Simulation::new();
    let client = Client::connect(simulation.url()).await.unwrap();
    (simulation, client)
}

#[tokio::test(start_paused = true)]
async fn a_try_a_query_and_a_first_connection_in_an_outage_fail_at_once() {
    let (simulation, client) = start().await;
    simulation.outage();
    let start = Instant::now();
    let lock = client.lock("a");
    for outcome in [lock.try_acquire().await, lock.try_acquire().lease(SECOND).await] {
        assert!(outcome.unwrap_err().is_unavailable());
    }
    assert!(lock.acquire().wait(Duration::ZERO).await.unwrap_err().is_unavailable());
    assert!(matches!(
        lock.is_locked().await,
        Err(QueryError::Server { cause: ServerError::Unavailable(_), .. })
    ));
    assert!(matches!(Client::connect(simulation.url()).await, Err(ConnectError::Server { .. })));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_an_outage_is_unavailable_and_a_wait_that_ends_later_a_time_out() {
    let (simulation, client) = start().await;
    let lock = client.lock("a");
    let _other = simulation.take_over("a");
    for (recovers, unavailable) in [(false, true), (true, false)] {
        let start = Instant::now();
        let waiter = tokio::spawn(lock.acquire().wait(SECOND * 70).into_future());
        sleep(SECOND * 45).await;
        assert_eq!(simulation.waiters("a"), 1);
        simulation.outage();
        sleep(SECOND * 15).await;
        if recovers {
            simulation.clear();
        }
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!((error.is_unavailable(), error.is_contended()), (unavailable, !unavailable), "{error}");
        assert_eq!(start.elapsed(), SECOND * 70);
        assert_eq!(simulation.waiters("a"), 0);
        simulation.clear();
        sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_arrive_within_the_wait_is_an_outage() {
    let (simulation, client) = start().await;
    simulation.latency(SECOND * 5);
    let start = Instant::now();
    let error = client.lock("a").acquire().wait(SECOND).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(start.elapsed(), SECOND);
    sleep(SECOND * 5).await;
    assert_eq!(simulation.names(), 1, "the attempt has been carried out");
    sleep(SECOND * 5).await;
    assert_eq!(simulation.names(), 0, "and undone");
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_reply_arrives_after_the_lease_is_an_error_and_leaves_no_lock() {
    let (simulation, client) = start().await;
    simulation.latency(SECOND * 5);
    let error = client.lock("a").acquire().lease(SECOND).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    sleep(SECOND * 10).await;
    assert_eq!(simulation.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final_and_neither_contention_nor_an_outage() {
    let (simulation, client) = start().await;
    let lock = client.lock("a");
    let holder = lock.acquire().await.unwrap();
    let other = Client::connect(simulation.url()).await.unwrap().lock("a");
    let waiter = tokio::spawn(other.acquire().into_future());
    sleep(SECOND).await;
    simulation.deny();
    for error in [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()] {
        assert!(matches!(error, AcquireError::Server { cause: ServerError::Denied(_), .. }), "{error}");
        assert!(!error.is_transient());
    }
    assert!(matches!(lock.is_locked().await, Err(QueryError::Server { cause: ServerError::Denied(_), .. })));
    assert!(matches!(
        holder.release().await,
        Err(ReleaseError::Unknown { cause: ServerError::Denied(_), .. })
    ));
    let begun = Instant::now();
    assert!(matches!(waiter.await.unwrap(), Err(AcquireError::Server { cause: ServerError::Denied(_), .. })));
    assert!(begun.elapsed() <= SECOND * 30, "when the lease that it saw is over: {:?}", begun.elapsed());
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!((simulation.waiters("a"), simulation.names()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_reply_is_reported_as_unknown_and_is_carried_out() {
    let (simulation, client) = start().await;
    let guard = client.lock("a").acquire().await.unwrap();
    let lost = guard.lost();
    simulation.lose_reply();
    assert!(matches!(guard.release().await, Err(ReleaseError::Unknown { .. })));
    assert_eq!(simulation.names(), 0);
    assert!(timeout(SECOND * 60, lost).await.is_err(), "a release is not a loss");
}

#[tokio::test(start_paused = true)]
async fn an_extension_without_a_reply_leaves_the_deadline_of_the_guard_unchanged() {
    let (simulation, client) = start().await;
    let guard = client.lock("a").acquire().lease(SECOND * 10).await.unwrap();
    let (before, begun) = (guard.remaining(), Instant::now());
    simulation.lose_reply();
    assert!(matches!(guard.extend(SECOND * 100).await, Err(ExtendError::Server { .. })));
    assert_eq!(guard.remaining() + begun.elapsed(), before, "only the reported lease is trusted");
    sleep(SECOND).await;
    assert!(guard.is_held() && simulation.lose_hold("a"));
    assert!(matches!(guard.extend(SECOND * 10).await, Err(ExtendError::NotHeld { loss: Loss::Gone, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_guard_reports_its_hold_correctly_after_a_re_entry_without_a_reply() {
    for lost in [true, false] {
        let (simulation, client) = start().await;
        let lock = client.lock("a");
        let guard = lock.acquire().await.unwrap();
        let again = lock.try_acquire().as_owner(guard.owner()).max_hold(SECOND * 10);
        if lost {
            simulation.lose_reply();
            assert!(again.await.unwrap_err().is_unavailable());
        } else {
            simulation.latency(SECOND / 10);
            assert!(timeout(SECOND / 100, again.into_future()).await.is_err());
        }
        simulation.clear();
        sleep(RECOVERS).await;
        assert!(guard.is_held() && lock.is_locked().await.unwrap(), "{lost}");
        assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1, "{lost}");
        sleep(SECOND * 60).await;
        assert_eq!(guard.is_held(), lock.is_locked().await.unwrap(), "{lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_partial_release_without_a_reply_does_not_revert_an_extension() {
    let (simulation, client) = start().await;
    let lock = client.lock("a");
    let outer = lock.acquire().lease(SECOND * 10).await.unwrap();
    let inner = outer.reenter().await.unwrap();
    outer.extend(SECOND * 60).await.unwrap();
    simulation.lose_reply();
    assert!(matches!(inner.release().await, Err(ReleaseError::Unknown { .. })));
    sleep(SECOND * 30).await;
    assert!(outer.is_held() && lock.is_locked().await.unwrap());
    assert_eq!(lock.hold_count(outer.owner()).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_longer_of_two_concurrent_extensions_stays() {
    let (simulation, client) = start().await;
    let guard = client.lock("a").acquire().lease(SECOND).await.unwrap();
    simulation.latency(SECOND / 10);
    let (short, long) = (tokio::spawn(guard.extend(SECOND * 2)), tokio::spawn(guard.extend(SECOND * 60)));
    short.await.unwrap().unwrap();
    long.await.unwrap().unwrap();
    assert!(guard.remaining() > SECOND * 50, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn an_extension_whose_reply_is_too_late_leaves_no_lock_behind() {
    let (simulation, client) = start().await;
    let guard = client.lock("a").acquire().lease(SECOND).await.unwrap();
    simulation.latency(SECOND * 3 / 5);
    assert!(matches!(
        guard.extend(SECOND * 3600).await,
        Err(ExtendError::NotHeld { loss: Loss::Expired, .. })
    ));
    assert_eq!(simulation.names(), 1, "the server has carried it out");
    simulation.clear();
    sleep(SECOND).await;
    assert_eq!(simulation.names(), 0);
}

#[tokio::test]
async fn lk_20_a_stopped_server_is_an_outage_and_no_caller_hangs() {
    let mut server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).await.unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    server.kill();
    let lock = client.lock("a");
    let error = lock.acquire().wait(SECOND).lease(SECOND * 10).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(lock.try_acquire().await.unwrap_err().is_unavailable());
    assert!(matches!(
        lock.is_locked().await,
        Err(QueryError::Server { cause: ServerError::Unavailable(_), .. })
    ));
    assert!(matches!(Client::connect(server.url()).await, Err(ConnectError::Server { .. })));
}
