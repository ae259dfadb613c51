//! Waits with a limit: a test that waits in vain fails with what it waited for.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

#[cfg(unix)]
use tokio::time::Instant;

/// How long any awaited event may take.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// Polls until a condition holds.
pub(crate) fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    assert!(in_time(is_so), "not within {PATIENCE:?}: {what}");
}

/// Polls without a pause until a condition holds, for a test of a state that may last for a moment only.
#[cfg(unix)]
pub(crate) fn at_once(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "not within {PATIENCE:?}: {what}");
    }
}

/// Waits for the end of a child process, which is killed if it does not end.
pub(crate) fn ended(what: &str, process: &mut Child) -> ExitStatus {
    let mut status = None;
    in_time(|| {
        status = process.try_wait().expect("it is our child");
        status.is_some()
    });
    status.unwrap_or_else(|| {
        let _ = process.kill();
        panic!("not within {PATIENCE:?}: the end of {what}")
    })
}

fn in_time(mut is_so: impl FnMut() -> bool) -> bool {
    let looks = PATIENCE.as_millis() / LOOK.as_millis();
    (0..looks).any(|_| {
        let so = is_so();
        if !so {
            thread::sleep(LOOK);
        }
        so
    })
}

/// The output of a child process, read by a thread so that a test need not wait for it without a limit.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(output: impl Read + Send + 'static) -> Self {
        let (tell, lines) = mpsc::channel();
        let mut output = BufReader::new(output);
        thread::spawn(move || {
            loop {
                let mut line = String::new();
                let length = output.read_line(&mut line).expect("UTF-8");
                if length == 0 || tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line with its line break, as soon as it is there; nothing once no process has the output open any more.
    pub(crate) fn next(&self, what: &str) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("not within {PATIENCE:?}: {what}"),
        }
    }

    /// The rest, once no process has the output open any more.
    pub(crate) fn rest(&self, what: &str) -> String {
        let mut rest = String::new();
        eventually(what, || {
            loop {
                match self.0.try_recv() {
                    Ok(line) => rest += &line,
                    Err(end) => return end == mpsc::TryRecvError::Disconnected,
                }
            }
        });
        rest
    }

    /// The output within a second, for a message about a failure.
    pub(crate) fn so_far(&self) -> String {
        self.0.recv_timeout(Duration::from_secs(1)).into_iter().chain(self.0.try_iter()).collect()
    }
}
