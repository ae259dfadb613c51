//! Beside plain sessions that call `GET_LOCK` by themselves.

use std::sync::Arc;

use leasehold_testkit::server::Mysql;
use leasehold_testkit::tally::Tally;
use tokio::time::timeout;

use crate::{PATIENCE, client, until_waiting};

#[tokio::test]
async fn own_710_a_plain_session_and_this_library_exclude_each_other() {
    let server = Mysql::start();
    let lock = client(&server).await.lock("n");
    let mut session = server.session();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "0");
    guard.release().await.unwrap();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "1");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.holder().await.unwrap().is_some_and(|holder| holder.owner.is_none()));
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    until_waiting(&server, 1).await;
    assert_eq!(session.sql("SELECT RELEASE_LOCK('n')"), "1");
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "0");
    session.send("SELECT GET_LOCK('n', 20)");
    guard.release().await.unwrap();
    assert_eq!(session.row(), "1");
}

/// A plain session that waits is granted the lock in its turn, and so are the waiters of clients.
#[tokio::test]
async fn own_711_no_increment_is_lost_beside_loops_of_plain_sessions() {
    const TURNS: u64 = 100;
    let server = Arc::new(Mysql::start());
    let tally = Arc::new(Tally::default());
    let mut turns = Vec::new();
    for _ in 0..2 {
        let (server, tally) = (Arc::clone(&server), Arc::clone(&tally));
        turns.push(tokio::task::spawn_blocking(move || {
            let mut session = server.session();
            for _ in 0..TURNS {
                assert_eq!(session.sql("SELECT GET_LOCK('n', 60)"), "1");
                tally.add_on_thread();
                assert_eq!(session.sql("SELECT RELEASE_LOCK('n')"), "1");
            }
        }));
    }
    for _ in 0..2 {
        let lock = client(&server).await.lock("n");
        // Two tasks of each client: to the server they are one.
        for lock in [lock.clone(), lock] {
            let tally = Arc::clone(&tally);
            turns.push(tokio::spawn(async move {
                for _ in 0..TURNS {
                    let guard = lock.acquire().await.unwrap();
                    tally.add().await;
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for turn in turns {
        timeout(PATIENCE * 6, turn).await.unwrap().unwrap();
    }
    assert_eq!(tally.count(), 6 * TURNS);
}
