//! How many connections wait, and what becomes of one whose waiters are gone.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testkit::server::Mysql;
use leasehold_testkit::tally::Tally;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{PATIENCE, client, holder, until, until_waiting, waiting};

#[tokio::test]
async fn own_720_a_thousand_waiters_for_one_name_have_two_connections() {
    let server = Mysql::start();
    let mut session = server.session();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "1");
    let client = client(&server).await;
    let tally = Arc::new(Tally::default());
    let mut waiters = JoinSet::new();
    for _ in 0..1000 {
        let (lock, tally) = (client.lock("n"), Arc::clone(&tally));
        waiters.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let count = tally.count();
            if count < 20 {
                tally.add().await;
            }
            guard.release().await.unwrap();
        });
    }
    until_waiting(&server, 1).await;
    assert_eq!(server.connections().len(), 2);
    assert_eq!(session.sql("SELECT RELEASE_LOCK('n')"), "1");
    timeout(PATIENCE, waiters.join_all()).await.unwrap();
    assert_eq!(tally.count(), 20);
    assert!(server.connections().len() <= 2, "{:?}", server.connections());
}

#[tokio::test]
async fn own_721_waiters_for_any_number_of_names_have_at_most_seventeen_connections() {
    let server = Mysql::start();
    let (holding, waits) = (client(&server).await, client(&server).await);
    let names: Vec<_> = (0..100).map(|number| format!("n{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(holding.lock(name).acquire().await.unwrap());
    }
    let mut waiters = JoinSet::new();
    for lock in names.iter().map(|name| waits.lock(name)) {
        waiters.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    until_waiting(&server, 16).await;
    sleep(Duration::from_millis(300)).await;
    // One of the client that holds them.
    assert_eq!(server.connections().len(), 18);
    for guard in guards {
        guard.release().await.unwrap();
    }
    timeout(PATIENCE, waiters.join_all()).await.unwrap();
}

#[tokio::test]
async fn own_722_a_waiter_that_gives_up_leaves_the_queue_of_the_server() {
    let server = Mysql::start();
    let mut session = server.session();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "1");
    let client = client(&server).await;
    for _ in 0..3 {
        let lock = client.lock("n");
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        until_waiting(&server, 1).await;
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        until("the lane ends", || server.connections().len() == 1).await;
    }
    assert_eq!(session.sql("SELECT RELEASE_LOCK('n')"), "1");
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "1");
}

/// The grant may have come first: it is released, or goes to the next waiter of the client.
#[tokio::test]
async fn own_723_a_lock_that_is_granted_to_a_waiter_as_it_gives_up_is_not_kept() {
    let server = Mysql::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let tally = Arc::new(Tally::default());
    for turn in 0..30 {
        let guard = one.lock("n").acquire().await.unwrap();
        let lock = other.lock("n");
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().wait(Duration::from_millis(100 + turn)).await.map(drop) }
        });
        let next = (turn % 2 == 0).then(|| {
            let tally = Arc::clone(&tally);
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                tally.add().await;
                guard.release().await.unwrap();
            })
        });
        sleep(Duration::from_millis(100)).await;
        guard.release().await.unwrap();
        let _ = timeout(PATIENCE, waiter).await.unwrap().unwrap();
        if let Some(next) = next {
            timeout(PATIENCE, next).await.unwrap().unwrap();
        }
        timeout(PATIENCE, one.lock("n").acquire()).await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(tally.count(), 15);
}

#[tokio::test]
async fn own_724_a_lock_that_is_granted_to_a_waiter_that_is_not_polled_is_given_up() {
    let server = Mysql::start();
    let mut session = server.session();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "1");
    let client = client(&server).await;
    let lock = client.lock("n");
    let mut waiter = Box::pin(async { lock.acquire().await });
    assert!(timeout(Duration::from_millis(300), &mut waiter).await.is_err());
    assert_eq!(waiting(&server).len(), 1);
    assert_eq!(session.sql("SELECT RELEASE_LOCK('n')"), "1");
    // The waiter exists, and its future is not polled.
    until("the lane has it", || holder(&server, "n").is_some()).await;
    until("the lane gives it up", || holder(&server, "n").is_none()).await;
    timeout(PATIENCE, waiter).await.unwrap().unwrap().release().await.unwrap();
}
