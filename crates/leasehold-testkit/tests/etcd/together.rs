//! Several locks in one transaction.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{PATIENCE, client, until};

/// The revision at which a key was created.
fn created(server: &Etcd, key: &str) -> String {
    let fields = server.ctl(&["get", key, "-w", "fields"]);
    let line = fields.lines().find_map(|line| line.strip_prefix("\"CreateRevision\" : "));
    line.expect("it is there").to_owned()
}

#[tokio::test]
async fn own_530_the_keys_of_a_multi_lock_are_written_by_one_transaction() {
    let server = Etcd::start();
    let one = client(&server).await;
    let guard = one.multi_lock(["m:c", "m:a", "m:b"]).acquire().fenced().await.unwrap();
    let keys = server.keys("m:");
    let lease = keys[0].strip_prefix("m:a/").expect("the first is that of m:a");
    assert_eq!(keys, ["a", "b", "c"].map(|name| format!("m:{name}/{lease}")));
    let revision = created(&server, &keys[0]);
    assert!(keys.iter().all(|key| created(&server, key) == revision));
    let tokens: Vec<_> = guard.tokens().map(|(_, token)| token.to_string()).collect();
    assert_eq!(tokens, vec![revision; 3]);

    // A waiter has no key, and one that is busy keeps the others from being written.
    let other = client(&server).await;
    let waiter = tokio::spawn({
        let lock = other.multi_lock(["m:c", "m:d"]);
        async move { lock.acquire().await }
    });
    for _ in 0..10 {
        sleep(Duration::from_millis(30)).await;
        assert_eq!(server.keys("m:"), keys);
    }
    guard.release().await.unwrap();
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.keys("m:"), [""; 0]);
}

/// The observer sees each change of the store, with its revision: all keys of an acquire have the same one.
#[tokio::test]
async fn own_531_an_observer_sees_all_members_of_a_multi_lock_or_none() {
    const TURNS: usize = 20;
    let server = Arc::new(Etcd::start());
    let watch = &["watch", "--prefix", "--rev", "1", "m:", "-w", "fields"];
    let mut observer = server.etcdctl(watch).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(observer.stdout.take().unwrap());
    let lines = tokio::task::spawn_blocking(move || {
        let lines = output.lines().map(|line| line.expect("it is text"));
        lines.take_while(|line| !line.contains("m:end")).collect::<Vec<_>>()
    });
    let mut tasks = JoinSet::new();
    for names in [["m:a", "m:b", "m:c"], ["m:c", "m:d", "m:a"], ["m:d", "m:b", "m:a"], ["m:b", "m:d", "m:c"]]
    {
        let client = client(&server).await;
        tasks.spawn(async move {
            let lock = client.multi_lock(names);
            for _ in 0..TURNS {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    while let Some(done) = timeout(PATIENCE * 3, tasks.join_next()).await.expect("they do not deadlock") {
        done.unwrap();
    }
    assert_eq!(server.ctl(&["put", "m:end", ""]).trim(), "OK");
    let lines = timeout(PATIENCE, lines).await.unwrap().unwrap();
    observer.kill().unwrap();
    observer.wait().unwrap();
    let (mut written, mut is_put) = (BTreeMap::<String, usize>::new(), false);
    for line in lines {
        if let Some(kind) = line.strip_prefix("\"Type\" : ") {
            is_put = kind.contains("PUT");
        } else if let Some(revision) = line.strip_prefix("\"CreateRevision\" : ").filter(|_| is_put) {
            *written.entry(revision.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(written.len(), 4 * TURNS, "one revision for each acquire");
    assert!(written.values().all(|keys| *keys == 3), "{written:?}");
}

/// Pairs in both orders, and besides some that acquire one of them: they neither wait for each other in a circle nor lose an increment.
#[tokio::test]
async fn own_532_multi_locks_in_opposite_orders_do_not_deadlock_and_lose_no_increment() {
    const TURNS: u64 = 40;
    let server = Etcd::start();
    let values: Arc<[AtomicU64; 2]> = Arc::default();
    let mut tasks = JoinSet::new();
    for names in [&["m:a", "m:b"][..], &["m:b", "m:a"], &["m:a"], &["m:b"]] {
        let (client, values) = (client(&server).await, Arc::clone(&values));
        tasks.spawn(async move {
            let lock = client.multi_lock(names);
            for _ in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                let of: Vec<_> = names.iter().map(|name| &values[usize::from(*name == "m:b")]).collect();
                let seen: Vec<_> = of.iter().map(|value| value.load(Ordering::SeqCst)).collect();
                sleep(Duration::from_millis(1)).await;
                of.iter().zip(seen).for_each(|(value, seen)| value.store(seen + 1, Ordering::SeqCst));
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = timeout(PATIENCE * 3, tasks.join_next()).await.expect("they do not deadlock") {
        done.unwrap();
    }
    assert_eq!(values.each_ref().map(|value| value.load(Ordering::SeqCst)), [3 * TURNS; 2]);
}

/// Names below each other are in one transaction, too; more names than a transaction takes are acquired one after the other.
#[tokio::test]
async fn own_533_a_multi_lock_may_have_names_below_each_other_and_any_number_of_them() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.multi_lock(["m:a/b", "m:a", "m:a/b/c"]).acquire().await.unwrap();
    let keys = server.keys("m:");
    assert!(keys.len() == 3 && keys.iter().all(|key| created(&server, key) == created(&server, &keys[0])));
    for name in ["m:a", "m:a/b", "m:a/b/c"] {
        assert!(other.lock(name).try_acquire().await.unwrap().is_none(), "{name}");
    }
    guard.release().await.unwrap();
    for number in [127, 128, 300] {
        let names: Vec<_> = (0..number).map(|name| format!("m:{name}")).collect();
        let guard = timeout(PATIENCE, one.multi_lock(&names).acquire()).await.unwrap().unwrap();
        let keys = server.keys("m:");
        assert_eq!(keys.len(), number);
        let in_one_step = created(&server, &keys[0]) == created(&server, &keys[number - 1]);
        assert_eq!(in_one_step, number == 127);
        assert!(other.multi_lock(["m:0", "m:x"]).try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        assert_eq!(server.keys("m:"), [""; 0]);
    }
}

#[tokio::test]
async fn own_534_a_multi_lock_that_is_dropped_at_any_point_leaves_no_key() {
    let server = Etcd::start();
    let client = client(&server).await;
    let lock = client.multi_lock(["m:a", "m:b", "m:c"]);
    for turn in 0..60 {
        // Before the request is sent, while it is carried out, and when it is granted.
        let dropped = timeout(Duration::from_micros(turn * 50), lock.acquire()).await;
        drop(dropped);
    }
    until("nothing is left", || server.keys("m:").is_empty()).await;
    drop(lock.try_acquire().await.unwrap().expect("they are free"));
}
