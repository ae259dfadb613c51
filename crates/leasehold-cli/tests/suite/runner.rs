//! `leasehold run` as a process, watched from outside.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_testkit::server::Server;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Finished, program, start};
use crate::patience::{Lines, ended};

pub(crate) fn is_locked(server: &Server, name: &str) -> bool {
    server.cli(&["EXISTS", name]) == 1
}

pub(crate) fn pid(process: &Child) -> Pid {
    Pid::from_raw(process.id().try_into().expect("a process number"))
}

/// How messages name the holder of a lock that is the `run` of this process.
pub(crate) fn holder_text(pid: &str) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    format!("leasehold-run (host {}, pid {pid})", host.trim())
}

/// The signals in a line of `/proc/PID/status`, but for those above 31, which the C library reserves.
pub(crate) fn signals(line: &str) -> u64 {
    let (_, bits) = line.split_once(":\t").expect("a line about signals");
    u64::from_str_radix(bits, 16).expect("a mask of signals") & 0x7fff_ffff
}

/// A file name of this test's own. The file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TestFile(PathBuf);

impl TestFile {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("run-{}-{number}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    /// The content of the file, which may be empty yet.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A directory of this test's own. It is removed with its content when this is dropped.
#[derive(Debug)]
pub(crate) struct TestDirectory(PathBuf);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        let path = PathBuf::from(TestFile::new().path());
        fs::create_dir(&path).expect("a name of its own");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The URL of the locks in it.
    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    /// The file of a lock in it.
    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.lock"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).expect("it was made").next().is_none()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether no process holds the lock of this file, found out as `flock -n` does.
pub(crate) fn is_free(lock: &Path) -> bool {
    let file =
        fs::OpenOptions::new().write(true).create(true).truncate(false).open(lock).expect("a lock file");
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_released) => true,
        Err((_, Errno::EWOULDBLOCK)) => false,
        Err((_, error)) => panic!("{}: {error}", lock.display()),
    }
}

/// Whether a process can still run: not if it is dead, or dies and has no memory any more.
pub(crate) fn lives(process: Pid) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// The processes of a group that can still run.
pub(crate) fn living(group: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("Linux has it").filter_map(|entry| {
        let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The name of the program, in brackets, may contain anything.
        let mut fields = status.rsplit_once(')')?.1.split_whitespace();
        (fields.nth(2)? == group.to_string()).then_some(Pid::from_raw(number))
    });
    processes.filter(|process| lives(*process)).collect()
}

/// `leasehold run ARGUMENTS -- sh -c SCRIPT sh` at this server, not yet started.
pub(crate) fn run(url: &str, arguments: &str, script: &str) -> Command {
    let mut command = run_plain(url, arguments);
    command.args(["--", "sh", "-c", script, "sh"]);
    command
}

/// The same without a command.
pub(crate) fn run_plain(url: &str, arguments: &str) -> Command {
    let mut command = start(program());
    command.arg("run").args(arguments.split_whitespace()).env("LEASEHOLD_URL", url);
    command
}

/// A run in progress. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Runner {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    stderr: Lines,
}

impl Runner {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built with this test");
        let stdout = Lines::of(process.stdout.take().expect("a pipe"));
        let stderr = Lines::of(process.stderr.take().expect("a pipe"));
        Self { stdin: process.stdin.take(), process, stdout, stderr }
    }

    /// The next line on the standard output, as soon as it is there; empty at the end.
    pub(crate) fn line(&self) -> String {
        self.stdout.next("a line on the standard output").unwrap_or_default().trim_end().to_owned()
    }

    /// Waits for the next line on the standard output, which must be this one.
    pub(crate) fn says(&self, expected: &str) {
        let line = self.stdout.next(&format!("{expected:?} on the standard output")).unwrap_or_default();
        let line = line.trim_end();
        assert!(line == expected, "it wrote {line:?} instead of {expected:?}: {:?}", self.stderr.so_far());
    }

    /// The next line on the standard error, as soon as it is there.
    pub(crate) fn message(&self) -> String {
        let line = self.stderr.next("a message on the standard error").expect("a message before the end");
        line.trim_end().to_owned()
    }

    pub(crate) fn tell(&mut self, text: &str) {
        self.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("a process reads it");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(pid(&self.process), signal).expect("it is not waited for");
    }

    /// The current child processes of the run.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let id = self.process.id();
        let list = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let list = list.expect("it is not waited for");
        list.split_whitespace().map(|id| Pid::from_raw(id.parse().expect("a number"))).collect()
    }

    /// Waits until no process has the standard output open any more: neither the command nor processes that it started.
    pub(crate) fn all_gone(&self) -> String {
        self.stdout.rest("the end of all processes with the standard output")
    }

    /// Waits for the end and for all output.
    pub(crate) fn finish(mut self) -> Finished {
        self.stdin = None;
        let stdout = self.all_gone();
        let status = ended("the run", &mut self.process);
        let stderr = self.stderr.rest("the end of all processes with the standard error");
        assert_eq!(status.signal(), None, "it ends by itself");
        Finished { code: status.code(), stdout, stderr }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The keys of a server, but for those that tell who a client is.
pub(crate) fn locks_left(server: &Server) -> Vec<String> {
    let keys = server.cli(&["KEYS", "*"]);
    let keys = keys.elements().iter().filter_map(|key| key.as_str().map(str::to_owned));
    keys.filter(|key| !key.starts_with("leasehold:client:")).collect()
}
