//! A server that stops, and one that is started again.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client, until};

/// How long waiters may take after the server is back.
pub(crate) const BACK: Duration = Duration::from_secs(1);

async fn with_watchdog(server: &Etcd, seconds: u64) -> Client {
    connect(server.url(), seconds).await
}

pub(crate) async fn connect(url: String, seconds: u64) -> Client {
    Client::connect(url)
        .watchdog(Duration::from_secs(seconds))
        .response_timeout(Duration::from_millis(500))
        .outage_limit(Duration::from_secs(60))
        .await
        .expect("the server takes clients")
}

#[tokio::test]
async fn own_510_a_guard_is_lost_before_another_client_can_hold_while_the_server_is_stopped() {
    let server = Etcd::start();
    let (one, other) = (with_watchdog(&server, 2).await, with_watchdog(&server, 2).await);
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
    sleep(Duration::from_millis(300)).await;
    let deadline = Instant::now() + guard.remaining();
    server.pause();
    sleep(Duration::from_secs(3)).await;
    let lost = timeout(PATIENCE, lost).await.unwrap().unwrap();
    assert!(!guard.is_held() && lost < deadline + Duration::from_millis(300), "{:?}", lost - deadline);
    assert!(!waiter.is_finished());
    server.resume();
    let (acquired, next) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(acquired > lost, "both held the lock");
    next.release().await.unwrap();
}

#[tokio::test]
async fn own_511_waiters_run_within_a_second_after_a_stopped_server_is_back() {
    let server = Etcd::start();
    let (one, other) = (with_watchdog(&server, 30).await, with_watchdog(&server, 30).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let waiter =
        tokio::spawn(async move { other.lock("n").acquire().wait(Duration::from_secs(60)).await.map(drop) });
    sleep(Duration::from_millis(300)).await;
    server.pause();
    // It has no reply, and is carried out when the server is back.
    drop(guard);
    sleep(Duration::from_secs(3)).await;
    assert!(!one.status().connected && !waiter.is_finished());
    let begun = Instant::now();
    server.resume();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(begun.elapsed() < BACK, "{:?}", begun.elapsed());
    let third = client(&server).await;
    timeout(PATIENCE, third.lock("n").acquire()).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn own_512_a_hold_outlasts_a_restart_of_the_server_and_its_waiters_go_on() {
    let mut server = Etcd::start();
    let (one, other) = (with_watchdog(&server, 30).await, with_watchdog(&server, 30).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let waiter =
        tokio::spawn(async move { other.lock("n").acquire().wait(Duration::from_secs(60)).await.map(drop) });
    sleep(Duration::from_millis(300)).await;
    let keys = server.keys("n/");
    assert_eq!(keys.len(), 2);
    server.restart();
    assert!(guard.is_held());
    // It is carried out as soon as there is a connection.
    drop(guard);
    let begun = Instant::now();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(begun.elapsed() < BACK, "{:?}", begun.elapsed());
}

/// The members that are left choose another leader, and the clients of the one that is lost go on with those.
#[tokio::test]
async fn own_514_holds_and_waiters_outlast_the_loss_of_the_leader() {
    let mut members = Etcd::cluster::<3>();
    let leader = members.iter().position(Etcd::is_leader).expect("there is a leader");
    let hosts: Vec<_> = members.iter().map(|member| format!("127.0.0.1:{}", member.port())).collect();
    // The leader is the first member of one client, and the last one of the other.
    let [first, last] = [0, 1].map(|after| {
        let mut hosts = hosts.clone();
        hosts.rotate_left((leader + after) % 3);
        format!("etcd://{}", hosts.join(","))
    });
    let (one, other) = (connect(first, 10).await, connect(last, 10).await);
    let guard = one.lock("n").acquire().fenced().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().wait(Duration::from_secs(60)).fenced().await }
    });
    sleep(Duration::from_millis(300)).await;
    members[leader].kill();
    // Longer than the lease: it was renewed by another member.
    sleep(Duration::from_secs(11)).await;
    assert!(guard.is_held() && !waiter.is_finished());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// A watch that began at a revision would end with that; these begin with the present.
#[tokio::test]
async fn own_658_waiters_outlast_a_compaction_and_a_defragmentation() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().await }
    });
    until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
    for number in 0..10 {
        let _ = server.ctl(&["put", "any", &number.to_string()]);
    }
    server.compact();
    let _ = server.ctl(&["defrag"]);
    assert_eq!(server.keys("n/").len(), 2);
    assert!(guard.is_held() && !waiter.is_finished());
    let since = Stopwatch::start();
    guard.release().await.unwrap();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    let took = since.elapsed();
    assert!(took < BACK, "{took:?}");
}
