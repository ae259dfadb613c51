//! Wake-ups by inotify: when a lock file is closed, and when a file of the directory is replaced or removed.
//!
//! The kernel allows few of these objects for each user, so a client makes one when it first waits, or holds a lock for
//! longer than a moment.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

use super::blocked_reader::ReaderState;
use super::change::Change;
use crate::engine::remote::store::Topic;
use crate::mutex::Mutex;

/// The files that this client watches.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    inotify: OnceLock<Option<Arc<OwnedFd>>>,
    /// Notified when there is something to read events from.
    begun: Notify,
    /// How often others than the I/O thread have read: the runtime of the callers, and blocked threads. A waiter there is woken
    /// without a wake-up of another thread, which takes longer than everything else about a hand-over.
    others_reads: AtomicU64,
    /// The I/O thread leaves reading to others.
    is_left_to_others: AtomicBool,
    /// Notified when the I/O thread has to read again.
    unread: Notify,
    /// A blocked thread reads.
    pub(super) reader: ReaderState,
    state: Mutex<State>,
}

/// How often the I/O thread looks whether others read the events: while there are waiters …
const LOOK: Duration = Duration::from_millis(50);
/// … and while there are none.
const RARE_LOOK: Duration = Duration::from_secs(1);

/// Invariant: the number of a file, if it has one, is in `numbers`.
#[derive(Debug, Default)]
struct State {
    files: HashMap<OsString, Watched>,
    /// The file of each watch.
    numbers: HashMap<i32, OsString>,
    directory: Option<i32>,
}

#[derive(Debug)]
struct Watched {
    /// None of them: it is watched until the next [`Watcher::tidy`].
    topics: Vec<Topic>,
    /// Its watch, if its closing is watched and it is there.
    number: Option<i32>,
    /// When an event about it was read last.
    at: Option<Instant>,
}

const CLOSED: WatchFlags = WatchFlags::CLOSE_WRITE.union(WatchFlags::CLOSE_NOWRITE);
/// Rename and removal of its files, and of the directory itself.
const REPLACED: WatchFlags = WatchFlags::MOVED_FROM
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

