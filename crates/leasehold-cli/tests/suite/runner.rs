//! `leasehold run` as a process, watched from outside.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use leasehold_testkit::server::Server;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Finished, program};

/// How long anything may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// Looks again and again until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let looks = PATIENCE.as_millis() / LOOK.as_millis();
    for _ in 0..looks {
        if is_so() {
            return;
        }
        thread::sleep(LOOK);
    }
    panic!("still not so: {what}");
}

pub(crate) fn is_locked(server: &Server, name: &str) -> bool {
    server.cli(&["EXISTS", name]) == 1
}

pub(crate) fn pid(process: &Child) -> Pid {
    Pid::from_raw(process.id().try_into().expect("a process number"))
}

/// The signals in a line of `/proc/PID/status`, but for those above 31, which the C library keeps to itself.
pub(crate) fn signals(line: &str) -> u64 {
    let (_, bits) = line.split_once(":\t").expect("a line about signals");
    u64::from_str_radix(bits, 16).expect("a mask of signals") & 0x7fff_ffff
}

/// A file name of this test's own. The file is gone when this is dropped.
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

    /// What is in it, which may be nothing yet.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// `leasehold run ARGUMENTS -- sh -c SCRIPT sh` at this server, not yet started.
pub(crate) fn run(url: &str, arguments: &str, script: &str) -> Command {
    let mut command = run_plain(url, arguments);
    command.args(["--", "sh", "-c", script, "sh"]);
    command
}

/// The same without a command.
pub(crate) fn run_plain(url: &str, arguments: &str) -> Command {
    let mut command = Command::new(program());
    command.arg("run").args(arguments.split_whitespace()).env("LEASEHOLD_URL", url);
    command
}

/// Runs to the end, without input.
pub(crate) fn finish(command: &mut Command) -> Finished {
    command.stdin(Stdio::null());
    Runner::start(command).finish()
}

/// A run under way. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Runner {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: Receiver<String>,
}

impl Runner {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built with this test");
        let stdout = BufReader::new(process.stdout.take().expect("a pipe"));
        let messages = BufReader::new(process.stderr.take().expect("a pipe"));
        let (tell, stderr) = mpsc::channel();
        thread::spawn(move || messages.lines().try_for_each(|line| tell.send(line.expect("UTF-8"))));
        Self { stdin: process.stdin.take(), process, stdout, stderr }
    }

    /// The next line on the standard output, as soon as it is there.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("UTF-8");
        line.trim_end().to_owned()
    }

    /// Waits for the next line on the standard output, which must be this one.
    pub(crate) fn says(&mut self, expected: &str) {
        let line = self.line();
        if line != expected {
            let messages =
                self.stderr.recv_timeout(Duration::from_secs(1)).into_iter().chain(self.stderr.try_iter());
            panic!("it says {line:?} and not {expected:?}: {:?}", messages.collect::<Vec<_>>());
        }
    }

    /// The next line on the standard error, as soon as it is there.
    pub(crate) fn message(&self) -> String {
        self.stderr.recv_timeout(PATIENCE).expect("a message on the standard error")
    }

    pub(crate) fn tell(&mut self, text: &str) {
        self.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("somebody reads");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(pid(&self.process), signal).expect("it is not waited for");
    }

    /// The numbers of the child processes that it has now.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let id = self.process.id();
        let list = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let list = list.expect("it is not waited for");
        list.split_whitespace().map(|id| Pid::from_raw(id.parse().expect("a number"))).collect()
    }

    /// Waits until nobody has the standard output open any more: neither the command nor what it has started.
    pub(crate) fn all_gone(&mut self) -> String {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("UTF-8");
        rest
    }

    /// Waits for the end and for all output.
    pub(crate) fn finish(mut self) -> Finished {
        self.stdin = None;
        let stdout = self.all_gone();
        let status = self.process.wait().expect("it is our child");
        let stderr = self.stderr.iter().map(|line| line + "\n").collect();
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
