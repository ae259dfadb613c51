//! Waiters whose places in the queue of the server are removed by an operator.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Lock};
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client, until};

/// How long a waiter may take to queue again on a healthy machine.
const SOON: Duration = Duration::from_millis(100);
/// Less than the time after which a waiter looks without a message.
const BY_MESSAGE: Duration = Duration::from_secs(2);

/// A running `etcdctl watch`.
struct Observer(Child);

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn locks(client: &Client) -> [Lock; 2] {
    [client.lock("n"), client.fair_lock("n").into()]
}

/// An observer of the store notes when a key is deleted and when the next one is written.
#[tokio::test]
async fn own_600_a_waiter_whose_key_is_deleted_queues_again_at_once() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for (holder, lock) in locks(&one).into_iter().zip(locks(&other)) {
        let guard = holder.acquire().await.unwrap();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
        let watch = server.etcdctl(&["watch", "--prefix", "n/"]).stdout(Stdio::piped()).spawn();
        let mut observer = Observer(watch.unwrap());
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let output = BufReader::new(observer.0.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let is_event = ["PUT", "DELETE"].contains(&line.as_str());
                if is_event && sender.send((line, Instant::now())).is_err() {
                    return;
                }
            }
        });
        // Its watches and the observer's are there.
        sleep(Duration::from_millis(300)).await;
        let mut took = Vec::new();
        for _ in 0..7 {
            let key = server.keys("n/").pop().unwrap();
            assert_eq!(server.ctl(&["del", &key]).trim(), "1");
            let deleted = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
            let written = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
            assert_eq!([deleted.0, written.0], ["DELETE", "PUT"]);
            took.push(written.1 - deleted.1);
            // The new key is watched.
            sleep(Duration::from_millis(100)).await;
        }
        took.sort_unstable();
        assert!(took[0] < SOON && took[6] < BY_MESSAGE, "{took:?}");
        assert!(!waiter.is_finished());
        guard.release().await.unwrap();
        timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
        assert_eq!(server.keys("n/"), [""; 0]);
    }
}

/// Each holder is the operator, too, so that no key of a holder is deleted: it deletes all keys but its own between reading and
/// writing a number.
#[tokio::test]
async fn own_601_no_increment_is_lost_while_an_operator_deletes_the_keys_of_waiters() {
    const TURNS: u64 = 8;
    let server = Arc::new(Etcd::start());
    for kind in 0..2 {
        let value = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let client = client(&server).await;
            let (lock, value, server) =
                (locks(&client)[kind].clone(), Arc::clone(&value), Arc::clone(&server));
            tasks.spawn(async move {
                for _ in 0..TURNS {
                    let guard = lock.acquire().await.unwrap();
                    let seen = value.load(Ordering::SeqCst);
                    let server = Arc::clone(&server);
                    let delete = move || {
                        for key in server.keys("n/").into_iter().skip(1) {
                            let _ = server.ctl(&["del", &key]);
                        }
                    };
                    tokio::task::spawn_blocking(delete).await.unwrap();
                    value.store(seen + 1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
        while let Some(done) = timeout(PATIENCE, tasks.join_next()).await.expect("waiters go on") {
            done.unwrap();
        }
        assert_eq!(value.load(Ordering::SeqCst), 4 * TURNS);
    }
}

#[tokio::test]
async fn own_602_a_waiter_whose_lease_was_revoked_queues_again_under_the_next_one() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for (holder, lock) in locks(&one).into_iter().zip(locks(&other)) {
        let guard = holder.acquire().await.unwrap();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
        sleep(Duration::from_millis(200)).await;
        let key = server.keys("n/").pop().unwrap();
        let lease = key.split('/').nth(1).unwrap();
        let _ = server.ctl(&["lease", "revoke", lease]);
        let begun = Instant::now();
        let is_queued = || server.keys("n/").get(1).is_some_and(|other| *other != key);
        until("the waiter is in the queue again", is_queued).await;
        assert!(begun.elapsed() < BY_MESSAGE, "{:?}", begun.elapsed());
        guard.release().await.unwrap();
        let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
        assert_eq!(server.keys("n/").len(), 1, "it holds the lock by a key that is there");
        next.release().await.unwrap();
    }
}
