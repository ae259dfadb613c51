//! Connections that the server or a person ends, and a server that stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Client, Guard, Loss};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::Mysql;
use leasehold_testkit::tally::Tally;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client, holder, until_waiting, waiting};

/// Sooner than any heartbeat of the usual watchdog time-out.
const SOON: Duration = Duration::from_secs(2);

async fn connect(url: String, seconds: u64) -> Client {
    Client::connect(url)
        .watchdog(Duration::from_secs(seconds))
        .response_timeout(Duration::from_millis(500))
        .outage_limit(Duration::from_secs(60))
        .await
        .expect("the server takes clients")
}

/// The server ends the connection that has a lock.
async fn kill_holder(server: &Mysql, guard: &Guard) {
    let lost = guard.lost();
    server.sql(&format!("KILL {}", holder(server, "n").expect("it is held")));
    assert_eq!(timeout(SOON, lost).await.expect("the guard is told"), Loss::Gone);
    assert!(!guard.is_held());
}

#[tokio::test]
async fn own_730_a_guard_is_told_at_once_that_its_connection_was_killed() {
    let server = Mysql::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for _ in 0..3 {
        let guard = timeout(PATIENCE, one.lock("n").acquire()).await.unwrap().unwrap();
        kill_holder(&server, &guard).await;
        other.lock("n").acquire().wait(SOON).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn own_731_a_guard_on_a_lane_is_told_at_once_and_other_locks_stay() {
    let server = Mysql::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let before = one.lock("n").acquire().await.unwrap();
    let stays = other.lock("other").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().await }
    });
    until_waiting(&server, 1).await;
    before.release().await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    kill_holder(&server, &guard).await;
    assert!(stays.is_held());
    one.lock("n").acquire().wait(SOON).await.unwrap().release().await.unwrap();
    stays.release().await.unwrap();
}

#[tokio::test]
async fn own_732_a_waiter_whose_lane_is_killed_or_interrupted_waits_on() {
    let server = Mysql::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().await }
    });
    for kill in ["KILL", "KILL QUERY", "KILL"] {
        until_waiting(&server, 1).await;
        server.sql(&format!("{kill} {}", waiting(&server)[0]));
        sleep(Duration::from_millis(100)).await;
        assert!(!waiter.is_finished() && guard.is_held());
    }
    guard.release().await.unwrap();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
}