impl Watcher {
    fn inotify(&self) -> Option<&Arc<OwnedFd>> {
        let mut is_new = false;
        let make = || match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => {
                is_new = true;
                Some(Arc::new(inotify))
            }
            Err(error) => {
                tracing::debug!(%error, "inotify cannot be used: waiters poll for freed locks");
                None
            }
        };
        let inotify = self.inotify.get_or_init(make).as_ref();
        if is_new {
            // Not before it can be seen.
            self.begun.notify_one();
        }
        inotify
    }

    /// Watches the directory for files that are replaced, anew if it was replaced itself.
    pub(super) fn watch_directory(&self, directory: &Path) -> bool {
        let Some(inotify) = self.inotify() else { return false };
        let mut state = self.state.lock();
        state.directory = inotify::add_watch(inotify, directory, REPLACED).ok();
        state.directory.is_some()
    }

    /// Whether the directory was watched when that was last tried.
    pub(super) fn is_watching(&self) -> bool {
        self.state.lock().directory.is_some()
    }

    /// Watches a file for a topic: with `closes` for its closing, else only for its replacement. True if it is watched.
    pub(super) fn watch(&self, directory: &Path, file: &Path, closes: bool, topic: &Topic) -> bool {
        let is_watched = self.watch_directory(directory);
        let mut state = self.state.lock();
        let (Some(name), Some(inotify)) = (file.file_name(), self.inotify()) else { return false };
        let new = || Watched { topics: Vec::new(), number: None, at: None };
        state.files.entry(name.to_owned()).or_insert_with(new).topics.push(topic.clone());
        is_watched && (!closes || state.watch_closing(inotify, file, name))
    }

    /// Watches a file again that was replaced.
    pub(super) fn watch_again(&self, file: &Path) {
        let mut state = self.state.lock();
        if let (Some(name), Some(Some(inotify))) = (file.file_name(), self.inotify.get()) {
            state.watch_closing(inotify, file, name);
        }
    }

    /// Ends [`watch`](Self::watch). The kernel is told later, by [`tidy`](Self::tidy): that takes longer than all else that a
    /// waiter does between its wake-up and its hold.
    pub(super) fn unwatch(&self, file: &Path, topic: &Topic) {
        let mut state = self.state.lock();
        if let Some(watched) = file.file_name().and_then(|name| state.files.get_mut(name)) {
            watched.topics.retain(|other| other != topic);
        }
    }

    /// Removes the watches of files without topics.
    pub(super) fn tidy(&self) {
        let Some(Some(inotify)) = self.inotify.get() else { return };
        let mut state = self.state.lock();
        let State { files, numbers, .. } = &mut *state;
        files.retain(|_, watched| {
            let is_used = !watched.topics.is_empty();
            if !is_used && let Some(number) = watched.number {
                numbers.remove(&number);
                // It may be gone with its file.
                let _ = inotify::remove_watch(inotify, number);
            }
            is_used
        });
    }

    /// Whether an event about this file was read a moment ago: the kernel reports that a file is closed just before it
    /// frees the lock.
    pub(super) fn was_just_closed(&self, file: &Path) -> bool {
        let state = self.state.lock();
        let at = file.file_name().and_then(|name| state.files.get(name)?.at);
        at.is_some_and(|at| at.elapsed() < super::MOMENT * 2)
    }

    /// Resolves when there is something to read.
    pub(super) async fn begun(&self) {
        loop {
            match self.inotify.get() {
                Some(Some(_)) => return,
                Some(None) => std::future::pending().await,
                None => self.begun.notified().await,
            }
        }
    }

    /// Reports changes that no other thread reads in time, for ever. Runs on the I/O thread.
    pub(super) async fn run(&self, has_callers: bool, report: impl Fn(Change)) {
        let mut reads = self.others_reads.load(Ordering::SeqCst);
        let mut others_read = has_callers;
        loop {
            if std::mem::replace(&mut others_read, true) {
                self.is_left_to_others.store(true, Ordering::SeqCst);
                self.until_unread(&mut reads).await;
                self.is_left_to_others.store(false, Ordering::SeqCst);
            }
            let Some(readable) = self.readable() else { return std::future::pending().await };
            while readable.readable().await.is_ok() {
                self.report(&readable, &report);
                let now = self.others_reads.load(Ordering::SeqCst);
                if std::mem::replace(&mut reads, now) != now {
                    break;
                }
            }
        }
    }

    /// Makes the I/O thread read, unless a blocked thread does.
    pub(super) fn keep_read(&self) {
        if self.is_left_to_others.load(Ordering::SeqCst) && !self.reader.is_taken() {
            self.unread.notify_one();
        }
    }

    /// A blocked thread reads no longer. Waiters besides its own have to be woken by another thread.
    pub(super) fn reader_left(&self) {
        if self.state.lock().files.values().flat_map(|watched| &watched.topics).nth(1).is_some() {
            self.unread.notify_one();
        }
    }

    /// Resolves when there are events that no other thread has read for a while, or none reads any more. Until then the I/O thread
    /// is not woken by events: on a small machine it would be in the way of the thread that they are for.
    async fn until_unread(&self, reads: &mut u64) {
        let mut was_unread = false;
        loop {
            let has_topics = self.state.lock().files.values().any(|watched| !watched.topics.is_empty());
            let pause = tokio::time::sleep(if has_topics { LOOK } else { RARE_LOOK });
            let is_called = tokio::select! { () = self.unread.notified() => true, () = pause => false };
            let now = self.others_reads.load(Ordering::SeqCst);
            let is_same = std::mem::replace(reads, now) == now;
            if is_called {
                return;
            }
            let is_unread = self.begun_inotify().is_some_and(has_events);
            if is_unread && was_unread && is_same {
                return;
            }
            was_unread = is_unread;
        }
    }

    /// The inotify object, to be read on this runtime.
    pub(super) fn readable(&self) -> Option<Receiver> {
        let inotify = self.begun_inotify()?;
        // A pipe, to tokio: anything else that can be read and is not a socket needs `unsafe` there.
        match inotify.try_clone().and_then(Receiver::from_owned_fd_unchecked) {
            Ok(readable) => Some(readable),
            Err(error) => {
                tracing::debug!(%error, "inotify cannot be read: waiters poll for freed locks");
                None
            }
        }
    }

    /// Reads on the runtime of the callers, when there is something to read.
    pub(super) fn read_for_callers(&self, readable: &Receiver, report: impl Fn(Change)) {
        self.others_reads.fetch_add(1, Ordering::SeqCst);
        self.report(readable, report);
    }

    /// Reads on a blocked thread, when there is something to read.
    pub(super) fn read_blocked(&self, inotify: &OwnedFd, report: impl Fn(Change)) {
        self.others_reads.fetch_add(1, Ordering::SeqCst);
        self.read(inotify).unwrap_or_default().into_iter().for_each(report);
    }

    /// The inotify object, if it has begun.
    pub(super) fn begun_inotify(&self) -> Option<&Arc<OwnedFd>> {
        self.inotify.get()?.as_ref()
    }

    fn report(&self, readable: &Receiver, report: impl Fn(Change)) {
        let changes = self.begun_inotify().map(|inotify| readable.try_io(|| self.read(inotify)));
        changes.and_then(Result::ok).unwrap_or_default().into_iter().for_each(report);
    }

    /// Changes that can be read now.
    fn read(&self, inotify: &OwnedFd) -> io::Result<Vec<Change>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut changes = Vec::new();
        let mut state = self.state.lock();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    changes.extend(state.change(event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(_) if !changes.is_empty() => return Ok(changes),
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() && !changes.is_empty() {
                // There may be more, but a waiter may be waiting for these.
                return Ok(changes);
            }
        }
    }
}

/// Whether there are events that no one has read.
fn has_events(inotify: &Arc<OwnedFd>) -> bool {
    rustix::io::ioctl_fionread(inotify).is_ok_and(|bytes| bytes > 0)
}

impl State {
    /// Watches the closing of the file that is there now, if it has topics.
    fn watch_closing(&mut self, inotify: &OwnedFd, file: &Path, name: &OsStr) -> bool {
        let Some(watched) = self.files.get_mut(name) else { return false };
        let number = inotify::add_watch(inotify, file, CLOSED).ok();
        let before = std::mem::replace(&mut watched.number, number);
        if let Some(before) = before.filter(|_| before != number) {
            self.numbers.remove(&before);
            // It may be gone with its file.
            let _ = inotify::remove_watch(inotify, before);
        }
        self.numbers.extend(number.map(|number| (number, name.to_owned())));
        number.is_some()
    }

    fn change(&mut self, number: i32, flags: ReadFlags, name: Option<&OsStr>) -> Option<Change> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(Change::Unknown);
        }
        if self.directory == Some(number) {
            let Some(name) = name else { return Some(Change::Unknown) };
            let topics = self.files.get(name).map(|watched| watched.topics.clone()).unwrap_or_default();
            return Some(Change::Replaced(name.to_owned(), topics));
        }
        // The end of a watch is reported, too, and means nothing.
        let watched = self.numbers.get(&number).and_then(|name| self.files.get_mut(name));
        let watched = watched.filter(|_| !flags.contains(ReadFlags::IGNORED))?;
        watched.at = Some(Instant::now());
        (!watched.topics.is_empty()).then(|| Change::Freed(watched.topics.clone()))
    }
}
