//! What this client has of each lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::lock_file::{FileId, LockFile};
use super::young::Young;
use crate::engine::HoldKey;
use crate::owner::OwnerId;

/// The places of a client, by hold.
pub(super) type Places = HashMap<HoldKey, Place, BuildHasherDefault<Mixed>>;

/// What this client has of a lock.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A waiter's open file.
    Waiting(Arc<LockFile>),
    /// A locked file.
    Held(Arc<LockFile>, FileId),
    /// Permits that are only counted, of the semaphore of this generation.
    Counted(u64),
    /// A line in a table. The number distinguishes it from a later one of the same hold.
    Listed(u64),
}

impl Place {
    /// The hold of this owner ends. The lock is free from then on, although the check and the writer of records may have
    /// its file open for a moment longer.
    ///
    /// In a fork nothing ends: the locks are those of its parent.
    pub(super) fn end(&self, owner: OwnerId, is_fork: bool) {
        match self {
            Self::Held(file, _) | Self::Waiting(file) if is_fork => file.keep(),
            Self::Held(file, id) => {
                Young::remove(*id, owner);
                file.recorded.erase(file);
                file.unlock();
            }
            Self::Waiting(_) | Self::Counted(_) | Self::Listed(_) => {}
        }
    }
}

/// A hash of a few numbers: the hash of the name, which no one else knows, and those of the owner.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // An odd factor with as many ones as zeros spreads each bit over the higher ones.
        self.0 = (self.0.rotate_left(26) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
