//! Parts in processes of their own, a count in a file, and waits with a limit.

use std::env;
use std::fs;
use std::future::Future;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::bench::Files;
use tokio::time::{Instant, sleep, timeout};

/// The directory of the locks, for a part.
const DIRECTORY: &str = "LEASEHOLD_PART_DIRECTORY";

/// Longer than anything takes here on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// This binary, running one test and nothing else, on the locks of this directory.
pub(crate) fn part(test: &str, files: &Files) -> Command {
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(DIRECTORY, files.path());
    command
}

/// The URL of the locks, in a process that was started as a part.
pub(crate) fn url_of_part() -> Option<String> {
    env::var(DIRECTORY).ok().map(|directory| format!("file://{directory}"))
}

/// A new client of these locks.
pub(crate) async fn connect(files: &Files) -> Client {
    Client::connect(leasehold_testkit::bench::Backend::url(files)).await.unwrap()
}

/// A number from the environment, for runs that are longer or shorter than usual.
pub(crate) fn number(variable: &str, usual: u64) -> u64 {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => usual,
    }
}

/// Waits for a result, which has to be there within a limit.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}

/// Polls until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Sends a signal to a process that a test has started.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(sent.success(), "SIG{name} to {process}: {sent}");
}

/// The lines of the kernel's list about a file: its holders, and with an arrow its blocked waiters.
pub(crate) fn kernel_lines(file: &Path) -> Vec<String> {
    let Ok(metadata) = fs::metadata(file) else { return Vec::new() };
    let number = format!(":{} ", metadata.ino());
    let (mut list, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    let mut file = fs::File::open("/proc/locks").unwrap();
    // Lines may be missed between two reads, so there are as few as possible.
    while let length @ 1.. = file.read(&mut piece).unwrap() {
        list.extend_from_slice(&piece[..length]);
    }
    let locks = String::from_utf8(list).unwrap();
    locks.lines().filter(|line| line.contains("FLOCK") && line.contains(&number)).map(str::to_owned).collect()
}

/// How many processes are blocked in `flock(2)` on a file.
pub(crate) fn blocked(file: &Path) -> usize {
    kernel_lines(file).iter().filter(|line| line.contains("->")).count()
}

/// A count in a file that all processes change by reading, waiting and writing: two at once lose an increment.
pub(crate) struct Count(PathBuf);

impl Count {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("leasehold-count-{}-{number}", std::process::id()));
        fs::write(&path, "0\n").unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn value(&self) -> u64 {
        read(&self.0)
    }

    pub(crate) async fn add(&self) {
        add(&self.0).await;
    }

    /// The same addition as a shell command.
    pub(crate) fn addition(&self) -> String {
        let path = self.0.display();
        format!("n=$(cat {path}); sleep 0.002; echo $((n + 1)) > {path}")
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn read(path: &Path) -> u64 {
    fs::read_to_string(path).unwrap().trim().parse().expect("two write the count at once")
}

/// Adds one to the count in a file, slowly enough that a concurrent addition would interfere.
pub(crate) async fn add(path: &Path) {
    let seen = read(path);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(read(path), seen, "two held the lock at once");
    fs::write(path, format!("{}\n", seen + 1)).unwrap();
}
