//! Lock files that are removed, moved away or replaced while one holds and others wait.
//!
//! The lock of the holder excludes no one that opens the path from then on. So the holder is told, and all waiters go on with
//! the new file. A `flock(1)` that was blocked on the old file gets the old file, and runs beside the holder of the new one:
//! no other program can prevent that.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Loss, Operation};
use leasehold_testkit::bench::Files;
use tokio::time::{Instant, sleep, timeout};

use crate::driver;
use crate::flock::{Flock, can_lock};
use crate::support::{Count, blocked, connect, soon};

const NAME: &str = "replaced";
/// inotify tells at once, and a check each second; this is for a busy machine.
const TOLD: Duration = Duration::from_secs(5);

/// What happens to the file of a held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Unlink,
    RenameAway,
    /// Another file is moved over it.
    Replace,
    RemoveDirectory,
    RenameDirectory,
}

impl Act {
    const ALL: [Self; 5] =
        [Self::Unlink, Self::RenameAway, Self::Replace, Self::RemoveDirectory, Self::RenameDirectory];

    fn carry_out(self, file: &Path) {
        let directory = file.parent().unwrap();
        match self {
            Self::Unlink => fs::remove_file(file).unwrap(),
            Self::RenameAway => fs::rename(file, directory.join("away")).unwrap(),
            Self::Replace => {
                fs::write(directory.join("other"), "").unwrap();
                fs::rename(directory.join("other"), file).unwrap();
            }
            // Each file once: a waiter may make the lock file anew at once, and hold it. Then the directory stays.
            Self::RemoveDirectory => {
                fs::remove_file(file).unwrap();
                let removed = fs::remove_dir(directory).map_err(|error| error.kind());
                assert!(matches!(removed, Ok(()) | Err(io::ErrorKind::DirectoryNotEmpty)), "{removed:?}");
            }
            Self::RenameDirectory => fs::rename(directory, away(directory)).unwrap(),
        }
    }
}

/// Where a directory is moved to.
fn away(directory: &Path) -> std::path::PathBuf {
    directory.with_extension("away")
}

/// Waits until a guard is told that it has lost the lock.
async fn told(what: &str, lost: Operation<Loss>) {
    let begun = Instant::now();
    let loss = timeout(TOLD, lost).await.unwrap_or_else(|_| panic!("not told within {TOLD:?}: {what}"));
    assert_eq!(loss, Loss::Gone, "{what}");
    println!("replaced: {what}: told after {:?}", begun.elapsed());
}

/// So many waiters in this process, in another one, and by `flock(1)`.
const HERE: u64 = 6;
const THERE: u64 = 6;
const SHELLS: u64 = 4;

async fn waiters_move_on(act: Act) {
    let (files, count) = (Files::new(), Arc::new(Count::new()));
    let (holding, waiting) = (connect(&files).await, connect(&files).await);
    let other = driver::start("other", &files);
    let file = files.lock_file(NAME);
    let guard = holding.lock(NAME).acquire().await.unwrap();
    let lost = guard.lost();

    let here: Vec<_> = (0..HERE)
        .map(|number| {
            // Some wait beside the holder, in its client.
            let lock = if number % 2 == 0 { waiting.lock(NAME) } else { holding.lock(NAME) };
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                count.add().await;
                drop(guard);
            })
        })
        .collect();
    let there = other.tell("a", &format!("turns {NAME} {THERE} {}", count.path().display()));
    let mut old = Flock::start(&[], &file);
    crate::support::until("flock(1) is blocked on the old file", || blocked(&file) == 1).await;
    assert!(here.iter().all(|waiter| !waiter.is_finished()) && !there.is_answered());
    // Waiters that have no file open yet would see only the new one.
    sleep(Duration::from_millis(20)).await;

    act.carry_out(&file);
    told(&format!("{act:?}"), lost).await;
    assert!(!guard.is_held());

    // These see only the new file. A directory that is gone is made by the first waiter of ours.
    crate::support::until("the file is there again", || file.exists()).await;
    let shells: Vec<_> = (0..SHELLS)
        .map(|_| Command::new("flock").arg(&file).args(["sh", "-c", &count.addition()]).spawn().unwrap())
        .collect();
    for waiter in here {
        soon(&format!("a waiter of this process gets the lock: {act:?}"), waiter).await.unwrap();
    }
    soon(&format!("the waiters of the other process get the lock: {act:?}"), there.ok()).await;
    for mut shell in shells {
        let ended = soon("flock(1) ends", tokio::task::spawn_blocking(move || shell.wait().unwrap()));
        assert!(ended.await.unwrap().success());
    }
    assert_eq!(count.value(), HERE + THERE + SHELLS, "two held the new file at once: {act:?}");
    old.held().await;
    old.release();

    // The guard that was told does not free a later hold, and the lock can be used as before.
    let next = soon("the next holder", waiting.lock(NAME).acquire().into_future()).await.unwrap();
    drop(guard);
    assert!(!can_lock(&[], &file), "the lock is held");
    assert!(next.is_held() && holding.lock(NAME).try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
    assert!(can_lock(&[], &file), "the lock is free");
    let _ = fs::remove_dir_all(away(files.path()));
}

#[tokio::test]
async fn waiters_go_on_with_the_new_file_when_it_is_unlinked() {
    waiters_move_on(Act::Unlink).await;
}

#[tokio::test]
async fn waiters_go_on_with_the_new_file_when_the_old_one_is_moved_away() {
    waiters_move_on(Act::RenameAway).await;
}

