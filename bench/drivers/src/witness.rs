//! A check for mutual exclusion: a file that all processes read and write without any synchronisation.
//!
//! Each name has a record of four numbers: the owner that is inside, how many grants there were, when the last owner left,
//! and its process. An owner that enters must find the record empty; an owner that leaves must find itself. The counts add
//! up to all grants, unless two owners were inside at once and one overwrote the count of the other.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The length of a record.
pub const RECORD: usize = 32;

/// Nanoseconds since 1970: the one clock that all languages and processes of a machine share.
#[must_use]
pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64)
}

/// Checks whether another owner is inside.
#[derive(Debug)]
pub enum Witness {
    /// For several processes.
    File {
        /// The file, which the harness made.
        file: File,
        /// The number of this process.
        process: u64,
        /// How many violations were found.
        violations: AtomicU64,
    },
    /// For one process where a file would take too long.
    Memory {
        /// The owner that is inside, for each name.
        inside: Vec<AtomicU64>,
        /// How many violations were found.
        violations: AtomicU64,
    },
}

impl Witness {
    /// The witness in the file at `path`.
    ///
    /// # Errors
    ///
    /// When there is no such file.
    pub fn open(path: &Path, process: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self::File { file, process, violations: AtomicU64::new(0) })
    }

    /// A witness in memory.
    #[must_use]
    pub fn memory(names: usize) -> Self {
        let inside = (0..names).map(|_| AtomicU64::new(0)).collect();
        Self::Memory { inside, violations: AtomicU64::new(0) }
    }

    fn record(file: &File, name: usize) -> [u64; 4] {
        let mut bytes = [0; RECORD];
        // A record that cannot be read is all zeros, which is detected when its owner leaves.
        let _ = file.read_exact_at(&mut bytes, (name * RECORD) as u64);
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        std::array::from_fn(number)
    }

    /// An owner has just been granted the lock, after waiting since `since`. Returns how long ago an owner in another
    /// process released it, if that was during the wait.
    pub fn enter(&self, name: usize, who: u64, since: u64) -> Option<u64> {
        match self {
            Self::File { file, process, violations } => {
                let now = unix_nanos();
                let [inside, _, left, by] = Self::record(file, name);
                let _ = file.write_all_at(&who.to_le_bytes(), (name * RECORD) as u64);
                violations.fetch_add(u64::from(inside != 0), Ordering::Relaxed);
                (by != 0 && by != *process && left >= since && left <= now).then(|| now - left)
            }
            Self::Memory { inside, violations } => {
                let before = inside[name].load(Ordering::Relaxed);
                inside[name].store(who, Ordering::Relaxed);
                violations.fetch_add(u64::from(before != 0), Ordering::Relaxed);
                None
            }
        }
    }

    /// An owner is about to release the lock.
    pub fn leave(&self, name: usize, who: u64) {
        match self {
            Self::File { file, process, violations } => {
                let [inside, count, ..] = Self::record(file, name);
                violations.fetch_add(u64::from(inside != who), Ordering::Relaxed);
                let record = [0, count + 1, unix_nanos(), *process].map(u64::to_le_bytes);
                let _ = file.write_all_at(record.as_flattened(), (name * RECORD) as u64);
            }
            Self::Memory { inside, violations } => {
                let me = inside[name].load(Ordering::Relaxed);
                inside[name].store(0, Ordering::Relaxed);
                violations.fetch_add(u64::from(me != who), Ordering::Relaxed);
            }
        }
    }

    /// How many violations were found.
    #[must_use]
    pub fn violations(&self) -> u64 {
        let (Self::File { violations, .. } | Self::Memory { violations, .. }) = self;
        violations.load(Ordering::Relaxed)
    }
}
