//! Groups: a key for each set of values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{AcquireError, Loss, ServerError};
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::counters::{all, impatient, value};
use crate::leases::{granted, lease_of, leases, only_key};
use crate::{PATIENCE, client, until};

#[tokio::test]
async fn own_590_a_set_of_values_is_one_key_and_keeps_no_lock_and_no_other_set_out() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.group_lock("g", ["b", "a/b", "%"]).acquire().fenced().await.unwrap();
    let [key] = server.keys("_leasehold/group/").try_into().unwrap();
    assert_eq!(key, format!("_leasehold/group/g/{}/3-%25", guard.owner()));
    assert_eq!(value(&server, &key), "%25\na%2Fb\nb");
    other.lock("g").acquire().await.unwrap().release().await.unwrap();
    let beside =
        other.group_lock("g", ["c", "a"]).try_acquire().fenced().await.unwrap().expect("they are free");
    assert!(beside.token() > guard.token());
    assert!(other.group_lock("g", ["c", "b"]).try_acquire().await.unwrap().is_none());
    let of_value = other.group_lock("g", ["b"]);
    assert!(of_value.is_held_by(guard.owner()).await.unwrap());

    // The key of a set that has lost a value is another one, so its holder is told.
    assert!(other.group_lock("g", ["b"]).force_unlock().await.unwrap());
    assert_eq!(timeout(PATIENCE, guard.lost()).await.unwrap(), Loss::Gone);
    assert!(
        server.keys("_leasehold/group/").contains(&format!("_leasehold/group/g/{}/2-%25", guard.owner()))
    );
    drop(guard);
    beside.release().await.unwrap();
    until("nothing is left", || server.keys("_leasehold/group/").is_empty()).await;
}

#[tokio::test]
async fn own_591_overlapping_sets_lose_no_increment_through_a_restart_of_the_server() {
    const TURNS: u64 = 25;
    let mut server = Etcd::start();
    let values: Arc<[AtomicU64; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for set in [&[0, 1][..], &[1, 2], &[2, 0], &[0], &[1], &[2]] {
        let (client, values) = (impatient(&server).await, Arc::clone(&values));
        tasks.spawn(async move {
            let lock = client.group_lock("g", set.iter().map(ToString::to_string));
            for _ in 0..TURNS {
                let guard = lock.acquire().wait(PATIENCE).await.unwrap();
                let seen: Vec<_> = set.iter().map(|value| values[*value].load(Ordering::SeqCst)).collect();
                sleep(Duration::from_millis(1)).await;
                for (value, seen) in set.iter().zip(seen) {
                    values[*value].store(seen + 1, Ordering::SeqCst);
                }
                drop(guard);
            }
        });
    }
    sleep(Duration::from_millis(150)).await;
    server.restart();
    all(tasks).await;
    assert_eq!(values.each_ref().map(|value| value.load(Ordering::SeqCst)), [3 * TURNS; 3]);
    until("nothing is left", || server.keys("_leasehold/group/").is_empty()).await;
}

#[tokio::test]
async fn own_592_values_come_back_when_the_lease_of_their_holder_is_over() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.group_lock("g", ["a", "b"]).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = other.group_lock("g", ["b", "c"]);
        async move { lock.acquire().await }
    });
    until("it is told who the client is", || !server.keys("_leasehold/clients/").is_empty()).await;
    sleep(Duration::from_millis(100)).await;
    let record = server.keys("_leasehold/clients/");
    let lease = record[0].strip_prefix("_leasehold/clients/").unwrap();
    let _ = server.ctl(&["lease", "revoke", lease]);
    assert_eq!(timeout(PATIENCE, guard.lost()).await.unwrap(), Loss::Gone);
    timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
}

/// The server takes a request of one and a half megabytes at most.
#[tokio::test]
async fn own_593_a_set_that_is_too_large_for_the_server_is_refused_and_leaves_nothing() {
    let server = Etcd::start();
    let client = impatient(&server).await;
    let set = |length| client.group_lock("g", (0..10_000).map(move |value| format!("{value:0>length$}")));
    let error = timeout(PATIENCE, set(200).acquire()).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, AcquireError::Server { cause: ServerError::Denied(text), .. } if text.contains("too large")),
        "{error:?}"
    );
    assert_eq!(server.keys("_leasehold/group/"), [""; 0]);
    set(100).acquire().await.unwrap().release().await.unwrap();
}

