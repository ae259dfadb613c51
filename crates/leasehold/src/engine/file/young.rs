//! Holds that have just begun, and have no record in their file yet.
//!
//! A record costs as much as a third of opening, locking and closing the file. Most holds end within microseconds, and no one
//! would have read it. So a record is written when a hold has lasted for a moment. Other clients of this process find the
//! owner here until then; a query of another process waits for the record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::lock_file::{FileId, LockFile};
use super::places::Mixed;
use super::record::Writer;
use crate::mutex::Mutex;
use crate::owner::OwnerId;

/// The time after which a hold gets its record is between one and two of these.
const PERIOD: Duration = Duration::from_millis(10);
/// By then a hold of any process has its record, unless its process is not running.
pub(super) const RECORDED: Duration = Duration::from_millis(25);

/// The owners that have locked a file, for all clients of this process.
static OWNERS: LazyLock<Mutex<Owners>> = LazyLock::new(Mutex::default);

type Owners = HashMap<FileId, OwnerId, BuildHasherDefault<Mixed>>;

/// The owner of this process that has locked a file.
pub(super) fn owner(file: FileId) -> Option<OwnerId> {
    OWNERS.lock().get(&file).copied()
}

/// The young holds of one client.
#[derive(Debug, Default)]
pub(super) struct Young {
    holds: Mutex<Vec<(Weak<LockFile>, OwnerId)>>,
    /// There are some, and [`Young::run`] knows it.
    is_known: AtomicBool,
    begun: Notify,
}

impl Young {
    /// A hold begins: this owner has locked this file.
    pub(super) fn add(&self, file: &Arc<LockFile>, id: FileId, owner: OwnerId) {
        OWNERS.lock().insert(id, owner);
        self.holds.lock().push((Arc::downgrade(file), owner));
        if !self.is_known.load(Ordering::SeqCst) && !self.is_known.swap(true, Ordering::SeqCst) {
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

    /// Writes records, for ever.
    pub(super) async fn run(&self, writer: &Writer) {
        let mut before = Vec::new();
        loop {
            if before.is_empty() && self.rest() {
                self.begun.notified().await;
            }
            tokio::time::sleep(PERIOD).await;
            for (file, owner) in std::mem::replace(&mut before, std::mem::take(&mut *self.holds.lock())) {
                if let Some(file) = file.upgrade() {
                    writer.write(&file, owner);
                }
            }
        }
    }

    /// Whether there are none. Then the next one notifies.
    fn rest(&self) -> bool {
        let holds = self.holds.lock();
        if holds.is_empty() {
            self.is_known.store(false, Ordering::SeqCst);
        }
        holds.is_empty()
    }
}
