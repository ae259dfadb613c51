//! Beside `etcdctl lock`.

use std::time::Duration;

use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, timeout};

use crate::{PATIENCE, client, until};

#[tokio::test]
async fn own_504_etcdctl_and_this_library_exclude_each_other() {
    let server = Etcd::start();
    let client = client(&server).await;
    let lock = client.lock("n");
    let theirs = server.lock("n");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    until("the waiter is in the queue", || server.keys("n/").len() == 2).await;
    let begun = Instant::now();
    tokio::task::spawn_blocking(|| theirs.release()).await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    let mut next = server.etcdctl(&["lock", "n", "true"]).spawn().unwrap();
    until("etcdctl is in the queue", || server.keys("n/").len() == 2).await;
    assert!(next.try_wait().unwrap().is_none(), "it runs nothing while the lock is held");
    guard.release().await.unwrap();
    let ended = tokio::task::spawn_blocking(move || next.wait());
    assert!(timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap().success());
}
