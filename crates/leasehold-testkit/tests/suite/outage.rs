//! An outage is not contention.

use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectError, ExtendError, Failure, Loss, QueryError, ReleaseError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_first_attempt_fails_at_once() {
    let (client, faults) = leasehold::test::memory();
    faults.outage();
    let start = Instant::now();
    let lock = client.lock("a");
    for outcome in
        [lock.acquire().await, lock.acquire().wait(SECOND).await, lock.acquire().lease(SECOND).await]
    {
        assert!(outcome.unwrap_err().is_unavailable());
    }
    assert!(lock.try_acquire().await.unwrap_err().is_unavailable());
    assert!(matches!(lock.is_locked().await, Err(QueryError::Failure(Failure::Unavailable(_)))));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_rides_through_an_outage_that_ends() {
    let (client, faults) = leasehold::test::memory();
    let lock = client.lock("a");
    let holder = lock.acquire().lease(SECOND).await.unwrap();
    let waiter = tokio::spawn(lock.acquire().into_future());
    sleep(SECOND / 2).await;
    faults.outage();
    sleep(SECOND * 20).await;
    faults.clear();
    let ended = Instant::now();
    assert!(waiter.await.unwrap().unwrap().is_held());
    assert!(ended.elapsed() <= SECOND, "at most one pause later");
    assert!(!holder.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_an_outage_is_unavailable_and_one_that_ends_after_it_is_a_time_out() {
    let (client, faults) = leasehold::test::memory();
    let lock = client.lock("a");
    let _holder = lock.acquire().await.unwrap();
    for (recovers, unavailable) in [(false, true), (true, false)] {
        let start = Instant::now();
        let waiter = tokio::spawn(lock.acquire().wait(SECOND * 70).into_future());
        sleep(SECOND * 20).await;
        faults.outage();
        sleep(SECOND * 15).await;
        if recovers {
            faults.clear();
        }
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!((error.is_unavailable(), error.is_contended()), (unavailable, !unavailable), "{error}");
        assert_eq!(start.elapsed(), SECOND * 70);
        faults.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_a_limit_of_its_own_has_the_clients() {
    let (_client, faults) = leasehold::test::memory();
    let client = Client::connect(faults.url()).outage_limit(SECOND * 5).await.unwrap();
    let lock = client.lock("a");
    let _holder = lock.acquire().lease(SECOND).await.unwrap();
    let waiter = tokio::spawn(lock.acquire().into_future());
    sleep(SECOND / 2).await;
    faults.outage();
    let begun = Instant::now();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(error.is_unavailable() && error.is_transient(), "{error}");
    // The outage is noticed at once, and ridden for five seconds.
    assert_eq!(begun.elapsed().as_millis(), 5000);
    assert_eq!(faults.waiters("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_within_the_wait_is_an_outage() {
    let (client, faults) = leasehold::test::memory();
    faults.delay(SECOND * 5);
    let start = Instant::now();
    let error = client.lock("a").acquire().wait(SECOND).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(start.elapsed(), SECOND);
    assert_eq!(faults.names(), 0, "the attempt that was carried out is undone");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_lease_is_not_a_lock() {
    let (client, faults) = leasehold::test::memory();
    faults.delay(SECOND * 5);
    let error = client.lock("a").acquire().lease(SECOND).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(faults.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final_and_neither_contention_nor_an_outage() {
    let (client, faults) = leasehold::test::memory();
    let lock = client.lock("a");
    let holder = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(lock.acquire().into_future());
    tokio::task::yield_now().await;
    faults.deny();
    for error in [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()] {
        assert!(matches!(error, AcquireError::Failure(Failure::Denied(_))), "{error}");
        assert!(!error.is_transient());
    }
    // The release is given to the engine, which frees the lock; the waiter is woken and refused.
    assert!(matches!(holder.release().await, Err(ReleaseError::Unknown(Failure::Denied(_)))));
    assert!(matches!(waiter.await.unwrap(), Err(AcquireError::Failure(Failure::Denied(_)))));
    assert_eq!(faults.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_is_unknown_and_done() {
    let (client, faults) = leasehold::test::memory();
    let guard = client.lock("a").acquire().await.unwrap();
    let lost = guard.lost();
    faults.lose_reply();
    assert!(matches!(guard.release().await, Err(ReleaseError::Unknown(_))));
    assert_eq!(faults.names(), 0);
    assert!(tokio::time::timeout(SECOND * 60, lost).await.is_err(), "a release is not a loss");
}

#[tokio::test(start_paused = true)]
async fn an_extension_without_an_answer_changes_nothing_for_the_worse() {
    let (client, faults) = leasehold::test::memory();
    let guard = client.lock("a").acquire().lease(SECOND).await.unwrap();
    let before = guard.remaining();
    faults.lose_reply();
    assert!(matches!(guard.extend(SECOND * 10).await, Err(ExtendError::Failure(_))));
    assert_eq!(guard.remaining(), before, "only what was told is trusted");
    faults.lose_hold("a");
    assert!(matches!(guard.extend(SECOND * 10).await, Err(ExtendError::NotHeld(Loss::Gone))));
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_re_entry_never_makes_a_guard_lie() {
    for lost in [true, false] {
        let (client, faults) = leasehold::test::memory();
        let lock = client.lock("a");
        let guard = lock.acquire().await.unwrap();
        let again = lock.acquire().as_owner(&guard.owner()).max_hold(SECOND);
        if lost {
            faults.lose_reply();
            assert!(again.await.unwrap_err().is_unavailable());
        } else {
            faults.delay(SECOND / 10);
            assert!(tokio::time::timeout(SECOND / 100, again.into_future()).await.is_err());
        }
        faults.clear();
        assert!(guard.is_held() && lock.is_locked().await.unwrap());
        sleep(SECOND * 2).await;
        assert!(!guard.is_held(), "the engine may have set the limit");
        assert!(!lock.is_locked().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_partial_release_takes_no_extension_back() {
    let (client, faults) = leasehold::test::memory();
    let lock = client.lock("a");
    let outer = lock.acquire().lease(SECOND).await.unwrap();
    let inner = outer.reenter().await.unwrap();
    outer.extend(SECOND * 60).await.unwrap();
    faults.lose_reply();
    assert!(matches!(inner.release().await, Err(ReleaseError::Unknown(_))));
    sleep(SECOND * 30).await;
    assert!(outer.is_held() && lock.is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn extensions_whose_answers_overlap_end_as_they_were_asked() {
    let (client, faults) = leasehold::test::memory();
    let guard = client.lock("a").acquire().lease(SECOND).await.unwrap();
    faults.delay(SECOND / 10);
    let (short, long) = (tokio::spawn(guard.extend(SECOND * 2)), tokio::spawn(guard.extend(SECOND * 60)));
    short.await.unwrap().unwrap();
    long.await.unwrap().unwrap();
    assert!(guard.remaining() > SECOND * 50, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_answered_too_late_leaves_no_lock_behind() {
    let (client, faults) = leasehold::test::memory();
    let lock = client.lock("a");
    let guard = lock.acquire().lease(SECOND).await.unwrap();
    faults.delay(SECOND * 2);
    assert!(matches!(guard.extend(SECOND * 3600).await, Err(ExtendError::NotHeld(Loss::Expired))));
    assert_eq!(faults.names(), 0);
}

#[tokio::test]
async fn a_server_that_has_stopped_is_an_outage_and_nobody_hangs() {
    let mut server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).await.unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    server.kill();
    let lock = client.lock("a");
    let error = lock.acquire().wait(SECOND).lease(SECOND * 10).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(lock.try_acquire().await.unwrap_err().is_unavailable());
    assert!(matches!(lock.is_locked().await, Err(QueryError::Failure(Failure::Unavailable(_)))));
    assert!(matches!(Client::connect(server.url()).await, Err(ConnectError::Failure(_))));
}
