//! Beside `etcdctl lock`.

use std::fs;
use std::sync::Arc;
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

/// A number in a file, read, raised and written by both: one increment is missing if two hold the lock at once.
#[tokio::test]
async fn own_505_no_increment_is_lost_beside_loops_of_etcdctl_lock() {
    const TURNS: usize = 50;
    let server = Arc::new(Etcd::start());
    let file = std::env::temp_dir().join(format!("leasehold-etcd-{}-{}", std::process::id(), server.port()));
    fs::write(&file, "0").unwrap();
    let theirs: Vec<_> = (0..2)
        .map(|_| {
            let (server, file) = (Arc::clone(&server), file.clone());
            let raise = format!("n=$(cat {0}); echo $((n + 1)) > {0}", file.display());
            tokio::task::spawn_blocking(move || {
                for _ in 0..TURNS {
                    let _ = server.ctl(&["lock", "n", "--", "sh", "-c", &raise]);
                }
            })
        })
        .collect();
    let mut ours = Vec::new();
    for _ in 0..2 {
        let (lock, file) = (client(&server).await.lock("n"), file.clone());
        ours.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                let seen: usize = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                fs::write(&file, (seen + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    for turn in theirs.into_iter().chain(ours) {
        timeout(PATIENCE * 6, turn).await.unwrap().unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), (4 * TURNS).to_string());
    fs::remove_file(&file).unwrap();
}
