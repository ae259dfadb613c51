//! Locks that an operator takes away.

use std::time::Duration;

use leasehold::{Guard, Loss};
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::server::Etcd;
use tokio::time::{sleep, timeout};

use crate::record::{Record, deadline};
use crate::{PATIENCE, client, until};

/// How long a holder may take to notice, after the command that removes its lock has ended.
pub(crate) const SOON: Duration = Duration::from_millis(100);

/// A store that is written to under a lock, and refuses a token that is smaller than one that it has seen.
#[derive(Debug, Default)]
pub(crate) struct Store {
    highest: u64,
    pub(crate) written: Vec<&'static str>,
}

impl Store {
    /// Whether the write is accepted.
    pub(crate) fn write(&mut self, token: u64, value: &'static str) -> bool {
        let is_accepted = token >= self.highest;
        if is_accepted {
            self.highest = token;
            self.written.push(value);
        }
        is_accepted
    }
}

async fn is_told(guard: &Guard, remove: impl FnOnce()) -> Duration {
    // The hold is old enough to be watched.
    sleep(Duration::from_millis(300)).await;
    remove();
    let begun = Stopwatch::start();
    assert_eq!(timeout(PATIENCE, guard.lost()).await.expect("it is told"), Loss::Gone);
    begun.elapsed()
}

#[tokio::test]
async fn own_508_a_holder_is_told_at_once_that_its_key_was_deleted() {
    let server = Etcd::start();
    let client = client(&server).await;
    let [gone, kept] =
        [client.lock("gone").acquire().await.unwrap(), client.lock("kept").acquire().await.unwrap()];
    let took = is_told(&gone, || assert_eq!(server.ctl(&["del", "--prefix", "gone/"]).trim(), "1")).await;
    assert!(took < SOON, "{took:?}");
    assert!(kept.is_held() && client.lock("gone").try_acquire().await.unwrap().is_some());
    kept.release().await.unwrap();
}

#[tokio::test]
async fn own_509_a_client_whose_lease_was_revoked_loses_all_locks_at_once_and_goes_on_under_another() {
    let server = Etcd::start();
    let client = client(&server).await;
    let one = client.lock("one").acquire().await.unwrap();
    let two = client.rw_lock("two").read().acquire().await.unwrap();
    let [key] = server.keys("one/").try_into().unwrap();
    let lease = key.strip_prefix("one/").unwrap();
    let took = is_told(&one, || drop(server.ctl(&["lease", "revoke", lease]))).await;
    assert!(took < SOON, "{took:?}");
    assert_eq!(timeout(SOON, two.lost()).await.expect("it is told, too"), Loss::Gone);
    let again = timeout(PATIENCE, client.lock("one").acquire()).await.unwrap().unwrap();
    assert_ne!(server.keys("one/"), [key]);
    again.release().await.unwrap();
}

/// Two hold the lock until the first is told, and both write: the store that they write to refuses the first one.
async fn is_refused(remove: impl FnOnce(&Etcd, &str)) {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let (record, mut store) = (Record::default(), Store::default());
    let first = one.lock("n").acquire().fenced().await.expect("it is free");
    let hold = record.granted("first", &first).expect("it is held");
    assert!(store.write(first.token(), "first"));
    let [key] = server.keys("n/").try_into().expect("there is one");
    let waiter = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().fenced().await }
    });
    until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
    record.trusted(hold, deadline(&first).expect("it is held"));
    let took = is_told(&first, || remove(&server, &key)).await;
    assert!(took < SOON, "{took:?}");
    let next =
        timeout(PATIENCE, waiter).await.expect("its turn comes").expect("no panic").expect("it is granted");
    record.granted("next", &next).expect("it is held");
    assert_eq!(record.violations().len(), 1, "this is the hole");
    assert!(store.write(next.token(), "next"));
    assert!(!store.write(first.token(), "first, late"), "the token closes it");
    assert_eq!(store.written, ["first", "next"]);
}

#[tokio::test]
async fn own_670_the_token_of_a_holder_whose_key_was_deleted_is_refused() {
    is_refused(|server, key| assert_eq!(server.ctl(&["del", key]).trim(), "1")).await;
}

#[tokio::test]
async fn own_671_the_token_of_a_holder_whose_lease_was_revoked_is_refused() {
    is_refused(|server, key| drop(server.ctl(&["lease", "revoke", key.strip_prefix("n/").unwrap()]))).await;
}
