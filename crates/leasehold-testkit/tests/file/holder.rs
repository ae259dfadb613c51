//! Who holds a lock: across processes, beside `flock(1)`, and after a holder has died.

use std::fs;
use std::time::Duration;

use leasehold_testkit::bench::Files;
use tokio::time::sleep;

use crate::driver;
use crate::flock::Flock;
use crate::support::{connect, soon, until};

const NAME: &str = "who";

#[tokio::test]
async fn the_owner_in_another_process_is_known_and_its_record_can_be_read() {
    let files = Files::new();
    let client = connect(&files).await;
    assert!(client.lock(NAME).holder().await.unwrap().is_none());
    let other = driver::start("other", &files);
    let owner = other.ask("a", &format!("lock {NAME}")).await;

    // It is written when the hold has lasted for a moment.
    let read = || fs::read_to_string(files.lock_file(NAME)).unwrap();
    until("the record is written", || read().contains(&owner)).await;
    let holder = client.lock(NAME).holder().await.unwrap().expect("the lock is held");
    assert_eq!(holder.owner.map(|owner| owner.to_string()).as_deref(), Some(owner.as_str()));
    assert!(client.lock(NAME).is_locked().await.unwrap());
    let record = read();
    assert_eq!(record.lines().count(), 1, "{record}");
    let field = |key: &str| {
        let find = |word: &str| word.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
        record.split_whitespace().find_map(find).unwrap_or_else(|| panic!("no {key}: {record}"))
    };
    assert_eq!(field("pid"), other.id().to_string());
    assert_eq!(field("host"), fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim());
    assert_eq!(field("owner"), owner);
    assert_eq!(field("label"), "driver");
    let since = field("since");
    assert!(since.len() == 20 && since.starts_with("20") && since.ends_with('Z'), "{since}");

    other.ask("a", "release").await;
    assert!(client.lock(NAME).holder().await.unwrap().is_none(), "a record without a lock is not believed");
}

/// The query waits for the record, unless the other process gets no time for it.
#[tokio::test]
async fn the_owner_of_a_hold_that_has_just_begun_in_another_process_is_known() {
    const HOLDS: usize = 10;
    let files = Files::new();
    let client = connect(&files).await;
    let other = driver::start("other", &files);
    let mut known = 0;
    for number in 0..HOLDS {
        let name = format!("{NAME}:{number}");
        let owner = other.ask(&format!("t{number}"), &format!("lock {name}")).await;
        let holder = client.lock(&name).holder().await.unwrap().expect("the lock is held");
        if let Some(found) = holder.owner {
            assert_eq!(found.to_string(), owner);
            known += 1;
        }
    }
    assert!(known > HOLDS / 2, "{known} of {HOLDS} owners are known");
}

#[tokio::test]
async fn a_holder_by_flock_is_a_holder_without_an_owner() {
    let files = Files::new();
    let client = connect(&files).await;
    let flock = Flock::hold(&[], &files.lock_file(NAME)).await;
    let holder = client.lock(NAME).holder().await.unwrap().expect("flock(1) holds the file");
    assert_eq!(holder.owner, None);
    assert!(client.lock(NAME).try_acquire().await.unwrap().is_none());
    flock.release();
    assert!(client.lock(NAME).holder().await.unwrap().is_none());
}

/// The record stays in the file when its process is killed. If its holder lives, the kernel still names another process.
#[tokio::test]
async fn the_record_of_an_earlier_holder_is_not_believed_while_flock_holds_the_file() {
    let files = Files::new();
    let client = connect(&files).await;
    let read = || fs::read_to_string(files.lock_file(NAME)).unwrap();
    for dies in [true, false] {
        let other = driver::start("other", &files);
        let owner = other.ask("a", &format!("lock {NAME}")).await;
        until("the record is written", || read().contains(&owner)).await;
        let record = read();
        if dies {
            other.kill();
        } else {
            other.ask("a", "release").await;
            fs::write(files.lock_file(NAME), &record).unwrap();
        }
        let flock = Flock::hold(&[], &files.lock_file(NAME)).await;
        assert_eq!(read(), record, "flock(1) does not change the file");
        let holder = client.lock(NAME).holder().await.unwrap().expect("flock(1) holds the file");
        assert_eq!(holder.owner, None, "dies: {dies}");
        flock.release();
    }
}

#[tokio::test]
async fn an_owner_of_the_same_client_is_found_among_several() {
    let files = Files::new();
    let client = connect(&files).await;
    let lock = client.rw_lock(NAME);
    let readers = [lock.read().acquire().await.unwrap(), lock.read().acquire().await.unwrap()];
    for reader in &readers {
        assert!(lock.read().is_held_by(reader.owner()).await.unwrap());
    }
    let [first, second] = readers;
    let gone = first.owner();
    first.release().await.unwrap();
    assert!(!lock.read().is_held_by(&gone).await.unwrap());
    assert!(lock.read().is_held_by(second.owner()).await.unwrap());
}

