//! A small file that all clients change by turns: the counts of semaphores and latches, permits, groups.
//!
//! `NAME.kind` is locked for the time of one change, and `NAME.kind.state` has the content. A change writes the whole
//! content anew beside it and renames it: a process that is killed or a disk that is full leaves the state before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::lock_file::{LockFile, Mode};

/// The state under a name, while no other client can change it.
#[derive(Debug)]
pub(super) struct Table {
    _lock: LockFile,
    state: PathBuf,
    /// The content that was read.
    before: String,
}

/// How long to wait for a client that has the lock of a table.
pub(super) const LONGEST_CHANGE: Duration = Duration::from_secs(2);
/// The first pause before the next try …
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// … and the longest.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

impl Table {
    /// Locks a table and reads it. Blocks the thread, for two seconds at the longest.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let begun = Instant::now();
        let lock = loop {
            let file = LockFile::open(path)?;
            within(begun, LONGEST_CHANGE, || file.try_lock(Mode::Exclusive))?;
            if file.current(path)?.is_some() {
                break file;
            }
        };
        let state = state_of(path);
        let before = read(&state)?;
        Ok(Self { _lock: lock, state, before })
    }

    /// The content; empty if there is none.
    pub(super) fn content(&self) -> &str {
        &self.before
    }

    /// Replaces the content, if it has changed. No content: the file is removed.
    pub(super) fn replace(&self, content: &str) -> io::Result<()> {
        if content == self.before {
            return Ok(());
        }
        if content.is_empty() {
            return fs::remove_file(&self.state);
        }
        let new = self.state.with_extension("new");
        let written = fs::write(&new, content).and_then(|()| fs::rename(&new, &self.state));
        if written.is_err() {
            // The state before is still there.
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// The file with the content of a table.
pub(super) fn state_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".state");
    name.into()
}

/// The content of a table as it is now, without a lock: a rename replaces it as a whole.
pub(super) fn peek(path: &Path) -> io::Result<String> {
    read(&state_of(path))
}

fn read(state: &Path) -> io::Result<String> {
    match fs::read_to_string(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        content => content,
    }
}

/// Locks an open file for the time of a few lines.
pub(super) fn lock_shortly(file: &fs::File, limit: Duration) -> io::Result<()> {
    within(Instant::now(), limit, || match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    })
}

/// Tries until it succeeds. Every client keeps such a lock for microseconds only, unless its process is stopped meanwhile.
fn within(begun: Instant, limit: Duration, mut attempt: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let mut pause = SHORTEST_PAUSE;
    while !attempt()? {
        if begun.elapsed() > limit {
            let text = format!("locked for longer than {limit:?}: a process may be stopped while it has it");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}
