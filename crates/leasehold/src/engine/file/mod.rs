//! The engine on files of one machine.
//!
//! A lock is a file that is locked by `flock(2)`, so `flock(1)` and all that use it contend for the same lock, and the kernel
//! frees it when the process ends. Each hold has an open file of its own, so the kernel distinguishes owners; entries are
//! counted here. Nothing expires while the process lives: a fixed lease ends by the timer of this client.
//!
//! | what | file | locked |
//! |---|---|---|
//! | lock, spin lock, read-write lock | `NAME.lock`, with a line about the holder | while it is held |
//! | fencing token | `NAME.token` | while it is raised |
//! | waiting writer | `NAME.writer` | no |
//! | semaphore, latch, leased semaphore, group | `NAME.semaphore`, `.latch`, `.permits`, `.group`; the content in `….state` | while it is changed |
//! | client with permits or groups | `.clients/ID` | while the client lives |
//!
//! Waiters keep their file open and are woken by inotify when any open file of the same lock is closed: if they closed it
//! after each attempt, they would wake each other for ever.

#[cfg(not(unix))]
compile_error!(
    "the file engine needs flock(2): build leasehold with default-features = false and the features that you need"
);

#[cfg(any(target_os = "linux", target_os = "android"))]
mod blocked_reader;
mod change;
mod clients;
mod directory;
mod failure;
mod group;
mod kernel;
mod lanes;
mod latch;
mod listing;
mod lock_file;
mod locks;
mod names;
mod permits;
mod places;
mod record;
mod semaphore;
mod table;
mod tables;
mod token;
mod verify;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod watch;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "watch_none.rs"]
mod watch;
mod writer_flag;
mod young;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::watch::{Receiver, Sender};

#[cfg(any(target_os = "linux", target_os = "android"))]
use self::blocked_reader::BlockedReader;
use self::change::Change as FileChange;
use self::clients::Clients;
use self::directory::Directory;
use self::lanes::Lanes;
use self::places::{Place, Places};
use self::record::Writer;
use self::watch::Watcher;
use self::young::Young;
use super::remote::Remote;
use super::remote::store::{
    By, Done, Events, Given, LeaseOf, Store, StoreError, Take, Taken, Topic, Traits, Verdict, Wake, Watch,
    report,
};
use super::schemes::{Options, Scheme};
use super::{
    Change, Engine, Feature, HoldKey, Kind, ListStep, Listed, Profile, Query, QueryResult, Resource,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::block;
use crate::error::ServerError;
use crate::mutex::Mutex;
use crate::session::Session;

/// `file:` and `file:///directory`.
pub(crate) const SCHEME: Scheme = Scheme {
    names: &["file"],
    usage: "file: (this machine, this user), file:///directory",
    profile: &PROFILE,
    server: |url| Some(Directory::parse(url).map_or_else(|_| "file:".into(), |directory| directory.url())),
    open: |url, options| {
        let directory = Directory::parse(url)?;
        Ok(Box::pin(async move {
            let linger = options.linger;
            // A lazy client waits for this, too: there is no server to wait for.
            let remote =
                Remote::connect(linger, |events| FileStore::new(directory, &options, events)).await?;
            Ok(Arc::new(remote) as Arc<dyn Engine>)
        }))
    },
};

static PROFILE: Profile = Profile {
    engine: "file",
    real_time: true,
    lacks: &[
        Feature::Kind(Kind::Fair),
        Feature::Kind(Kind::SetNx),
        Feature::MinHold,
        Feature::Steal,
        Feature::ForceUnlock,
        Feature::Upgrade,
        Feature::FencedWrite,
    ],
};

static TRAITS: Traits = Traits {
    profile: &PROFILE,
    lease: LeaseOf::Session,
    counts: By::Client,
    owners: By::Server,
    ordered: true,
    takes_all: 0,
};

/// How often holds are checked.
const CHECK: Duration = Duration::from_secs(1);
/// How soon after the event that a file was closed its lock is certainly free.
const MOMENT: Duration = Duration::from_millis(1);
/// How often the front waiter polls beside inotify, because a holder may unlock a file without closing it …
const WATCHED_POLL: Duration = Duration::from_millis(200);
/// … and how often without inotify.
const POLL: Duration = Duration::from_millis(50);

/// The locks of one client. Requests that may block have a copy.
#[derive(Debug, Clone)]
struct FileStore(Arc<Files>);

#[derive(Debug)]
struct Files {
    directory: Directory,
    events: Weak<dyn Events>,
    /// It lasts as long as the process.
    session: Arc<Session>,
    writer: Writer,
    clients: Clients,
    watcher: Watcher,
    young: Young,
    // Invariant: a file is dropped, and so closed, when the mutex is free again.
    places: Mutex<Places>,
    /// Counts the lines of this client in tables.
    lines: AtomicU64,
    lanes: Arc<Lanes>,
    /// The I/O thread, and its threads that may block.
    io: OnceLock<Handle>,
    /// The runtime on which the client was made, if there is one.
    callers: Option<Handle>,
    /// A file of a held lock may have been replaced.
    suspicious: Notify,
    /// Whether the client is closed.
    closed: Sender<bool>,
    /// The process that made it. A fork has copies of all open files.
    process: u32,
    /// The directory is on a disk of this machine.
    is_local: AtomicBool,
    response_timeout: Duration,
}

/// Milliseconds since 1970, by the clock that all processes of the machine share.
type Milliseconds = u64;

fn now() -> Milliseconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds)
}

