//! Open files: as many as there are held locks, and none more afterwards.

use std::env;
use std::fs;
use std::future::{Future as _, poll_fn};
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use leasehold::{AcquireError, Client};
use leasehold_testkit::bench::Files;

use crate::support::{connect, number, part, until, url_of_part};

/// How many locks a part holds.
const LOCKS: &str = "LEASEHOLD_PART_LOCKS";
/// Which part runs.
const PART: &str = "LEASEHOLD_PART_DESCRIPTORS";

/// How many files this process has open.
fn open() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What these files are.
fn opened() -> Vec<String> {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}

/// Runs a part in a process of its own, with this limit of open files: other tests open files, too.
fn run(part_name: &str, files: &Files, limit: u32, locks: u64) {
    let program = part("", files).get_program().to_owned();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")])
        .arg(program)
        .args([part_name, "--exact", "--nocapture", "--test-threads=1"])
        .envs(part("", files).get_envs().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))))
        .env(PART, part_name)
        .env(LOCKS, locks.to_string());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter(|line| line.starts_with("descriptors: ")).for_each(|line| println!("{line}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the part ended with {}\n{said}\n{errors}", output.status);
}

/// The URL and the number of locks, in a process that runs this part.
fn is_part(name: &str) -> Option<(String, usize)> {
    let url = url_of_part().filter(|_| env::var(PART).is_ok_and(|part| part == name))?;
    Some((url, usize::try_from(number(LOCKS, 0)).unwrap()))
}

const ROUNDS: &str = "descriptors::child_process_that_acquires_waits_and_gives_up";
const HOLDS: &str = "descriptors::child_process_that_holds_many_locks";
const TOO_MANY: &str = "descriptors::child_process_that_holds_more_locks_than_it_may";

#[test]
fn a_thousand_rounds_of_acquiring_waiting_and_giving_up_leave_no_file_open() {
    run(ROUNDS, &Files::new(), 256, 1_000);
}

#[tokio::test]
async fn child_process_that_acquires_waits_and_gives_up() {
    let Some((url, rounds)) = is_part(ROUNDS) else { return };
    let none = open();
    let (one, two) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
    one.semaphore("s").try_set_permits(1).await.unwrap();
    one.leased_semaphore("l").try_set_permits(1).await.unwrap();
    // A client that waits opens inotify, and keeps it.
    for (number, [holds, waits]) in [[&one, &two], [&two, &one]].into_iter().enumerate() {
        let guard = holds.lock("n0").acquire().await.unwrap();
        let waiter = tokio::spawn(waits.lock("n0").acquire().into_future());
        let inotify = || opened().iter().filter(|file| file.contains("inotify")).count();
        until("the client that waits watches the files", || inotify() == 2 * (number + 1)).await;
        drop(guard);
        drop(crate::support::soon("the waiter gets the lock", waiter).await.unwrap().unwrap());
    }
    let (mut before, mut known) = (0, Vec::new());
    for round in 0..rounds {
        // The first ones open what else a client keeps for good.
        if round == 20 {
            (before, known) = (open(), opened());
        }
        let name = format!("n{}", round % 10);
        let guard = one.lock(&name).acquire().await.unwrap();
        assert!(two.lock(&name).try_acquire().await.unwrap().is_none());
        let short = two.lock(&name).acquire().wait(Duration::from_micros(200)).await;
        assert!(matches!(short, Err(AcquireError::Timeout { .. })), "{short:?}");
        // One is cancelled after its first poll, one while it waits, and one gets the lock.
        let lock = two.lock(&name);
        let mut cancelled = Box::pin(lock.acquire().into_future());
        poll_fn(|context| {
            assert!(cancelled.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let waiting = tokio::spawn(two.lock(&name).acquire().into_future());
        let waiter = tokio::spawn(two.rw_lock(&name).write().acquire().into_future());
        tokio::task::yield_now().await;
        drop(cancelled);
        waiting.abort();
        // A token is written to the disk, which takes a while.
        let fenced =
            if round % 10 == 0 { Some(two.fenced_lock("fenced").acquire().await.unwrap()) } else { None };
        let permits = (
            one.semaphore("s").acquire(1).await.unwrap(),
            one.leased_semaphore("l").acquire(1).await.unwrap(),
            two.group_lock("g", ["a"]).acquire().await.unwrap(),
        );
        drop((guard, fenced));
        // The cancelled task may have been granted the lock before.
        let _ = waiting.await;
        drop(crate::support::soon("the waiter gets the lock", waiter).await.unwrap().unwrap());
        permits.0.release().await.unwrap();
        permits.1.release().await.unwrap();
        permits.2.release().await.unwrap();
    }
    until(&format!("no more files are open than {known:?}: {:?}", opened()), || open() <= before).await;
    println!("descriptors: {rounds} rounds, {before} before and {} after", open());
    drop((one, two));
    until("the clients have closed all of their files", || open() <= none).await;
}

#[test]
fn ten_thousand_held_locks_need_ten_thousand_open_files() {
    run(HOLDS, &Files::new(), 10_100, 10_000);
}

#[tokio::test]
async fn child_process_that_holds_many_locks() {
    let Some((url, locks)) = is_part(HOLDS) else { return };
    let client = Client::connect(&url).await.unwrap();
    drop(client.lock("first").acquire().await.unwrap());
    let before = open();
    let mut guards = Vec::new();
    for number in 0..locks {
        guards.push(client.lock(format!("n{number}")).acquire().await.unwrap());
    }
    let more = open() - before;
    assert!((locks..locks + 10).contains(&more), "{more} more files are open");
    assert!(guards.iter().all(leasehold::Guard::is_held));
    drop(guards);
    until("all files are closed", || open() <= before + 10).await;
    println!("descriptors: {more} more for {locks} held locks");
}

#[test]
fn too_few_open_files_are_an_error_that_says_which_limit_to_raise() {
    run(TOO_MANY, &Files::new(), 64, 64);
}

#[tokio::test]
async fn child_process_that_holds_more_locks_than_it_may() {
    let Some((url, most)) = is_part(TOO_MANY) else { return };
    let client = Client::connect(&url).await.unwrap();
    let mut guards = Vec::new();
    let error = loop {
        match client.lock(format!("n{}", guards.len())).acquire().wait(Duration::from_millis(200)).await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error.to_string(),
        }
        assert!(guards.len() < most, "more locks are held than files may be open");
    };
    println!("descriptors: {} locks, then: {error}", guards.len());
    assert!(guards.len() > most / 2, "{}", guards.len());
    let file = format!("n{}.lock", guards.len());
    assert!(error.contains("ulimit -n") && error.contains(&file), "{error}");
    assert!(guards.iter().all(leasehold::Guard::is_held));
    // With one file less the next lock can be had.
    guards.pop().unwrap().release().await.unwrap();
    client.lock("next").acquire().wait(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
}

/// A wait ends when its files are closed, not when a held lock is released.
#[tokio::test]
async fn a_waiter_that_gives_up_closes_its_file() {
    let files = Files::new();
    let (client, other) = (connect(&files).await, connect(&files).await);
    let guard = client.lock("n").acquire().await.unwrap();
    let file = files.lock_file("n");
    let opened = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == file)).count()
    };
    assert_eq!(opened(), 1);
    for _ in 0..20 {
        let waiter = tokio::spawn(other.lock("n").acquire().into_future());
        until("the waiter has the file open", || opened() == 2).await;
        waiter.abort();
        until("the file of the waiter is closed", || opened() == 1).await;
    }
    assert!(guard.is_held());
}