#[tokio::test]
async fn waiters_go_on_with_the_new_file_when_another_one_is_moved_over_it() {
    waiters_move_on(Act::Replace).await;
}

#[tokio::test]
async fn waiters_go_on_with_the_new_file_when_the_directory_is_removed() {
    waiters_move_on(Act::RemoveDirectory).await;
}

#[tokio::test]
async fn waiters_go_on_with_the_new_file_when_the_directory_is_moved_away() {
    waiters_move_on(Act::RenameDirectory).await;
}

#[tokio::test]
async fn the_directory_is_made_anew_after_its_removal() {
    let files = Files::new();
    let (client, other) = (connect(&files).await, connect(&files).await);
    let semaphore = client.leased_semaphore(NAME);
    assert_eq!(semaphore.try_set_permits(1).await, Ok(true));
    let guard = client.lock(NAME).acquire().await.unwrap();
    let permits = semaphore.acquire(1).await.unwrap();
    let lost = [guard.lost(), permits.lost()];
    fs::remove_dir_all(files.path()).unwrap();
    for lost in lost {
        told("the directory was removed", lost).await;
    }
    let guard = other.lock(NAME).acquire().await.unwrap();
    assert!(client.lock(NAME).try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(client.lock(NAME).acquire().into_future());
    assert_eq!(semaphore.try_set_permits(2).await, Ok(true));
    let permits = semaphore.acquire(1).await.unwrap();
    assert_eq!(other.leased_semaphore(NAME).available().await, Ok(1), "the client counts as alive");
    permits.release().await.unwrap();
    guard.release().await.unwrap();
    drop(soon("the waiter gets the lock", waiter).await.unwrap().unwrap());
}

/// The file is removed again and again while tasks and another process take turns. A holder whose file was removed may have
/// company; all others may not, and every waiter ends.
#[tokio::test]
async fn no_waiter_is_stranded_by_a_file_that_is_replaced_again_and_again() {
    let files = Files::new();
    let (one, two) = (connect(&files).await, connect(&files).await);
    let file = files.lock_file(NAME);
    for round in 0..60 {
        let guard = one.lock(NAME).acquire().await.unwrap();
        let lost = guard.lost();
        let waiters: Vec<_> = [&one, &two, &two]
            .map(|client| {
                let lock = client.lock(NAME);
                tokio::spawn(async move { drop(lock.acquire().await.unwrap()) })
            })
            .into();
        let act = Act::ALL[round % 4];
        // The waiters are at any point of their first attempt.
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        act.carry_out(&file);
        told(&format!("round {round}, {act:?}"), lost).await;
        for waiter in waiters {
            soon(&format!("round {round}: a waiter after {act:?}"), waiter).await.unwrap();
        }
    }
}

/// Other holds of the directory stay.
#[tokio::test]
async fn only_the_holder_of_the_file_that_is_gone_is_told() {
    let files = Files::new();
    let client = connect(&files).await;
    let others = [client.lock("a").acquire().await.unwrap(), client.lock("b").acquire().await.unwrap()];
    let reads = client.rw_lock("r").read().acquire().await.unwrap();
    let group = client.group_lock("g", ["1"]).acquire().await.unwrap();
    let guard = client.lock(NAME).acquire().await.unwrap();
    let lost = guard.lost();
    Act::Unlink.carry_out(&files.lock_file(NAME));
    told("unlinked beside others", lost).await;
    // The check after which a loss would be reported has run when a second loss is known.
    let lost = reads.lost();
    Act::Unlink.carry_out(&files.lock_file("r"));
    told("a reader", lost).await;
    assert!(others.iter().all(leasehold::Guard::is_held) && group.is_held());
    assert!(!can_lock(&[], &files.lock_file("a")) && !can_lock(&[], &files.lock_file("b")));
}

/// Permits and groups are lines of a table, whose file can be removed, too.
#[tokio::test]
async fn holders_of_permits_and_of_groups_are_told_when_their_table_is_removed() {
    let files = Files::new();
    let client = connect(&files).await;
    let semaphore = client.leased_semaphore(NAME);
    assert_eq!(semaphore.try_set_permits(2).await, Ok(true));
    let permits = semaphore.acquire(1).await.unwrap();
    let group = client.group_lock(NAME, ["a"]).acquire().await.unwrap();
    for (table, lost) in [("permits", permits.lost()), ("group", group.lost())] {
        Act::Unlink.carry_out(&files.path().join(format!("{NAME}.{table}.state")));
        told(table, lost).await;
    }
    assert_eq!(semaphore.available().await, Ok(0));
    assert!(client.group_lock(NAME, ["a"]).try_acquire().await.unwrap().is_some());
}

/// The lock of a spin lock is the plain lock of that name, but its hold is another one.
#[tokio::test]
async fn the_holder_of_a_spin_lock_and_both_halves_of_a_read_write_lock_are_told() {
    let files = Files::new();
    let client = connect(&files).await;
    let spin = client.spin_lock("spin").acquire().await.unwrap();
    let (read, write) = (client.rw_lock("read"), client.rw_lock("write"));
    let (read, write) = (read.read().acquire().await.unwrap(), write.write().acquire().await.unwrap());
    let lost = [spin.lost(), read.lost(), write.lost()];
    for (name, lost) in ["spin", "read", "write"].into_iter().zip(lost) {
        fs::remove_file(files.lock_file(name)).unwrap();
        told(name, lost).await;
    }
    assert!(!spin.is_held() && !read.is_held() && !write.is_held());
}
