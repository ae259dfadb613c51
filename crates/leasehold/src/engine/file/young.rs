//! Holds that have just begun, and have no record in their file yet.
//!
//! A record costs as much as a third of opening, locking and closing the file. Most holds end within microseconds, and no one
//! would have read it. So a record is written when a hold has lasted for a moment. Other clients of this process find the
//! owner here until then; a query of another process waits for the record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::lock_file::{FileId, LockFile};
use super::places::{Mixed, Place, Places};
use super::{FileStore, Files, record};
use crate::engine::Kind;
use crate::mutex::Mutex;
use crate::owner::OwnerId;

/// The time after which a hold gets its record is between one and two of these.
const PERIOD: Duration = Duration::from_millis(10);
/// After how many periods without a new hold the writer of records sleeps until the next hold wakes it. Until then a hold that
/// begins does not have to: waking another thread takes longer than locking a file.
const IDLE: u32 = 32;
/// How often a query looks for the record of a holder, with this pause before each: 100 ms, and longer on a busy machine, where
/// the record is late, too. A hold of any process has its record then, unless the process is not running.
pub(super) const LOOKS: u32 = 20;
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// The owners that have locked a file, for all clients of this process.
static OWNERS: LazyLock<Mutex<Owners>> = LazyLock::new(Mutex::default);

type Owners = HashMap<FileId, OwnerId, BuildHasherDefault<Mixed>>;

/// A hold whose record is to be written.
type Due = (OwnerId, Weak<LockFile>);

/// The owner of this process that has locked a file.
pub(super) fn owner(file: FileId) -> Option<OwnerId> {
    OWNERS.lock().get(&file).copied()
}

/// A hold begins: this owner has locked this file.
pub(super) fn enter(file: FileId, owner: OwnerId) {
    OWNERS.lock().insert(file, owner);
}

/// The record of the holder of one file.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// In which period the hold began.
    begun: AtomicU32,
    is_written: AtomicBool,
}

impl Recorded {
    /// Makes a record that was written name no holder any more.
    pub(super) fn erase(&self, file: &LockFile) {
        if self.is_written.load(Ordering::SeqCst) {
            record::erase(file);
        }
    }
}

/// The young holds of one client.
#[derive(Debug, Default)]
pub(super) struct Young {
    /// How many periods are over.
    period: AtomicU32,
    /// Some have begun in this period.
    is_new: AtomicBool,
    /// The writer of records looks after each period.
    is_awake: AtomicBool,
    begun: Notify,
}

impl Young {
    /// A hold has begun, and its place is there.
    pub(super) fn add(&self, file: &LockFile) {
        file.recorded.begun.store(self.period.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_new.store(true, Ordering::SeqCst);
        if !self.is_awake.load(Ordering::SeqCst) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.begun.notify_one();
        }
    }

    /// A hold ends. To be called before the file is unlocked.
    pub(super) fn remove(id: FileId, owner: OwnerId) {
        if let Entry::Occupied(entry) = OWNERS.lock().entry(id)
            && *entry.get() == owner
        {
            entry.remove();
        }
    }
}

impl Young {
    /// Waits for holds that have lasted for a moment and have no record.
    async fn due(&self, places: &Mutex<Places>) -> Vec<Due> {
        let mut idle = 0;
        loop {
            if !self.is_awake.load(Ordering::SeqCst) {
                self.begun.notified().await;
            }
            tokio::time::sleep(PERIOD).await;
            idle = if self.is_new.swap(false, Ordering::SeqCst) { 0 } else { idle + 1 };
            // Before the holds are read: one that begins later notifies again.
            self.is_awake.store(idle < IDLE, Ordering::SeqCst);
            let period = self.period.fetch_add(1, Ordering::Relaxed);
            let mut due = Vec::new();
            for (key, place) in &*places.lock() {
                let Place::Held(file, _) = place else { continue };
                if key.resource.kind == Kind::Read || file.recorded.is_written.load(Ordering::SeqCst) {
                    continue;
                }
                if file.recorded.begun.load(Ordering::Relaxed) == period {
                    self.is_awake.store(true, Ordering::SeqCst);
                } else {
                    file.recorded.is_written.store(true, Ordering::SeqCst);
                    due.push((key.owner, Arc::downgrade(file)));
                }
            }
            if !due.is_empty() {
                return due;
            }
        }
    }
}

impl FileStore {
    /// Writes records, for ever.
    pub(super) async fn keep_recording(&self) {
        loop {
            let due = self.0.young.due(&self.0.places).await;
            let files = Arc::clone(&self.0);
            let _ = tokio::task::spawn_blocking(move || files.record(due)).await;
        }
    }
}

impl Files {
    /// Writes the records of these holds, if they have not ended.
    fn record(&self, due: Vec<Due>) {
        for (owner, file) in due {
            if let Some(file) = file.upgrade() {
                self.writer.write(&file, owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::{HoldKey, Resource};
    use crate::name::Name;

    #[tokio::test(start_paused = true)]
    async fn a_hold_gets_its_record_whether_the_writer_of_records_is_awake_or_asleep() {
        let path = std::env::temp_dir().join(format!("leasehold-young-{}", std::process::id()));
        let resource = Resource::new(Kind::Lock, Name::new("", "young").unwrap());
        let holds = Arc::new((Young::default(), Mutex::<Places>::default()));
        let (sender, mut written) = unbounded_channel();
        let writer = tokio::spawn({
            let holds = Arc::clone(&holds);
            async move { while sender.send(holds.0.due(&holds.1).await).is_ok() {} }
        });
        let (young, places) = &*holds;
        let mut was_awake = Vec::new();
        for idle in 0..IDLE + 8 {
            sleep(PERIOD * idle).await;
            was_awake.push(young.is_awake.load(Ordering::SeqCst));
            let (file, owner) = (LockFile::open(&path).unwrap(), OwnerId::fresh(ClientId::random(), 1));
            let (file, id) = (Arc::new(file), FileId::of(&path).unwrap().unwrap());
            let key = HoldKey { resource: resource.clone(), owner, amount: 1 };
            places.lock().insert(key.clone(), Place::Held(Arc::clone(&file), id));
            young.add(&file);
            let begun = Instant::now();
            let due = timeout(3 * PERIOD, written.recv()).await;
            let due = due.unwrap_or_else(|_| panic!("no record after {idle} idle periods")).unwrap();
            assert_eq!(due.iter().map(|(owner, _)| *owner).collect::<Vec<_>>(), [owner]);
            let age = begun.elapsed();
            assert!((PERIOD..=2 * PERIOD).contains(&age), "{age:?} after {idle} idle periods");
            places.lock().remove(&key);
        }
        let slept = was_awake.iter().filter(|was_awake| !*was_awake).count();
        assert!(!was_awake[0] && was_awake[1] && (5..=10).contains(&slept), "{was_awake:?}");
        writer.abort();
        std::fs::remove_file(path).unwrap();
    }
}