fn milliseconds(length: Duration) -> Milliseconds {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

impl FileStore {
    fn new(directory: Directory, options: &Options, events: Weak<dyn Events>) -> Self {
        Self(Arc::new(Files {
            clients: Clients::new(&directory.path),
            directory,
            events,
            session: Session::endless(),
            writer: Writer::new(options.identity.as_deref()),
            watcher: Watcher::default(),
            young: Young::default(),
            places: Mutex::default(),
            lines: AtomicU64::new(0),
            lanes: Arc::default(),
            io: OnceLock::new(),
            callers: Handle::try_current().ok(),
            suspicious: Notify::new(),
            closed: Sender::new(false),
            process: std::process::id(),
            is_local: AtomicBool::new(true),
            response_timeout: options.response_timeout,
        }))
    }

    /// Carries a request about a resource out on a thread that may block, behind the earlier ones.
    fn block<T: Send + 'static>(
        &self,
        resource: &Resource,
        done: impl Done<T>,
        work: impl FnOnce(&Files) -> Result<T, StoreError> + Send + 'static,
    ) {
        let files = Arc::clone(&self.0);
        // Not connected yet, or closed: the client is gone.
        let Some(io) = self.0.io.get().filter(|_| !self.0.is_closed()) else { return };
        self.0.lanes.push(io, &resource.name, move || {
            if !files.is_closed() {
                let outcome = work(&files);
                done.done(outcome);
            }
        });
    }

    /// Whether a request about a resource is carried out at once, by the calling thread: a few system calls that do not wait
    /// for a disk.
    fn is_quick(&self, resource: &Resource) -> bool {
        is_file(resource.kind)
            && self.0.is_local.load(Ordering::Relaxed)
            && !self.0.lanes.is_busy(&resource.name)
    }

    /// Reports what inotify says: on the I/O thread, and on the runtime of the callers, if there is one.
    async fn keep_watching(&self) {
        let files = &self.0;
        files.watcher.begun().await;
        if let Some(callers) = &files.callers {
            callers.spawn(watch_for_callers(Arc::downgrade(files), files.closed.subscribe()));
        }
        files.watcher.run(files.callers.is_some(), |change| files.changed(change)).await;
    }

    /// Completes a request outside of the call that has issued it.
    fn complete<T: Send + 'static>(&self, done: impl Done<T>, outcome: Result<T, StoreError>) {
        if let Some(io) = self.0.io.get() {
            io.spawn(async move { done.done(outcome) });
        }
    }
}

