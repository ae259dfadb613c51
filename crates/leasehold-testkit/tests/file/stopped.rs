//! A process that is stopped keeps what it holds; a process that is killed does not.

use std::time::Duration;

use leasehold::AcquireError;
use leasehold_testkit::bench::Files;
use tokio::time::Instant;

use crate::driver;
use crate::flock::can_lock;
use crate::support::{connect, signal, soon};

const NAME: &str = "stopped";
/// The watchdog time of the process that is stopped, and how long another client waits for its lock meanwhile.
const WATCHDOG: u64 = 300;
const WAIT: Duration = Duration::from_millis(1500);
/// What a dead process has held is free after this, on a busy machine.
const FREE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_stopped_process_keeps_its_lock_for_longer_than_its_watchdog_time() {
    let files = Files::new();
    let client = connect(&files).await;
    let semaphore = client.leased_semaphore(NAME);
    assert_eq!(semaphore.try_set_permits(2).await, Ok(true));
    let other = driver::start("stopped", &files);
    let thread = |name: &str| format!("{WATCHDOG}/{name}");
    other.ask(&thread("lock"), &format!("lock {NAME}")).await;
    other.ask(&thread("group"), &format!("group {NAME} a")).await;
    other.ask(&thread("leased"), &format!("leased {NAME} 2")).await;

    signal(other.id(), "STOP");
    let (lock, group, leased) = tokio::join!(
        client.lock(NAME).acquire().wait(WAIT).into_future(),
        client.group_lock(NAME, ["a", "b"]).acquire().wait(WAIT).into_future(),
        semaphore.acquire(1).wait(WAIT).into_future(),
    );
    let flock = can_lock(&[], &files.lock_file(NAME));
    signal(other.id(), "CONT");
    for (what, error) in [("lock", lock.err()), ("group", group.err()), ("leased permits", leased.err())] {
        assert!(
            matches!(error, Some(AcquireError::Timeout { .. })),
            "{what} of a stopped process: {error:?}"
        );
    }
    assert!(!flock, "flock(1) got the lock of a stopped process");

    for name in ["lock", "group"] {
        assert_eq!(other.ask(&thread(name), "held").await, "true", "{name}");
    }
    assert!(client.lock(NAME).try_acquire().await.unwrap().is_none());
    other.ask(&thread("lock"), "release").await;
    drop(soon("the lock is free", client.lock(NAME).acquire().into_future()).await.unwrap());
}

#[tokio::test]
async fn what_a_killed_process_held_is_free_at_once_except_counted_permits() {
    let files = Files::new();
    let client = connect(&files).await;
    let (counted, leased) = (client.semaphore(NAME), client.leased_semaphore(NAME));
    assert_eq!(counted.try_set_permits(3).await, Ok(true));
    assert_eq!(leased.try_set_permits(3).await, Ok(true));
    let other = driver::start("killed", &files);
    for (thread, command) in [
        ("a", "lock stopped"),
        ("b", "group stopped x"),
        ("c", "leased stopped 3"),
        ("d", "permits stopped 2"),
    ] {
        other.ask(thread, command).await;
    }
    let group = client.group_lock(NAME, ["x"]);
    // They wait already, so they have to be woken.
    let waiters = (
        tokio::spawn(client.lock(NAME).acquire().into_future()),
        tokio::spawn(group.acquire().into_future()),
        tokio::spawn(leased.acquire(3).into_future()),
    );
    assert!(client.lock(NAME).try_acquire().await.unwrap().is_none());
    assert!(group.try_acquire().await.unwrap().is_none());
    assert!(leased.try_acquire(1).await.unwrap().is_none());

    let begun = Instant::now();
    other.kill();
    let lock = soon("the lock of the dead process", waiters.0).await.unwrap().unwrap();
    println!("stopped: the lock is free after {:?}", begun.elapsed());
    let group = soon("the group of the dead process", waiters.1).await.unwrap().unwrap();
    println!("stopped: the group is free after {:?}", begun.elapsed());
    let permits = soon("the leased permits of the dead process", waiters.2).await.unwrap().unwrap();
    println!("stopped: the leased permits are free after {:?}", begun.elapsed());
    assert!(begun.elapsed() < FREE, "{:?}", begun.elapsed());
    assert!(lock.is_held() && group.is_held() && permits.is_held());
    assert_eq!(leased.available().await, Ok(0));
    permits.release().await.unwrap();
    assert_eq!((leased.available().await, leased.total().await), (Ok(3), Ok(3)));

    // Counted permits belong to no client: they stay taken until they are released by hand.
    assert_eq!(counted.available().await, Ok(1));
    counted.release(2).await.unwrap();
    assert_eq!(counted.available().await, Ok(3));
}
