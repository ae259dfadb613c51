//! Locks, and both halves of a read-write lock: a locked file.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::lock_file::{FileId, LockFile, Mode};
use super::record::Record;
use super::{Files, MOMENT, Place, failure, is_file, kernel, token, writer_flag, young};
use crate::client_id::ClientId;
use crate::engine::remote::store::{Given, StoreError, Take, Taken};
use crate::engine::{Busy, HoldKey, Holding, Kind, QueryResult, Resource};
use crate::owner::OwnerId;

/// A file may be replaced while it is opened, but not so often in a row.
const REPLACED: u32 = 16;

/// To a release it is not known how many other clients wait. This client leaves a free lock to them for a moment.
const OTHERS: usize = 2;

impl Files {
    pub(super) fn take_lock(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        let resource = &take.hold_key.resource;
        let key = take.hold_key.of_hold();
        if take.held > 0 {
            return Ok(Taken::Bound(self.mint(take)?, Arc::clone(&self.session)));
        }
        let waiting = {
            let mut places = self.places.lock();
            if let Some(other) = other_half(resource.kind)
                && let Some(Place::Held(..)) =
                    places.get(&HoldKey { resource: resource.of_kind(other), ..key.clone() })
            {
                return Ok(Taken::WouldDeadlock);
            }
            match places.remove(&key) {
                None => None,
                Some(Place::Waiting(file)) => Some(file),
                Some(held) => {
                    places.insert(key, held);
                    return Ok(Taken::CountDiffers);
                }
            }
        };
        let path = self.path(resource, "lock");
        if resource.kind == Kind::Read
            && take.rw.prefer_writers
            && let Some(left) = writer_flag::left(&self.path(resource, "writer"))
        {
            return Ok(self.busy(take, key, &path, waiting, Some(Duration::from_millis(left))));
        }
        let mode = mode(resource.kind);
        let (file, id) = match self.lock(&path, mode, waiting) {
            Ok((file, Some(id))) => (file, id),
            Ok((file, None)) => return Ok(self.busy(take, key, &path, Some(file), None)),
            Err(error) => return Err(failure::refused(&path, &error)),
        };
        // If there is no token, there is no hold: dropping the file frees it.
        let token = if take.fenced { self.mint(take)? } else { None };
        if take.rw.prefer_writers && resource.kind == Kind::Write {
            writer_flag::clear(&self.path(resource, "writer"), key.owner);
        }
        let owner = key.owner;
        if mode == Mode::Exclusive {
            young::enter(id, owner);
        }
        let before = self.places.lock().insert(key, Place::Held(Arc::clone(&file), id));
        drop(before);
        if mode == Mode::Exclusive {
            self.young.add(&file);
        }
        Ok(Taken::Bound(token, Arc::clone(&self.session)))
    }

    /// Opens a file, or uses the waiter's, and locks it, if no other holder excludes that. The id: it is locked, and is the
    /// file under that path.
    fn lock(
        &self,
        path: &Path,
        mode: Mode,
        mut waiting: Option<Arc<LockFile>>,
    ) -> io::Result<(Arc<LockFile>, Option<FileId>)> {
        let mut was_replaced = false;
        for _ in 0..REPLACED {
            let was_open = waiting.is_some();
            let file = match waiting.take() {
                Some(file) => file,
                None => Arc::new(self.open(path)?),
            };
            if was_replaced {
                self.watcher.watch_again(path);
            }
            let is_locked = file.try_lock(mode)?;
            if !is_locked && !was_open {
                return Ok((file, None));
            }
            // A file that was opened just now is the one under that path, unless it was replaced in that very moment. If it
            // was moved away, that is as if it had been moved a moment later: the check of held locks finds both.
            let id = if was_open { file.current(path)? } else { file.linked()? };
            if let Some(id) = id {
                file.was_waited_for.store(was_open, Ordering::Relaxed);
                return Ok((file, is_locked.then_some(id)));
            }
            // It was unlinked or replaced: a lock on it excludes no one that opens the path now.
            was_replaced = true;
        }
        Err(io::Error::other("it is replaced again and again"))
    }