#[tokio::test]
async fn a_query_about_a_holder_does_not_disturb_others() {
    let files = Files::new();
    let (client, asking) = (connect(&files).await, connect(&files).await);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let queries = {
        let (stop, lock) = (std::sync::Arc::clone(&stop), asking.lock(NAME));
        tokio::spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                lock.holder().await.unwrap();
            }
        })
    };
    for round in 0..500 {
        let guard = client.lock(NAME).try_acquire().await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("round {round}: a query keeps others out"));
        guard.release().await.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    soon("the queries end", queries).await.unwrap();
    until("the file is free", || crate::flock::can_lock(&[], &files.lock_file(NAME))).await;
}

/// The kernel's list of all locks of the machine changes while it is read: so many do not fit into one piece of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_found_while_other_locks_come_and_go() {
    const MANY: usize = 150;
    let (files, others) = (Files::new(), Files::new());
    let (asking, busy) = (connect(&files).await, connect(&others).await);
    // A holder in this process would be found without the list.
    let other = driver::start("other", &files);
    let mut owners = Vec::new();
    for number in 0..MANY {
        owners.push(other.ask(&format!("t{number}"), &format!("lock {NAME}:{number}")).await);
    }
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let busy = busy.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    drop(busy.lock(format!("{task} {}", number % 10)).acquire().await.unwrap());
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for query in 0..10 * MANY {
        let number = query % MANY;
        let holder = asking.lock(format!("{NAME}:{number}")).holder().await.unwrap();
        let holder = holder.unwrap_or_else(|| panic!("query {query}: the lock is held"));
        let owner = holder.owner.map(|owner| owner.to_string());
        assert_eq!(owner.as_ref(), Some(&owners[number]), "query {query}");
    }
    for task in tasks {
        assert!(!task.is_finished());
        task.abort();
    }
}

/// `Cargo.lock`, `yarn.lock`: a directory of locks may be the wrong one.
#[tokio::test]
async fn a_file_that_another_program_has_written_is_locked_and_stays_as_it_is() {
    let files = Files::new();
    let client = connect(&files).await;
    let content = "# generated, do not edit\n".repeat(20);
    fs::write(files.lock_file("Cargo"), &content).unwrap();
    let (theirs, ours) = (client.lock("Cargo"), client.lock(NAME));
    let held = (theirs.acquire().await.unwrap(), ours.acquire().await.unwrap());
    until("the record of the other hold is written", || {
        fs::read_to_string(files.lock_file(NAME)).unwrap().contains("owner=")
    })
    .await;
    assert!(theirs.try_acquire().await.unwrap().is_none());
    held.0.release().await.unwrap();
    held.1.release().await.unwrap();
    assert_eq!(fs::read_to_string(files.lock_file("Cargo")).unwrap(), content);
    let record = fs::read_to_string(files.lock_file(NAME)).unwrap();
    assert!(record.starts_with("pid=- "), "the record names no holder after the release: {record}");
}

/// A release is complete when it returns, whatever else this client does with its files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_lock_is_free_at_once_while_records_and_checks_go_on() {
    let files = Files::new();
    let (client, elsewhere) = (connect(&files).await, connect(&files).await);
    let mut held = vec![client.group_lock("group", ["kept"]).acquire().await.unwrap()];
    for number in 0..300 {
        held.push(client.lock(format!("many:{number}")).acquire().await.unwrap());
    }
    // From its first wait on a client is told about changes, and each one of the group makes it check all that it holds.
    let busy = elsewhere.lock("busy").acquire().await.unwrap();
    assert!(client.lock("busy").acquire().wait(Duration::from_millis(5)).await.is_err());
    let changing = elsewhere.group_lock("group", ["changed"]);
    let changes = tokio::spawn(async move {
        loop {
            changing.acquire().await.unwrap().release().await.unwrap();
        }
    });
    for round in 0..300 {
        let guard = client.lock(NAME).acquire().await.unwrap();
        // Some long enough for a record, others for any moment of a check.
        let length = if round % 4 == 0 { 11_000 } else { round * 10 };
        sleep(Duration::from_micros(length)).await;
        guard.release().await.unwrap();
        let free = elsewhere.lock(NAME).try_acquire().await.unwrap();
        assert!(free.is_some(), "round {round}: it was released");
    }
    assert!(!changes.is_finished() && held.iter().all(leasehold::Guard::is_held));
    changes.abort();
    drop(busy);
}
