//! `flock(1)`, which contends for the same files.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use tokio::sync::oneshot;

use crate::support::{signal, soon};

/// A `flock(1)` that holds a file as long as this is there, or waits for it.
pub(crate) struct Flock {
    process: Child,
    /// Its end ends the command that runs under the lock.
    input: Option<ChildStdin>,
    held: Option<oneshot::Receiver<()>>,
}

impl Flock {
    /// Starts it, with options such as `-s`.
    pub(crate) fn start(options: &[&str], file: &Path) -> Self {
        let mut command = Command::new("flock");
        command.args(options).arg(file).args(["sh", "-c", "echo held; read line"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), process.stdout.take().unwrap());
        let (sender, held) = oneshot::channel();
        thread::spawn(move || {
            if BufReader::new(output).lines().next().is_some() {
                let _ = sender.send(());
            }
        });
        Self { process, input, held: Some(held) }
    }

    /// Starts it, and waits until it holds the file.
    pub(crate) async fn hold(options: &[&str], file: &Path) -> Self {
        let mut flock = Self::start(options, file);
        flock.held().await;
        flock
    }

    /// Waits until it holds the file.
    pub(crate) async fn held(&mut self) {
        let held = self.held.take().expect("this is awaited once");
        soon("flock(1) holds the file", held).await.expect("flock(1) runs its command");
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it; the file is not held by it any more.
    pub(crate) fn release(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            // It may be blocked. A command that runs already ends with its input.
            if self.held.is_some() {
                signal(self.id(), "KILL");
            }
            self.end();
        }
    }
}

/// Whether `flock(1)` can lock a file at this moment.
pub(crate) fn can_lock(options: &[&str], file: &Path) -> bool {
    let status = Command::new("flock").args(["-n", "-E", "77"]).args(options).arg(file).arg("true").status();
    match status.unwrap().code() {
        Some(0) => true,
        Some(77) => false,
        other => panic!("flock(1) ended with {other:?}"),
    }
}
