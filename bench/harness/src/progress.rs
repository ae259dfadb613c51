//! The progress: a line that is overwritten on a terminal, lines one after the other elsewhere.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Instant;

const WIDTH: usize = 30;

pub(crate) struct Progress {
    all: usize,
    done: usize,
    began: Instant,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        Self { all, done: 0, began: Instant::now(), terminal: stderr().is_terminal() }
    }

    /// Shows the current step.
    pub(crate) fn show(&self, what: &str) {
        let (done, all) = (self.done, self.all);
        if !self.terminal {
            eprintln!("{done:>4}/{all} {what}");
            return;
        }
        let filled = WIDTH * done / all.max(1);
        let left = match (self.began.elapsed().as_secs() as usize * (all - done)).checked_div(done) {
            Some(seconds) => format!("{}:{:02} left", seconds / 60, seconds % 60),
            None => String::new(),
        };
        let (full, empty) = ("█".repeat(filled), "░".repeat(WIDTH - filled));
        eprint!("\r{full}{empty} {done}/{all} {left} {what}\x1b[K");
        let _ = stderr().flush();
    }

    pub(crate) fn step(&mut self) {
        self.done += 1;
    }

    pub(crate) fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
