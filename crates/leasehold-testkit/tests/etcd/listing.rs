//! Which locks are held, beside the keys of other programs.

use std::io::Write as _;
use std::process::Stdio;

use leasehold::{Client, HeldLock, LockKind, QueryError, ServerError};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::Etcd;

use crate::{calls, client};

/// Writes keys that no lock has, with values of a thousand bytes.
fn write_others(server: &Etcd, keys: usize) {
    let all: Vec<_> = (0..keys).collect();
    // etcd takes up to 128 operations in one transaction.
    for some in all.chunks(100) {
        let mut call = server.etcdctl(&["txn"]);
        let mut txn =
            call.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("etcdctl can be started");
        let value = "x".repeat(1000);
        let puts: Vec<_> = some.iter().map(|key| format!("put other/{key:05}/value {value}")).collect();
        let mut input = txn.stdin.take().expect("its input is a pipe");
        input.write_all(format!("\n{}\n\n\n", puts.join("\n")).as_bytes()).expect("it reads its input");
        drop(input);
        assert!(txn.wait().expect("it ends").success());
    }
}

fn names(locks: &[HeldLock]) -> Vec<(&str, LockKind)> {
    locks.iter().map(|lock| (lock.name.as_str(), lock.kind)).collect()
}

#[tokio::test]
async fn own_615_a_listing_takes_bounded_requests_beside_thousands_of_other_keys() {
    const OTHERS: usize = 4000;
    let server = Etcd::start();
    write_others(&server, OTHERS);
    let holder = client(&server).await;
    let locks = ["a", "other/02000/lock", "z"];
    let mut guards = Vec::new();
    for name in locks {
        guards.push(holder.lock(name).acquire().await.unwrap());
    }
    let proxy = Proxy::start_opaque(server.port());
    let client = Client::connect(format!("etcd://127.0.0.1:{}", proxy.port())).await.unwrap();
    let bytes = || proxy.counts().from_server;

    let (sent, received) = (client.stats().requests, bytes());
    let listing = client.list("*").await.unwrap();
    assert!(listing.is_complete);
    assert_eq!(names(&listing.locks), locks.map(|name| (name, LockKind::Lock)));
    let pages = client.stats().requests - sent;
    assert_eq!(
        pages,
        OTHERS.div_ceil(500) as u64 + u64::from(OTHERS.is_multiple_of(500)),
        "of 500 keys each"
    );
    let of_each = (bytes() - received) / OTHERS;
    assert!(of_each < 100, "{of_each} bytes for each key: their values are not read");

    // A prefix narrows it at the server.
    let (sent, received) = (client.stats().requests, bytes());
    assert_eq!(names(&client.list("z*").await.unwrap().locks), [("z", LockKind::Lock)]);
    assert_eq!(names(&client.list("a").await.unwrap().locks), [("a", LockKind::Lock)]);
    assert_eq!((client.stats().requests - sent, bytes() - received < 10_000), (2, true));
    let some = client.list("*").limit(1).await.unwrap();
    assert_eq!((names(&some.locks), some.is_complete), (vec![("a", LockKind::Lock)], false));
}

#[tokio::test]
async fn own_616_locks_of_other_programs_are_listed_and_other_keys_are_not() {
    let server = Etcd::start();
    let theirs = server.lock("theirs");
    let [key] = server.keys("theirs/").try_into().unwrap();
    let lease = key.strip_prefix("theirs/").unwrap();
    // Go's readers, and candidates of an election: those have a value.
    for (key, value) in [
        ("rw/read/1700000000000000001".to_owned(), ""),
        ("rw/read/1700000000000000002".into(), ""),
        (format!("election/{lease}"), "me"),
        (format!("bound/{lease}/x"), ""),
    ] {
        let _ = server.ctl(&["put", &format!("--lease={lease}"), &key, value]);
    }
    let _ = server.ctl(&["put", "unbound/1f", ""]);
    let client = client(&server).await;
    let guard = client.lock("ours").acquire().await.unwrap();
    let waiter = client.lock("theirs").acquire();
    let waiter = tokio::spawn(waiter.into_future());
    crate::until("it is in the queue", || server.keys("theirs/").len() == 2).await;

    let listing = client.list("*").await.unwrap();
    assert!(listing.is_complete);
    let expected = [("ours", LockKind::Lock), ("rw", LockKind::Read), ("theirs", LockKind::Lock)];
    assert_eq!(names(&listing.locks), expected);
    let [ours, rw, theirs_found] = listing.locks.as_slice() else { unreachable!() };
    assert_eq!((ours.holder.owner.as_ref(), ours.holders), (Some(&guard.owner()), 1));
    assert_eq!((rw.holder.owner.as_ref(), rw.holders), (None, 2));
    assert_eq!((theirs_found.holder.owner.as_ref(), theirs_found.holders), (None, 1));
    let left = theirs_found.holder.remaining.as_secs_f64();
    assert!(left > 0.0 && left <= 5.0, "{left}");
    let under = theirs_found.holder.client.as_ref().and_then(|client| client.lease.as_deref());
    assert_eq!(under, Some(lease), "its lease tells what is known of it");

    let found = client.find("theirs").await.unwrap().unwrap();
    assert_eq!((found.kind, found.holder.client), (LockKind::Lock, theirs_found.holder.client.clone()));
    assert_eq!(client.find("free").await.unwrap(), None);
    for other in ["election", "bound", "unbound"] {
        let error = client.find(other).await.unwrap_err();
        assert!(
            matches!(&error, QueryError::Server { cause: ServerError::NotALock, .. }),
            "{other}: {error}"
        );
    }
    waiter.abort();
    theirs.release();
}

#[tokio::test]
async fn own_617_holders_are_listed_with_their_clients_by_few_requests() {
    let server = Etcd::start_with("");
    let mut holders = Vec::new();
    for number in 0..3 {
        let client = Client::connect(server.url()).label(format!("web-{number}")).await.unwrap();
        for lock in 0..40 {
            holders.push(client.lock(format!("n:{number}:{lock:02}")).acquire().await.unwrap());
        }
    }
    let looker = client(&server).await;
    // Holders read their keys now and then, by other calls.
    let calls = || ["Txn", "LeaseTimeToLive"].map(|method| calls(&server, method));
    let before = calls();
    let listing = looker.list("n:*").await.unwrap();
    let after = calls();
    assert_eq!(listing.locks.len(), 120);
    // 120 oldest keys by two transactions, the whole of them by two, three records by one; three leases.
    assert_eq!([after[0] - before[0], after[1] - before[1]], [5, 3]);
    for lock in &listing.locks {
        let label = lock.holder.client.as_ref().and_then(|client| client.label.clone()).unwrap();
        assert_eq!(lock.name.split(':').nth(1), label.strip_prefix("web-"), "{lock:?}");
        assert!(lock.holder.remaining.as_secs() > 20, "{lock:?}");
    }
}
