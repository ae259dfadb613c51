//! Semaphores and latches: numbers on the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client, until};

/// The value of a key; empty if there is none.
pub(crate) fn value(server: &Etcd, key: &str) -> String {
    server.ctl(&["get", key, "--print-value-only"]).trim_end_matches('\n').to_owned()
}

/// A client whose requests are sent again soon.
pub(crate) async fn impatient(server: &Etcd) -> Client {
    Client::connect(server.url())
        .watchdog(Duration::from_secs(10))
        .response_timeout(Duration::from_millis(500))
        .outage_limit(Duration::from_secs(60))
        .await
        .expect("the server takes clients")
}

/// Waits for all tasks.
pub(crate) async fn all(mut tasks: JoinSet<()>) {
    while let Some(done) = timeout(PATIENCE * 3, tasks.join_next()).await.expect("they end") {
        done.unwrap();
    }
}

#[tokio::test]
async fn own_580_numbers_have_keys_of_their_own_below_a_common_prefix() {
    let server = Etcd::start();
    let client = client(&server).await;
    let (semaphore, latch) = (client.semaphore("a/b"), client.latch("a/b"));
    assert!(semaphore.try_set_permits(3).await.unwrap() && latch.try_set_count(2).await.unwrap());
    let held = semaphore.acquire(2).await.unwrap();
    let keys = server.keys("_leasehold/semaphore/");
    let [free_key, held_key] = keys.try_into().unwrap();
    assert_eq!(
        (free_key.as_str(), value(&server, &free_key)),
        ("_leasehold/semaphore/a%2Fb/free", "1".into())
    );
    assert!(held_key.starts_with("_leasehold/semaphore/a%2Fb/held/"), "{held_key}");
    assert_eq!(value(&server, &held_key), "2");
    assert_eq!(server.keys("_leasehold/latch/"), ["_leasehold/latch/a%2Fb/count"]);
    assert_eq!(value(&server, "_leasehold/latch/a%2Fb/count"), "2");
    // None of them keeps a lock out, whatever its name is.
    for name in ["a", "a/b"] {
        client.lock(name).try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
    }
    held.release().await.unwrap();
    assert_eq!(value(&server, &free_key), "3");
    assert!(semaphore.delete().await.unwrap() && latch.delete().await.unwrap());
    until("no result of a change is kept", || server.keys("_leasehold/changes/").is_empty()).await;
    assert_eq!(server.keys("_leasehold/semaphore/").len() + server.keys("_leasehold/latch/").len(), 0);
}

/// Changes of three numbers, one after the other by each of some clients until `is_over`. Returns how many of each were made.
async fn changes(server: &Etcd, is_over: &Arc<AtomicBool>) -> JoinSet<i64> {
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, is_over) = (impatient(server).await, Arc::clone(is_over));
        tasks.spawn(async move {
            let (semaphore, latch) = (client.semaphore("s"), client.latch("l"));
            let mut made = 0;
            while !is_over.load(Ordering::SeqCst) {
                semaphore.release(2).await.unwrap();
                latch.count_down().await.unwrap();
                client.leased_semaphore("p").add_permits(3).await.unwrap();
                made += 1;
            }
            made
        });
    }
    tasks
}

const CLIENTS: usize = 6;
const COUNT: u32 = 1_000_000;

/// Each change was made once.
async fn are_exact(server: &Etcd, is_over: &AtomicBool, tasks: JoinSet<i64>) {
    is_over.store(true, Ordering::SeqCst);
    let made: i64 = timeout(PATIENCE * 2, tasks.join_all()).await.expect("they end").iter().sum();
    let client = client(server).await;
    assert_eq!(client.semaphore("s").available().await.unwrap(), 2 * made);
    assert_eq!(client.latch("l").count().await.unwrap(), u64::from(COUNT) - made.unsigned_abs());
    assert_eq!(client.leased_semaphore("p").total().await.unwrap(), 3 * made);
}

/// A server that is stopped carries out what it has received when it goes on, and the client has sent it again by then.
#[tokio::test]
async fn own_581_a_change_counts_once_although_its_reply_is_late() {
    let server = Etcd::start();
    assert!(client(&server).await.latch("l").try_set_count(COUNT).await.unwrap());
    let is_over = Arc::default();
    let tasks = changes(&server, &is_over).await;
    for round in 0..4 {
        // At some point of their requests.
        sleep(Duration::from_millis(80 + 7 * round)).await;
        server.pause();
        sleep(Duration::from_millis(700)).await;
        server.resume();
    }
    are_exact(&server, &is_over, tasks).await;
}

