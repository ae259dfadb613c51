//! Locks that an operator takes away.

use std::time::Duration;

use leasehold::{Guard, Loss};
use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, client};

/// How long a holder may take to notice, after the command that removes its lock has ended.
const SOON: Duration = Duration::from_millis(100);

async fn is_told(guard: &Guard, remove: impl FnOnce()) -> Duration {
    // The hold is old enough to be watched.
    sleep(Duration::from_millis(300)).await;
    remove();
    let begun = Instant::now();
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
