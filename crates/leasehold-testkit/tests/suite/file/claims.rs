//! What the file engine can, and what it refuses before anything is done.

use std::time::Duration;

use leasehold::{AcquireError, Client, InvalidRequestError};
use leasehold_testkit::bench::{Backend as _, Files};

const WAIT: Duration = Duration::from_secs(5);

async fn connect() -> (Files, [Client; 2]) {
    let files = Files::new();
    let clients = [Client::connect(files.url()).await.unwrap(), Client::connect(files.url()).await.unwrap()];
    (files, clients)
}

#[tokio::test]
async fn the_file_engine_has_these_primitives() {
    let (_files, [client, other]) = connect().await;
    let guard = client.lock("lock").acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock("lock").acquire().wait(WAIT).into_future());
    let holder = other.lock("lock").holder().await.unwrap().expect("it is held");
    assert_eq!(holder.owner, Some(guard.owner()));
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    client.spin_lock("spin").acquire().wait(WAIT).await.unwrap().release().await.unwrap();

    let rw = client.rw_lock("rw");
    let reads = [rw.read().acquire().await.unwrap(), other.rw_lock("rw").read().acquire().await.unwrap()];
    assert!(rw.write().try_acquire().await.unwrap().is_none());
    drop(reads);
    rw.write().acquire().wait(WAIT).await.unwrap().release().await.unwrap();

    let mut last = 0;
    for client in [&client, &other, &client] {
        let guard = client.fenced_lock("fenced").acquire().wait(WAIT).await.unwrap();
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
    }

    let all = client.multi_lock(["m1", "m2", "m3"]).acquire().wait(WAIT).await.unwrap();
    assert!(all.is_held() && other.lock("m2").try_acquire().await.unwrap().is_none());
    all.release().await.unwrap();

    let group = client.group_lock("group", ["a", "b"]).acquire().await.unwrap();
    assert!(other.group_lock("group", ["b", "c"]).try_acquire().await.unwrap().is_none());
    assert!(other.group_lock("group", ["c"]).try_acquire().await.unwrap().is_some());
    group.release().await.unwrap();

    let (leased, counted) = (client.leased_semaphore("leased"), client.semaphore("counted"));
    assert_eq!(leased.try_set_permits(2).await, Ok(true));
    assert_eq!(counted.try_set_permits(2).await, Ok(true));
    let permits = (leased.acquire(2).await.unwrap(), counted.acquire(2).await.unwrap());
    assert!(other.leased_semaphore("leased").try_acquire(1).await.unwrap().is_none());
    assert!(other.semaphore("counted").try_acquire(1).await.unwrap().is_none());
    permits.0.release().await.unwrap();
    permits.1.release().await.unwrap();
    assert_eq!((leased.available().await, counted.available().await), (Ok(2), Ok(2)));

    let latch = client.latch("latch");
    assert_eq!(latch.try_set_count(1).await, Ok(true));
    let opened = tokio::spawn(other.latch("latch").opened().wait(WAIT).into_future());
    assert_eq!(latch.count_down().await, Ok(0));
    opened.await.unwrap().unwrap();
}

/// The engine is named, and those that have the feature.
fn is_refused(what: &str, cause: Option<InvalidRequestError>) {
    match cause {
        Some(InvalidRequestError::Unsupported { engine: "file", what: of, can }) => {
            assert!(can.contains(&"redis"), "{what}: {of}: {can:?}");
            assert!(!can.contains(&"file"), "{what}: {of}: {can:?}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn cause<T>(result: Result<T, AcquireError>) -> Option<InvalidRequestError> {
    match result {
        Err(AcquireError::Invalid { cause, .. }) => Some(cause),
        _ => None,
    }
}

#[tokio::test]
async fn the_file_engine_refuses_what_it_lacks_and_names_the_engines_that_have_it() {
    let (files, [client, _]) = connect().await;
    is_refused("fair lock", cause(client.fair_lock("n").acquire().await));
    is_refused("fair lock", cause(client.fair_lock("n").try_acquire().await));
    is_refused("SET NX lock", cause(client.setnx_lock("n").acquire().await));
    is_refused("steal", cause(client.lock("n").acquire().steal().await));
    let forced = client.lock("n").force_unlock().await;
    match forced {
        Err(leasehold::QueryError::Invalid { cause, .. }) => is_refused("force_unlock", Some(cause)),
        other => panic!("force_unlock: {other:?}"),
    }
    match client.fenced_write("n", 1, "value").await {
        Err(leasehold::WriteError::Invalid { cause, .. }) => is_refused("fenced_write", Some(cause)),
        other => panic!("fenced_write: {other:?}"),
    }
    let refused = std::fs::read_dir(files.path()).unwrap().count();
    assert_eq!(refused, 0, "a refused request makes no file");

    let reads = client.rw_lock("n").read().acquire().await.unwrap();
    is_refused("try_upgrade", cause(reads.try_upgrade().await));
    assert!(reads.is_held());
    reads.release().await.unwrap();
    let writes = client.rw_lock("n").write().acquire().await.unwrap();
    is_refused("downgrade", cause(writes.downgrade().await));
}
