//! A blocked thread that reads inotify by itself, while it waits for a lock.
//!
//! The I/O thread would have to be woken first, only to wake the blocked thread: two wake-ups, each of which takes as long as
//! a whole hand-over by `flock(2)`. One thread of a client reads at a time: if all of them did, each event would wake all.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Files;
use crate::block;

/// Whether a blocked thread of a client reads.
#[derive(Debug, Default)]
pub(super) struct ReaderState {
    taken: AtomicBool,
    /// Readable when the thread that reads is to stop waiting; `None` if the process has too many open files.
    interrupt: OnceLock<Option<Arc<OwnedFd>>>,
}

impl ReaderState {
    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst)
    }
}

/// The right to read, until it is dropped.
pub(super) struct BlockedReader {
    files: Arc<Files>,
    inotify: Arc<OwnedFd>,
    interrupt: Arc<OwnedFd>,
}

impl BlockedReader {
    /// Takes the right, if no other thread has it and there is something to read from.
    pub(super) fn take(files: &Arc<Files>) -> Option<Self> {
        let state = &files.watcher.reader;
        let inotify = Arc::clone(files.watcher.begun_inotify()?);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let interrupt = state.interrupt.get_or_init(|| eventfd(0, flags).ok().map(Arc::new)).clone()?;
        if state.taken.swap(true, Ordering::SeqCst) {
            return None;
        }
        Some(Self { files: Arc::clone(files), inotify, interrupt })
    }
}

impl block::EventReader for BlockedReader {
    fn wait(&self, limit: Option<Duration>) -> bool {
        let mut sources =
            [PollFd::new(&*self.inotify, PollFlags::IN), PollFd::new(&*self.interrupt, PollFlags::IN)];
        // A time that is too long for it is never.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // It may be interrupted by a signal, which is as if it had waited for less time.
        let _ = poll(&mut sources, limit.as_ref());
        let [is_readable, is_interrupted] = sources.map(|source| !source.revents().is_empty());
        if is_interrupted {
            let _ = rustix::io::read(&self.interrupt, &mut [0; 8]);
        }
        is_readable
    }

    fn read(&self) {
        self.files.watcher.read_blocked(&self.inotify, |change| self.files.changed(change));
    }

    fn interrupt(&self) {
        // If its counter is full, it is readable already.
        let _ = rustix::io::write(&self.interrupt, &1_u64.to_ne_bytes());
    }
}

impl Drop for BlockedReader {
    fn drop(&mut self) {
        self.files.watcher.reader.taken.store(false, Ordering::SeqCst);
        self.files.watcher.reader_left();
    }
}
