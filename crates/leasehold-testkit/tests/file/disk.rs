//! A disk that is full, has no inodes left, or is read-only: clear errors, and nothing is lost.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::bench::Files;
use tokio::time::{Instant, sleep};

use crate::flock::can_lock;
use crate::support::{LONG, connect, soon};

/// A client that does not wait long for a disk that can be written.
async fn impatient(files: &Files) -> Client {
    let url = format!("file://{}", files.path().display());
    Client::connect(url).outage_limit(WAIT).await.unwrap()
}

/// A small file system of its own, which is unmounted with this.
struct Disk {
    path: PathBuf,
    mounts: u32,
    /// The file system itself, which stays writable below a view of it.
    below: Option<File>,
}

impl Disk {
    fn mount() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leasehold-disk-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mut disk = Self { path, mounts: 0, below: None };
        disk.run("mount", &["-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "tmpfs"]);
        disk.mounts = 1;
        disk.below = Some(File::open(&disk.path).unwrap());
        disk
    }

    /// Makes it read-only: by a view of it on top, because files that are open for writing keep the kernel from changing the
    /// file system itself. It has the same files.
    fn make_read_only(&mut self) {
        let own = self.path.display().to_string();
        self.run("mount", &["--bind", &own]);
        self.mounts += 1;
        self.run("mount", &["-o", "remount,bind,ro"]);
    }

    fn make_writable(&mut self) {
        self.run("mount", &["-o", "remount,bind,rw"]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(program).args(arguments).arg(&self.path).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}this test mounts a tmpfs: run it as root, in a container with CAP_SYS_ADMIN",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Removes the file of a lock, also from a disk that is read-only.
    fn remove_lock(&self, name: &str) {
        let below = self.below.as_ref().unwrap().as_raw_fd();
        fs::remove_file(format!("/proc/self/fd/{below}/locks/{name}.lock")).unwrap();
    }

    /// The directory of the locks.
    fn files(&self) -> Files {
        Files::at(self.path.join("locks"))
    }

    /// Writes until there is no space.
    fn fill(&self) {
        let mut file = File::create(self.path.join("ballast")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
        assert_eq!(fs::write(self.path.join("more"), [0; 512]).unwrap_err().raw_os_error(), Some(28));
        fs::remove_file(self.path.join("more")).unwrap();
    }

    fn use_all_inodes(&self) {
        fs::create_dir(self.path.join("many")).unwrap();
        let made = (0..).take_while(|number| File::create(self.path.join(format!("many/{number}"))).is_ok());
        assert!((1..64).contains(&made.count()));
    }

    fn free(&self) {
        let _ = fs::remove_file(self.path.join("ballast"));
        let _ = fs::remove_dir_all(self.path.join("many"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for _ in 0..self.mounts {
            // Files may still be open, in a test that has failed.
            let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// What there is before the disk is full. Each of these has one hold.
struct Held {
    lock: leasehold::Guard,
    fenced: leasehold::FencedGuard,
    permits: leasehold::SemaphorePermits,
    leased: leasehold::LeasedPermits,
    group: leasehold::Guard,
}

impl Held {
    async fn new(client: &Client) -> Self {
        assert_eq!(client.semaphore("s").try_set_permits(3).await, Ok(true));
        assert_eq!(client.leased_semaphore("l").try_set_permits(3).await, Ok(true));
        assert_eq!(client.latch("c").try_set_count(2).await, Ok(true));
        // It is there and free.
        client.lock("free").acquire().await.unwrap().release().await.unwrap();
        let fenced = client.fenced_lock("f").acquire().await.unwrap();
        assert_eq!(fenced.token(), 1);
        Self {
            lock: client.lock("held").acquire().await.unwrap(),
            fenced,
            permits: client.semaphore("s").acquire(1).await.unwrap(),
            leased: client.leased_semaphore("l").acquire(1).await.unwrap(),
            group: client.group_lock("g", ["a"]).acquire().await.unwrap(),
        }
    }

    fn are_held(&self, files: &Files) {
        assert!(
            self.lock.is_held() && self.fenced.is_held() && self.leased.is_held() && self.group.is_held()
        );
        assert!(!can_lock(&[], &files.lock_file("held")) && !can_lock(&[], &files.lock_file("f")));
    }
}

/// Every state that was there before, by a query.
async fn counts(client: &Client) -> (i64, i64, i64, u64) {
    let leased = client.leased_semaphore("l");
    (
        client.semaphore("s").available().await.unwrap(),
        leased.available().await.unwrap(),
        leased.acquired().await.unwrap(),
        client.latch("c").count().await.unwrap(),
    )
}

/// How long requests fail: a full disk may be freed meanwhile. Longer than one attempt takes on a busy machine.
const WAIT: Duration = Duration::from_secs(1);

/// A request fails, and its error names the file and says what to do.
async fn fails<T: std::fmt::Debug, E: std::fmt::Display>(
    what: &str,
    request: impl IntoFuture<Output = Result<T, E>>,
    file: &Path,
    advice: &str,
) {
    let error = request.await.map_err(|error| error.to_string()).expect_err(what);
    println!("disk: {what}: {error}");
    assert!(error.contains(&*file.to_string_lossy()) && error.contains(advice), "{what}: {error}");
}

/// A disk, and one hold of each kind on it.
struct Stage {
    client: Client,
    files: Files,
    held: Held,
    /// A lock whose file is removed: its loss means that all holds are checked.
    removed: leasehold::Guard,
    disk: Disk,
}

impl Stage {
    async fn new() -> Self {
        let disk = Disk::mount();
        let files = disk.files();
        let client = impatient(&files).await;
        let held = Held::new(&client).await;
        let removed = client.lock("removed").acquire().await.unwrap();
        Self { client, files, held, removed, disk }
    }

    /// The disk cannot be written: what has to be written fails, all else works, and nothing is lost.
    async fn is_usable(&self, advice: &str) {
        self.changes_fail(advice).await;
        self.plain_locks_work().await;
        let lost = self.removed.lost();
        self.disk.remove_lock("removed");
        soon("the check of all holds finds that one is lost", lost).await;
        assert_eq!(counts(&self.client).await, (2, 2, 1, 2));
        self.held.are_held(&self.files);
    }

    /// Requests that have to write fail, and change nothing.
    async fn changes_fail(&self, advice: &str) {
        let Self { client, files, .. } = self;
        let [semaphore, leased, latch, new_latch, group, new] =
            ["s.semaphore", "l.permits", "c.latch", "new.latch", "g.group", "new."]
                .map(|file| files.path().join(file));
        // At the same time, because each takes as long as it may.
        tokio::join!(
            fails("permits", client.semaphore("s").acquire(1).wait(WAIT), &semaphore, advice),
            fails("a change of permits", client.semaphore("s").add_permits(5), &semaphore, advice),
            fails("drain", client.semaphore("s").drain(), &semaphore, advice),
            fails("leased permits", client.leased_semaphore("l").acquire(1).wait(WAIT), &leased, advice),
            fails("a change of leased permits", client.leased_semaphore("l").add_permits(5), &leased, advice),
            fails("the latch", client.latch("c").count_down(), &latch, advice),
            fails("a new latch", client.latch("new").try_set_count(3), &new_latch, advice),
            fails("a group", client.group_lock("g", ["b"]).acquire().wait(WAIT), &group, advice),
            fails("a new token", client.fenced_lock("new").acquire().wait(WAIT), &new, advice),
        );
        // Without its token it is not held.
        assert!(!client.lock("new").is_locked().await.unwrap());
    }

    /// A lock whose file is not there yet.
    async fn new_locks_fail(&self, advice: &str) {
        let new = self.client.lock("another").acquire().wait(WAIT);
        fails("a new lock", new, &self.files.lock_file("another"), advice).await;
    }

    /// Locks that need no space: an existing file, whose record is of no importance.
    async fn plain_locks_work(&self) {
        let file = self.files.lock_file("free");
        let guard = self.client.lock("free").acquire().wait(WAIT).await.unwrap();
        assert!(guard.is_held() && !can_lock(&[], &file));
        guard.release().await.unwrap();
        assert!(can_lock(&[], &file));
        let reads = self.client.rw_lock("free").read().acquire().wait(WAIT).await.unwrap();
        assert!(can_lock(&["-s"], &file) && !can_lock(&[], &file));
        reads.release().await.unwrap();
    }

    /// The space is there again: what was held is held, nothing has been lost, and all of it can be released.
    async fn nothing_is_lost(self) {
        let Self { client, files, held, removed: _removed, disk: _disk } = self;
        held.are_held(&files);
        assert_eq!(counts(&client).await, (2, 2, 1, 2));
        assert!(!client.lock("new").is_locked().await.unwrap());
        let Held { lock, fenced, permits, leased, group } = held;
        let token = fenced.token();
        lock.release().await.unwrap();
        fenced.release().await.unwrap();
        permits.release().await.unwrap();
        leased.release().await.unwrap();
        group.release().await.unwrap();
        assert_eq!(counts(&client).await, (3, 3, 0, 2));
        let next = client.fenced_lock("f").acquire().await.unwrap();
        assert!(next.token() > token, "{} after {token}", next.token());
        assert_eq!(client.fenced_lock("new").acquire().await.unwrap().token(), 1);
        assert!(client.group_lock("g", ["a", "b"]).try_acquire().await.unwrap().is_some());
        assert_eq!(client.latch("c").count_down().await, Ok(1));
        for name in ["held", "free"] {
            assert!(can_lock(&[], &files.lock_file(name)), "{name}");
        }
    }
}

#[tokio::test]
async fn a_full_disk_gives_clear_errors_and_loses_nothing() {
    let stage = Stage::new().await;
    stage.disk.fill();
    stage.is_usable("free some space").await;
    stage.disk.free();
    stage.nothing_is_lost().await;
}

#[tokio::test]
async fn a_disk_without_inodes_gives_clear_errors_and_loses_nothing() {
    let stage = Stage::new().await;
    stage.disk.use_all_inodes();
    stage.new_locks_fail("free some space").await;
    stage.is_usable("free some space").await;
    stage.disk.free();
    stage.nothing_is_lost().await;
}

#[tokio::test]
async fn a_read_only_disk_gives_clear_errors_and_loses_nothing() {
    const ADVICE: &str = "name a directory that can be written";
    let mut stage = Stage::new().await;
    stage.disk.make_read_only();
    stage.new_locks_fail(ADVICE).await;
    let fenced = stage.client.fenced_lock("free").acquire().wait(WAIT);
    fails("a token", fenced, &stage.files.path().join("free.token"), ADVICE).await;
    stage.is_usable(ADVICE).await;
    stage.disk.make_writable();
    stage.nothing_is_lost().await;
}

/// A new client says at once that it can do nothing there.
#[tokio::test]
async fn a_client_of_a_read_only_disk_without_the_directory_is_refused() {
    let mut disk = Disk::mount();
    disk.make_read_only();
    let files = disk.files();
    let url = format!("file://{}", files.path().display());
    fails("connect", Client::connect(url), files.path(), "cannot be used").await;
}

/// Locks are released on a full disk; permits, whose table cannot be written, as soon as there is space again.
#[tokio::test]
async fn what_is_released_on_a_full_disk_is_free_when_there_is_space() {
    let disk = Disk::mount();
    let files = disk.files();
    let (client, other) = (connect(&files).await, connect(&files).await);
    let Held { lock, fenced, permits, leased, group } = Held::new(&client).await;
    disk.fill();
    lock.release().await.unwrap();
    fenced.release().await.unwrap();
    assert!(can_lock(&[], &files.lock_file("held")) && can_lock(&[], &files.lock_file("f")));
    // Dropped: the release goes on in the background. That of the group would free some space.
    drop((permits, leased));
    sleep(WAIT / 10).await;
    assert_eq!(counts(&other).await, (2, 2, 1, 2), "nothing can be written");
    disk.free();
    drop(group);
    let begun = Instant::now();
    while counts(&other).await != (3, 3, 0, 2) {
        assert!(
            begun.elapsed() < LONG,
            "permits are not released within {LONG:?}: {:?}",
            counts(&other).await
        );
        sleep(Duration::from_millis(20)).await;
    }
    let group = other.group_lock("g", ["a"]).acquire().wait(LONG).await.unwrap();
    group.release().await.unwrap();
    println!("disk: released {:?} after there is space", begun.elapsed());
}

/// A waiter waits until there is space, not only until the lock is free.
#[tokio::test]
async fn a_waiter_gets_what_it_waits_for_when_there_is_space_again() {
    let disk = Disk::mount();
    let files = disk.files();
    let (client, other) = (connect(&files).await, connect(&files).await);
    assert_eq!(client.semaphore("s").try_set_permits(3).await, Ok(true));
    disk.fill();
    let waiter = tokio::spawn(other.semaphore("s").acquire(3).wait(LONG).into_future());
    sleep(WAIT / 10).await;
    disk.free();
    match waiter.await.unwrap() {
        Ok(permits) => permits.release().await.unwrap(),
        // It may also say at once what is wrong.
        Err(error) => assert!(error.to_string().contains("free some space"), "{error}"),
    }
    assert_eq!(client.semaphore("s").available().await, Ok(3));
}
