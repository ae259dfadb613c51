//! Which locks of a directory are held.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::LockKind;
use leasehold_testkit::bench::Files;

use crate::driver;
use crate::flock::Flock;
use crate::support::{connect, until};

#[tokio::test]
async fn own_461_files_are_listed_that_the_kernel_says_are_locked_and_no_others() {
    let files = Files::new();
    let client = connect(&files).await;
    let names = async || {
        let listing = client.list("*").await.unwrap();
        assert!(listing.is_complete);
        listing.locks.into_iter().map(|lock| lock.name).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(names().await, none);

    // A record that its process has left, a file of another program, and names that no lock has.
    let other = driver::start("other", &files);
    let owner = other.ask("a", "lock left").await;
    let record = files.lock_file("left");
    until("the record is written", || fs::read_to_string(&record).unwrap().contains(&owner)).await;
    let found = client.find("left").await.unwrap().expect("another process holds it");
    assert_eq!(found.holder.owner.map(|owner| owner.to_string()), Some(owner));
    let info = found.holder.client.expect("the record names it");
    assert_eq!((info.label.as_deref(), info.pid), (Some("driver"), Some(other.id())));
    assert_eq!(names().await, ["left"]);
    drop(other);
    until("the kernel has freed it", || client.find("left").block().unwrap().is_none()).await;
    for file in ["notes.txt", "a:b.lock", "%zz.lock", "left.token"] {
        fs::write(files.path().join(file), "pid=1 start=1 owner=x\n").unwrap();
    }
    assert_eq!(names().await, none);

    // Of flock(1) the kernel knows the process.
    let flock = Flock::hold(&[], &files.lock_file("coupon:42")).await;
    let found = client.find("coupon:42").await.unwrap().expect("flock(1) holds the file");
    assert_eq!((found.kind, found.holders, found.holder.owner), (LockKind::Lock, 1, None));
    assert_eq!(found.holder.client.and_then(|client| client.pid), Some(flock.id()));
    let readers = [
        Flock::hold(&["-s"], &files.lock_file("shared")).await,
        Flock::hold(&["-s"], &files.lock_file("shared")).await,
    ];
    let found = client.find("shared").await.unwrap().expect("flock(1) holds the file");
    assert_eq!((found.kind, found.holders), (LockKind::Read, 2));
    assert_eq!(names().await, ["coupon:42", "shared"]);
    for flock in readers.into_iter().chain([flock]) {
        flock.release();
    }
    assert_eq!(names().await, none);
}

#[tokio::test]
async fn a_directory_of_many_files_is_listed_as_a_whole() {
    let files = Files::new();
    let client = connect(&files).await;
    let mut guards = Vec::new();
    for n in 0..250 {
        let guard = client.lock(format!("stock:{n}")).acquire().await.unwrap();
        // Every other file is left behind.
        if n % 2 == 0 {
            guards.push(guard);
        } else {
            guard.release().await.unwrap();
        }
    }
    let listing = client.list("stock:*").await.unwrap();
    assert_eq!((listing.locks.len(), listing.is_complete), (guards.len(), true));
    assert_eq!(client.list("*").limit(10).await.unwrap().locks.len(), 10);
}

#[tokio::test]
async fn own_481_files_that_come_and_go_hide_no_lock_of_a_listing_and_repeat_none() {
    let files = Files::new();
    let client = connect(&files).await;
    let mut guards = Vec::new();
    for n in 0..150 {
        guards.push(client.lock(format!("stock:{n:03}")).acquire().await.unwrap());
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let (path, ends) = (files.path().to_owned(), Arc::clone(&is_over));
    // Before those of the locks in the order of their names.
    let others = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            for n in 0..50 {
                fs::write(path.join(format!("a{n}.lock")), "").unwrap();
            }
            for n in 0..50 {
                fs::remove_file(path.join(format!("a{n}.lock"))).unwrap();
            }
            // The listing gets its share of the machine.
            thread::sleep(Duration::from_millis(20));
        }
    });
    for _ in 0..3 {
        let listing = client.list("*").await.unwrap();
        let names: Vec<_> = listing.locks.iter().map(|lock| lock.name.clone()).collect();
        let held: Vec<_> = (0..150).map(|n| format!("stock:{n:03}")).collect();
        assert_eq!(names, held);
    }
    is_over.store(true, Ordering::Relaxed);
    others.join().unwrap();
}
