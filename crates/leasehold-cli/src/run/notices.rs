//! The messages of `run` on the standard error while the command runs.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use crate::output;

/// The standard error, written by a thread of its own.
///
/// A pipe without a reader blocks its writers, and so does a terminal after Ctrl-S. The thread that has to kill a command in
/// time must not block. Dropping this waits until all is written.
#[derive(Debug)]
pub(super) struct Notices {
    lines: Option<Sender<String>>,
    writer: Option<JoinHandle<()>>,
}

impl Notices {
    pub(super) fn new() -> Self {
        let (lines, queue) = channel::<String>();
        let write = move || {
            for line in queue {
                output::complain(&line);
            }
        };
        // Without another thread there are no notices, and the command still runs.
        let writer = thread::Builder::new().name("notices".into()).spawn(write).ok();
        Self { lines: Some(lines), writer }
    }

    pub(super) fn say(&self, line: impl Into<String>) {
        if let Some(lines) = &self.lines {
            let _ = lines.send(line.into());
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