#[tokio::test]
async fn own_582_changes_count_once_while_the_server_is_killed_and_started_again() {
    let mut server = Etcd::start();
    assert!(client(&server).await.latch("l").try_set_count(COUNT).await.unwrap());
    let is_over = Arc::default();
    let tasks = changes(&server, &is_over).await;
    for round in 0..3 {
        sleep(Duration::from_millis(150 + 7 * round)).await;
        server.restart();
    }
    sleep(Duration::from_millis(150)).await;
    are_exact(&server, &is_over, tasks).await;
}

/// One permit, so two holders would lose an increment; and three, of which each holder has a cell to itself.
#[tokio::test]
async fn own_583_counted_permits_are_exact_through_a_restart_of_the_server() {
    const TURNS: u64 = 25;
    let mut server = Etcd::start();
    let (sum, inside, peak) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let first = impatient(&server).await;
    assert!(first.semaphore("one").try_set_permits(1).await.unwrap());
    assert!(first.semaphore("three").try_set_permits(3).await.unwrap());
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = impatient(&server).await;
        let (sum, inside, peak) = (Arc::clone(&sum), Arc::clone(&inside), Arc::clone(&peak));
        let (one, three) = (client.semaphore("one"), client.semaphore("three"));
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let permit = one.acquire(1).wait(PATIENCE).await.unwrap();
                let seen = sum.load(Ordering::SeqCst);
                sleep(Duration::from_millis(1)).await;
                sum.store(seen + 1, Ordering::SeqCst);
                drop(permit);
            }
        });
        tasks.spawn(async move {
            for turn in 0..TURNS {
                let wanted = if turn % 2 == 0 { 1 } else { 2 };
                let permits = three.acquire(wanted).wait(PATIENCE).await.unwrap();
                peak.fetch_max(
                    inside.fetch_add(wanted.into(), Ordering::SeqCst) + u64::from(wanted),
                    Ordering::SeqCst,
                );
                sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(wanted.into(), Ordering::SeqCst);
                drop(permits);
            }
        });
    }
    sleep(Duration::from_millis(150)).await;
    server.restart();
    all(tasks).await;
    assert_eq!(sum.load(Ordering::SeqCst), 4 * TURNS);
    assert!(peak.load(Ordering::SeqCst) <= 3, "{peak:?}");
    // Permits that are dropped are released in the background.
    until("no guard holds any", || server.keys("_leasehold/semaphore/").len() == 2).await;
    assert_eq!(first.semaphore("one").available().await.unwrap(), 1);
    assert_eq!(first.semaphore("three").available().await.unwrap(), 3);
}

/// Waiters look every 3 s by themselves, so four would take twice as long on average.
#[tokio::test]
async fn own_584_waiters_are_woken_by_watches_that_have_begun_anew_on_another_connection() {
    const LIMIT: Duration = Duration::from_secs(3);
    let mut server = Etcd::start();
    let (waiting, other) = (impatient(&server).await, client(&server).await);
    let set = other.group_lock("g", ["a", "b"]).acquire().await.unwrap();
    assert!(other.latch("l").try_set_count(1).await.unwrap());
    let (latch, semaphore) = (waiting.latch("l"), waiting.semaphore("s"));
    let (leased, group) = (waiting.leased_semaphore("p"), waiting.group_lock("g", ["b"]));
    let wait = PATIENCE * 2;
    let waiters = [
        tokio::spawn(async move { latch.opened().wait(wait).await.unwrap() }),
        tokio::spawn(async move { drop(semaphore.acquire(1).wait(wait).await.unwrap()) }),
        tokio::spawn(async move { drop(leased.acquire(1).wait(wait).await.unwrap()) }),
        tokio::spawn(async move { drop(group.acquire().wait(wait).await.unwrap()) }),
    ];
    sleep(Duration::from_millis(200)).await;
    server.restart();
    until("they are connected again", || waiting.status().connected && other.status().connected).await;
    sleep(Duration::from_millis(300)).await;
    let mut took = Duration::ZERO;
    let mut set = Some(set);
    for (number, waiter) in waiters.into_iter().enumerate() {
        assert!(!waiter.is_finished());
        let begun = Instant::now();
        match number {
            0 => assert_eq!(other.latch("l").count_down().await.unwrap(), 0),
            1 => other.semaphore("s").release(1).await.unwrap(),
            2 => other.leased_semaphore("p").set_permits(1).await.unwrap(),
            _ => drop(set.take()),
        }
        timeout(PATIENCE, waiter).await.unwrap().unwrap();
        took += begun.elapsed();
    }
    assert!(took < LIMIT, "{took:?}");
}