/// An interrupted statement may have been carried out in part.
#[tokio::test]
async fn own_733_no_increment_is_lost_while_statements_are_interrupted() {
    const TURNS: u64 = 30;
    let server = Arc::new(Mysql::start());
    let (tally, over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    // Before the interruptions: a first connection that is interrupted is an error of the caller's.
    let clients = [client(&server).await, client(&server).await, client(&server).await];
    let interrupts = std::thread::spawn({
        let (server, over) = (Arc::clone(&server), Arc::clone(&over));
        move || {
            let mut session = server.session();
            let any = "SELECT IFNULL((SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app' \
                       ORDER BY RAND() LIMIT 1), 0)";
            while !over.load(Ordering::SeqCst) {
                let id = session.sql(any);
                // It may be gone by now.
                session.send(&format!("KILL QUERY {id}"));
                assert_eq!(session.sql("SELECT SLEEP(0.01)"), "0");
            }
        }
    });
    let mut turns = Vec::new();
    for client in clients {
        for _ in 0..2 {
            let (client, tally) = (client.clone(), Arc::clone(&tally));
            turns.push(tokio::spawn(async move {
                for _ in 0..TURNS {
                    let guard = client.lock("n").acquire().await.unwrap();
                    tally.add().await;
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    // A busy machine delays every turn; a waiter that hangs ends the increments.
    let is_over = || turns.iter().all(JoinHandle::is_finished);
    while !is_over() {
        let (seen, begun) = (tally.count(), Instant::now());
        while tally.count() == seen && !is_over() {
            assert!(
                begun.elapsed() < PATIENCE * 2,
                "no increment after {seen}: {:?}, {:?}",
                server.locks(),
                server.sql("SHOW FULL PROCESSLIST")
            );
            sleep(Duration::from_millis(10)).await;
        }
    }
    for turn in turns {
        turn.await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    interrupts.join().unwrap();
    assert_eq!(tally.count(), 6 * TURNS);
}

#[tokio::test]
async fn own_734_guards_are_told_of_a_restart_and_waiters_go_on() {
    let mut server = Mysql::start();
    let (one, other) = (connect(server.url(), 30).await, connect(server.url(), 30).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().wait(Duration::from_secs(60)).await }
    });
    until_waiting(&server, 1).await;
    let lost = guard.lost();
    server.kill();
    timeout(SOON, lost).await.unwrap();
    assert!(!guard.is_held() && !waiter.is_finished());
    server.restart();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    timeout(PATIENCE, one.lock("n").acquire()).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn own_735_a_guard_is_lost_before_another_client_can_hold_while_the_server_is_stopped() {
    let server = Mysql::start();
    let (one, other) = (connect(server.url(), 2).await, connect(server.url(), 2).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let lost = guard.lost();
    let lost = tokio::spawn(async move {
        lost.await;
        Instant::now()
    });
    let waiter = tokio::spawn(async move {
        let guard = other.lock("n").acquire().wait(Duration::from_secs(60)).await.unwrap();
        (Instant::now(), guard)
    });
    until_waiting(&server, 1).await;
    server.pause();
    let lost = timeout(PATIENCE, lost).await.unwrap().unwrap();
    assert!(!guard.is_held() && !waiter.is_finished());
    server.resume();
    let (acquired, next) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(acquired > lost, "both held the lock");
    next.release().await.unwrap();
}

/// The server hears nothing, and frees the lock by its own clock; the client hears nothing, and gives it up before.
#[tokio::test]
async fn own_736_a_guard_is_lost_before_the_server_frees_the_lock_of_a_silent_client() {
    let server = Mysql::start();
    let proxy = Proxy::start_opaque(server.port());
    let through = server.url().replace(&server.port().to_string(), &proxy.port().to_string());
    let (one, other) = (connect(through, 2).await, connect(server.url(), 2).await);
    for on_lane in [false, true] {
        let guard = if on_lane {
            let before = other.lock("n").acquire().await.unwrap();
            let waiter = tokio::spawn({
                let lock = one.lock("n");
                async move { lock.acquire().await }
            });
            until_waiting(&server, 1).await;
            before.release().await.unwrap();
            timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap()
        } else {
            timeout(PATIENCE, one.lock("n").acquire()).await.unwrap().unwrap()
        };
        let lost = guard.lost();
        let lost = tokio::spawn(async move { (lost.await, Instant::now()) });
        let begun = Instant::now();
        proxy.half_open(Which::All);
        let next = timeout(PATIENCE, other.lock("n").acquire()).await.unwrap().unwrap();
        let acquired = Instant::now();
        let (loss, lost) = timeout(PATIENCE, lost).await.unwrap().unwrap();
        assert_eq!(loss, Loss::Unreachable);
        assert!(lost < acquired, "the server has freed the lock {:?} before", lost - acquired);
        assert!(acquired - begun > Duration::from_secs(1), "it was freed by time");
        next.release().await.unwrap();
        proxy.cut(Which::All);
        proxy.heal();
    }
}

/// A server that takes no more connections still serves those that are there: waiters without a lane poll.
#[tokio::test]
async fn own_737_waiters_go_on_when_the_server_takes_no_more_connections() {
    let server = Mysql::with(&["max-connections=10"]);
    let mut session = server.session();
    assert_eq!(session.sql("SELECT GET_LOCK('n', 0)"), "1");
    let client = client(&server).await;
    let _full: Vec<_> = (0..9).map(|_| server.session()).collect();
    let others = session.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST");
    let waiter = tokio::spawn({
        let lock = client.lock("n");
        async move { lock.acquire().await }
    });
    sleep(Duration::from_millis(500)).await;
    assert!(!waiter.is_finished(), "{others}");
    assert_eq!(session.sql("SELECT RELEASE_LOCK('n')"), "1");
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
}