    /// Opens a lock file, in a directory that may have been removed.
    fn open(&self, path: &Path) -> io::Result<LockFile> {
        match LockFile::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.directory.create()?;
                LockFile::open(path)
            }
            opened => opened,
        }
    }

    /// Another owner has the lock. A waiter keeps its file open, so that its next attempt wakes no other waiter.
    fn busy(
        &self,
        take: &Take<'_>,
        key: HoldKey,
        path: &Path,
        file: Option<Arc<LockFile>>,
        retry_in: Option<Duration>,
    ) -> Taken {
        let mut busy = Busy { retry_in, ..Busy::default() };
        if take.waits {
            if self.watcher.was_just_closed(path) {
                busy.retry_in = Some(busy.retry_in.map_or(MOMENT, |retry_in| retry_in.min(MOMENT)));
            }
            if let Some(file) = file {
                self.places.lock().insert(key, Place::Waiting(file));
            }
        } else {
            drop(file);
            let resource = &take.hold_key.resource;
            if resource.kind != Kind::Spin {
                // Only for the text of an error, which it is not worth failing for.
                let holding = self.file_holder(resource, excluding(resource.kind)).ok().flatten();
                busy.holder = holding.and_then(|holding| holding.owner);
            }
        }
        if take.hold_key.resource.kind == Kind::Write && take.rw.prefer_writers && take.waits {
            writer_flag::set(&self.path(&take.hold_key.resource, "writer"), take.hold_key.owner);
            busy.keep_blocking_readers();
        }
        Taken::Busy(busy)
    }

    fn mint(&self, take: &Take<'_>) -> Result<Option<u64>, StoreError> {
        let path = self.path(&take.hold_key.resource, "token");
        token::raise(&path).map(Some).map_err(|error| failure::refused(&path, &error))
    }

    /// Releases a lock, or closes the file of a waiter.
    pub(super) fn give_lock(&self, key: &HoldKey) -> Given {
        let place = self.places.lock().remove(&key.of_hold());
        let is_held = matches!(place, Some(Place::Held(..)));
        let is_contended =
            matches!(&place, Some(Place::Held(file, _)) if file.was_waited_for.load(Ordering::Relaxed));
        if let Some(place) = &place {
            place.end(key.owner, self.is_fork());
        }
        if matches!(place, Some(Place::Waiting(_))) {
            self.end_wait(key);
        }
        drop(place);
        if is_contended {
            // Another process may wait, too. The kernel wakes it on the processor of this thread, which would keep it for the rest
            // of the release and of what the caller does next.
            thread::yield_now();
        }
        let others = if key.resource.kind == Kind::Lock { OTHERS } else { 0 };
        Given { left: is_held.then_some(0), subscribers: Some(others) }
    }

    /// A waiter has left.
    pub(super) fn leave(&self, key: &HoldKey) {
        if !is_file(key.resource.kind) {
            return;
        }
        let key = key.of_hold();
        let mut places = self.places.lock();
        if let Some(Place::Waiting(_)) = places.get(&key) {
            let file = places.remove(&key);
            drop(places);
            self.end_wait(&key);
            drop(file);
        }
    }

    /// Clears the flag of a waiting writer. To be called before its file is closed, which wakes other waiters.
    fn end_wait(&self, key: &HoldKey) {
        if key.resource.kind == Kind::Write {
            writer_flag::clear(&self.path(&key.resource, "writer"), key.owner);
        }
    }

    /// The holder of a lock: this owner, if it is one of several.
    pub(super) fn holder(
        &self,
        resource: &Resource,
        wanted: Option<OwnerId>,
    ) -> Result<Option<Holding>, StoreError> {
        if let Some(suffix) = super::tables::suffix(resource.kind) {
            return self.line_holder(resource, suffix, wanted);
        }
        let of = |owner| HoldKey { resource: resource.clone(), owner, amount: 1 }.of_hold();
        if let Some(owner) = wanted
            && let Some(Place::Held(..)) = self.places.lock().get(&of(owner))
        {
            return Ok(Some(holding(wanted)));
        }
        let modes = &[mode(resource.kind)];
        let mut found = self.file_holder(resource, modes)?;
        for _ in 0..young::LOOKS {
            // Its hold may be too young to have a record.
            if resource.kind == Kind::Read || found.as_ref().is_none_or(|holding| holding.owner.is_some()) {
                break;
            }
            thread::sleep(young::PAUSE);
            found = self.file_holder(resource, modes)?;
        }
        Ok(found)
    }

    /// A client that has, or waits for, a lock: what its record says, or what this process knows.
    pub(super) fn client(&self, resource: &Resource, client: ClientId) -> QueryResult {
        let result = QueryResult::of_process(client);
        if result.client.is_some() {
            return result;
        }
        let record =
            Record::read(&self.path(resource, "lock")).filter(|record| record.owner.client == client);
        QueryResult { client: record.and_then(|record| record.client()).map(Box::new), ..result }
    }

    /// A holder of the file of a lock, in one of these modes, as the kernel knows it.
    fn file_holder(&self, resource: &Resource, modes: &[Mode]) -> Result<Option<Holding>, StoreError> {
        let path = self.path(resource, "lock");
        let failed = |error| failure::refused(&path, &error);
        let Some(id) = FileId::of(&path).map_err(failed)? else { return Ok(None) };
        if let Some(owner) = young::owner(id)
            && modes.contains(&Mode::Exclusive)
        {
            return Ok(Some(holding(Some(owner))));
        }
        let holders = kernel::holders(&path, id).map_err(failed)?;
        let Some(holder) = holders.iter().find(|holder| modes.contains(&holder.mode)) else {
            return Ok(None);
        };
        let recorded = || {
            let record = Record::read(&path)?;
            let is_believed = record.process == holder.process && record.is_of_living_process();
            is_believed.then_some(record.owner)
        };
        let owner = match holder.mode {
            Mode::Exclusive => recorded(),
            // Readers have no record: the one in the file is that of the last writer.
            Mode::Shared => self.reader(resource),
        };
        Ok(Some(holding(owner)))
    }

    /// An owner of this client that reads.
    fn reader(&self, resource: &Resource) -> Option<OwnerId> {
        let read = resource.of_kind(Kind::Read);
        let places = self.places.lock();
        let held = places.iter().filter(|(_, place)| matches!(place, Place::Held(..))).map(|(key, _)| key);
        held.filter(|key| key.resource == read).map(|key| key.owner).min()
    }
}

fn holding(owner: Option<OwnerId>) -> Holding {
    Holding { owner, count: 1, remaining: Duration::ZERO }
}

/// How the file of a lock of this kind is locked.
fn mode(kind: Kind) -> Mode {
    if kind == Kind::Read { Mode::Shared } else { Mode::Exclusive }
}

/// The modes that exclude a lock of this kind.
fn excluding(kind: Kind) -> &'static [Mode] {
    if kind == Kind::Read { &[Mode::Exclusive] } else { &[Mode::Exclusive, Mode::Shared] }
}

/// The other half of a read-write lock, which the same owner cannot hold besides: `flock` converts no lock without a gap.
fn other_half(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Read => Some(Kind::Write),
        Kind::Write => Some(Kind::Read),
        _ => None,
    }
}