/// The server would end the last of the leases after two seconds.
#[tokio::test]
async fn own_596_a_set_with_a_fixed_lease_has_one_of_its_own_and_so_has_what_is_left_of_it() {
    const LENGTH: Duration = Duration::from_millis(1100);
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let set = one.group_lock("g", ["a", "b"]);
    let guard = set.acquire().lease(Duration::from_secs(60)).await.unwrap();
    let key = only_key(&server, "_leasehold/group/");
    assert_eq!(granted(&server, &lease_of(&server, &key)), 60);
    guard.extend(Duration::from_secs(90)).await.unwrap();
    guard.reenter().await.unwrap().release().await.unwrap();
    assert_eq!((value(&server, &key), granted(&server, &lease_of(&server, &key))), ("a\nb".to_owned(), 90));

    let beside = one.group_lock("g", ["c"]).acquire().await.unwrap();
    // It is watched.
    sleep(Duration::from_millis(200)).await;
    // The session of the client is not what it lasts as long as.
    let own = lease_of(&server, &key);
    for client in server.keys("_leasehold/clients/") {
        let lease = client.rsplit('/').next().unwrap();
        if lease != own {
            let _ = server.ctl(&["lease", "revoke", lease]);
        }
    }
    assert_eq!(timeout(PATIENCE, beside.lost()).await.unwrap(), Loss::Gone);
    timeout(PATIENCE, one.group_lock("g", ["c"]).acquire().into_future())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(guard.is_held() && server.keys("_leasehold/group/") == [key.clone()]);

    assert!(other.group_lock("g", ["b"]).force_unlock().await.unwrap());
    assert_eq!(timeout(PATIENCE, guard.lost()).await.unwrap(), Loss::Gone);
    let left = only_key(&server, "_leasehold/group/");
    sleep(Duration::from_millis(200)).await;
    assert_eq!((value(&server, &left), lease_of(&server, &left)), ("a".to_owned(), own));
    drop(guard);
    let is_clean = || server.keys("_leasehold/group/").is_empty() && leases(&server) == 2;
    until("the values and their lease are gone", is_clean).await;

    let begun = Instant::now();
    let guard = set.acquire().lease(LENGTH).await.unwrap();
    let next = timeout(PATIENCE, other.group_lock("g", ["b"]).acquire()).await.unwrap().unwrap();
    assert!((LENGTH..Duration::from_secs(2)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(guard.lost().await, Loss::Expired);
    next.release().await.unwrap();
    until("the values and their lease are gone", is_clean).await;
}

/// More sets than fit into one transaction.
#[tokio::test]
async fn own_597_a_takeover_takes_values_from_all_their_holders_and_leaves_the_others() {
    const SETS: usize = 50;
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut victims = Vec::new();
    for number in 0..SETS {
        let client = if number % 2 == 0 { &one } else { &other };
        let set = client.group_lock("g", [number.to_string(), format!("{number} too")]);
        victims.push(set.acquire().await.unwrap());
    }
    let beside = one.group_lock("g", ["other"]).acquire().await.unwrap();
    let all = other.group_lock("g", (0..SETS).map(|number| number.to_string()));
    let thief = timeout(PATIENCE, all.acquire().steal().into_future()).await.unwrap().unwrap();
    for victim in &victims {
        assert_eq!(timeout(PATIENCE, victim.lost()).await.unwrap(), Loss::TakenOver);
    }
    assert!(one.group_lock("g", ["7 too"]).try_acquire().await.unwrap().is_none());
    drop(victims);
    until("what was left is released", || server.keys("_leasehold/group/").len() == 2).await;
    let back = one.group_lock("g", ["7"]).acquire().steal().await.unwrap();
    assert_eq!(timeout(PATIENCE, thief.lost()).await.unwrap(), Loss::TakenOver);
    drop(thief);
    assert!(back.is_held() && beside.is_held());
    back.release().await.unwrap();
    beside.release().await.unwrap();
    until("nothing is left", || server.keys("_leasehold/group/").is_empty()).await;
}