impl Store for FileStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn wake(&self, _kind: Kind) -> Wake {
        Wake::Poll(if self.0.watcher.is_watching() { WATCHED_POLL } else { POLL })
    }

    fn take(&self, take: &Take<'_>, done: impl Done<Taken>) {
        let resource = &take.hold_key.resource;
        if !take.fenced && self.is_quick(resource) {
            return done.done(self.0.take_lock(take));
        }
        let (key, rw) = (take.hold_key.clone(), take.rw);
        let (held, lease, fenced, waits) = (take.held, take.lease, take.fenced, take.waits);
        self.block(resource, done, move |files| {
            let (hold_key, steal, queue) = (&key, false, None);
            let take = Take { hold_key, held, lease, steal, fenced, queue, rw, waits };
            if is_file(key.resource.kind) { files.take_lock(&take) } else { files.take_line(&take) }
        });
    }

    fn give(&self, key: &HoldKey, _from: u32, _length: Duration, done: impl Done<Given>) {
        if self.is_quick(&key.resource) {
            return done.done(Ok(self.0.give_lock(key)));
        }
        let of = key.clone();
        self.block(&key.resource, done, move |files| files.give(&of));
    }

    fn lower(&self, key: &HoldKey, to: u32, done: impl Done<Given>) {
        if to == 0 && !self.is_quick(&key.resource) {
            let of = key.clone();
            return self.block(&key.resource, done, move |files| files.give(&of));
        }
        // A waiter that has left has closed its file.
        let left = |to| Given { left: Some(to), subscribers: None };
        let outcome = if to == 0 { self.0.give_lock(key) } else { left(to) };
        self.complete(done, Ok(outcome));
    }

    fn lower_first(&self, key: &HoldKey, to: u32, done: impl Done<Given>) -> bool {
        self.lower(key, to, done);
        true
    }

    /// Only permits with a fixed lease have one of their own.
    fn renew(&self, _kind: Kind, holds: &[(&HoldKey, Duration)], done: impl Done<Vec<Verdict>>) {
        let Some((first, _)) = holds.first() else { return };
        let holds: Vec<_> = holds.iter().map(|(key, length)| ((*key).clone(), *length)).collect();
        self.block(&first.resource, done, move |files| {
            holds.iter().map(|(key, length)| files.renew_line(key, *length)).collect()
        });
    }

    fn is_there(&self, key: &HoldKey, _length: Option<Duration>, done: impl Done<bool>) {
        let place = self.0.places.lock().get(&key.of_hold()).cloned();
        done.done(Ok(place.is_some_and(|place| self.0.is_held(key, &place))));
    }

    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>) {
        match *query {
            Query::Holder(resource, owner) => {
                let of = resource.clone();
                let work = move |files: &Files| {
                    let holding = files.holder(&of, owner)?;
                    Ok(QueryResult { holding, ..QueryResult::default() })
                };
                if !self.is_quick(resource) {
                    return self.block(resource, done, work);
                }
                // Releases do not wait for a query.
                let files = Arc::clone(&self.0);
                if let Some(io) = self.0.io.get() {
                    io.spawn_blocking(move || done.done(work(&files)));
                }
            }
            Query::Token(resource) => {
                let path = self.0.path(resource, "token");
                self.block(resource, done, move |_| {
                    let token = token::last(&path).map_err(|error| failure::refused(&path, &error))?;
                    Ok(QueryResult { token, ..QueryResult::default() })
                });
            }
            Query::Client(resource, client) => {
                let of = resource.clone();
                self.block(resource, done, move |files| Ok(files.client(&of, client)));
            }
            Query::Queue(_) | Query::Waiters(_) | Query::Uptime => {
                self.complete(done, Ok(QueryResult::default()));
            }
        }
    }

    fn list(&self, step: &ListStep, done: impl Done<Listed>) {
        // Releases do not wait for a listing.
        let (files, step) = (Arc::clone(&self.0), step.clone());
        if let Some(io) = self.0.io.get() {
            io.spawn_blocking(move || done.done(files.list(&step)));
        }
    }

    fn change(&self, resource: &Resource, change: &Change, done: impl Done<i64>) {
        let (of, adjust) = (resource.clone(), change.adjust.clone());
        self.block(resource, done, move |files| files.adjust(&of, &adjust));
    }

    /// A change is never sent again, so nothing is kept to recognise it.
    fn forget_change(&self, _resource: &Resource, _change: &Change, done: impl Done<()>) {
        self.complete(done, Ok(()));
    }

    fn watch(&self, topic: &Topic) -> Watch {
        let (file, closes) = self.0.watched(&topic.0);
        let is_watched = self.0.watcher.watch(&self.0.directory.path, &file, closes, topic);
        if is_watched { Watch::Active } else { Watch::Unavailable }
    }

    fn unwatch(&self, topic: &Topic) {
        self.0.watcher.unwatch(&self.0.watched(&topic.0).0, topic);
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn sleeps(&self, is_front: impl FnOnce() -> bool) {
        if block::is_blocking()
            && is_front()
            && let Some(reader) = BlockedReader::take(&self.0)
        {
            return block::read_by(Arc::new(reader));
        }
        if self.0.callers.is_none() {
            self.0.watcher.keep_read();
        }
    }

    fn left(&self, key: &HoldKey) -> Option<Duration> {
        self.0.leave(key);
        None
    }

    fn detach(&self, key: &HoldKey, done: impl Done<()>) {
        let of = key.clone();
        self.block(&key.resource, done, move |files| files.detach_line(&of));
    }

    fn lock_file(&self, key: &HoldKey) -> io::Result<Option<std::fs::File>> {
        match self.0.places.lock().get(&key.of_hold()) {
            Some(Place::Held(file, _)) => file.copy().map(Some),
            _ => Ok(None),
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.0.directory.warnings()
    }

    fn ping(&self, done: impl Done<()>) {
        let Some(io) = self.0.io.get() else { return };
        let (files, limit) = (Arc::clone(&self.0), self.0.response_timeout);
        let check = io.spawn_blocking(move || files.directory.check());
        io.spawn(async move {
            let checked = match tokio::time::timeout(limit, check).await {
                Ok(checked) => {
                    checked.unwrap_or_else(|error| Err(ServerError::Unavailable(error.to_string())))
                }
                Err(_) => {
                    Err(ServerError::Unavailable(format!("no reply of the file system within {limit:?}")))
                }
            };
            done.done(checked.map_err(StoreError::Refused));
        });
    }

    async fn run(&self, opened: Option<impl FnOnce(Result<(), ServerError>) + Send>) {
        let files = &self.0;
        files.io.get_or_init(Handle::current);
        let open = files.directory.open();
        files.is_local.store(files.directory.warnings().is_empty(), Ordering::Relaxed);
        let is_open = open.is_ok();
        if let Some(opened) = opened {
            opened(open);
        }
        if !is_open {
            return;
        }
        let mut is_closed = files.closed.subscribe();
        tokio::select! {
            biased;
            () = closed(&mut is_closed) => {}
            () = self.keep_watching() => {}
            () = self.keep_checking() => {}
            () = self.keep_recording() => {}
        }
    }

    fn close(&self) {
        self.0.closed.send_replace(true);
        let places = std::mem::take(&mut *self.0.places.lock());
        for (key, place) in &places {
            place.end(key.owner, self.0.is_fork());
        }
        drop(places);
        self.0.clients.close(self.0.is_fork());
        self.0.lanes.clear();
    }
}

impl Files {
    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    fn is_fork(&self) -> bool {
        self.process != std::process::id()
    }

    fn give(&self, key: &HoldKey) -> Result<Given, StoreError> {
        if is_file(key.resource.kind) { Ok(self.give_lock(key)) } else { self.give_line(key) }
    }

    /// The file of a resource with this suffix.
    fn path(&self, resource: &Resource, suffix: &str) -> PathBuf {
        let directory = self.directory.path.as_os_str().as_bytes();
        let name = resource.name.as_str();
        let mut path = Vec::with_capacity(directory.len() + name.len() * 2 + suffix.len() + 8);
        path.extend_from_slice(directory);
        path.push(b'/');
        names::append(&mut path, name);
        path.push(b'.');
        path.extend_from_slice(suffix.as_bytes());
        OsString::from_vec(path).into()
    }

    /// The file that changes when a resource may be free, and whether its closing means that.
    fn watched(&self, resource: &Resource) -> (PathBuf, bool) {
        match tables::suffix(resource.kind) {
            Some(suffix) => (table::state_of(&self.path(resource, suffix)), false),
            None => (self.path(resource, "lock"), true),
        }
    }

    /// A file has changed.
    fn changed(&self, change: FileChange) {
        match change {
            FileChange::Freed(topics) => self.freed(&topics),
            FileChange::Replaced(name, topics) => {
                for (resource, _) in &topics {
                    if is_file(resource.kind) {
                        self.watcher.watch_again(&self.path(resource, "lock"));
                    }
                }
                self.freed(&topics);
                if self.concerns(&name) {
                    self.suspicious.notify_one();
                }
            }
            FileChange::Unknown => {
                report(&self.events, |events| events.rewatched());
                self.suspicious.notify_one();
            }
        }
    }

    fn freed(&self, topics: &[Topic]) {
        report(&self.events, |events| topics.iter().for_each(|topic| events.freed(topic)));
    }
}

/// Reads inotify on the runtime of the callers, until the client is closed.
async fn watch_for_callers(files: Weak<Files>, mut is_closed: Receiver<bool>) {
    let Some(readable) = files.upgrade().and_then(|files| files.watcher.readable()) else { return };
    loop {
        tokio::select! {
            biased;
            () = closed(&mut is_closed) => return,
            result = readable.readable() => if result.is_err() { return },
        }
        let Some(files) = files.upgrade() else { return };
        files.watcher.read_for_callers(&readable, |change| files.changed(change));
    }
}

/// Resolves when the client is closed or gone.
async fn closed(is_closed: &mut Receiver<bool>) {
    let _ = is_closed.wait_for(|is_closed| *is_closed).await;
}

/// Whether a resource of this kind is a locked file.
fn is_file(kind: Kind) -> bool {
    matches!(kind, Kind::Lock | Kind::Spin | Kind::Read | Kind::Write)
}
