//! One open file, which is locked by `flock(2)`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, FlockOperation, flock, fstat, statat};
use rustix::io::Errno;

use super::young::Recorded;

/// Which file it is, under whatever name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl FileId {
    /// The file under this path now.
    pub(super) fn of(path: &Path) -> io::Result<Option<Self>> {
        match look(CWD, path) {
            Ok((id, _)) => Ok(Some(id)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The id of a file and how many names it has. An empty path is the open file itself.
///
/// It requests no times: after a query for them, Linux writes the time of the next change to the disk, which makes the
/// record of the next holder cost twice as much.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn look(file: impl AsFd, path: &Path) -> Result<(FileId, u64), Errno> {
    use rustix::fs::{StatxFlags, makedev, statx};
    match statx(&file, path, AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::NLINK) {
        Ok(stat) => {
            let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
            Ok((FileId { device, inode: stat.stx_ino }, stat.stx_nlink.into()))
        }
        // Before Linux 4.11, and where a sandbox does not know it.
        Err(Errno::NOSYS | Errno::PERM) => look_at_all(file, path),
        Err(error) => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use self::look_at_all as look;

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "the types differ between systems"
)]
fn look_at_all(file: impl AsFd, path: &Path) -> Result<(FileId, u64), Errno> {
    let is_open = path.as_os_str().is_empty();
    let stat = if is_open { fstat(file)? } else { statat(file, path, AtFlags::empty())? };
    Ok((FileId { device: stat.st_dev as u64, inode: stat.st_ino.into() }, stat.st_nlink as u64))
}

/// How a file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

/// An open file. The lock is bound to it, not to the process: it is free when every copy of the descriptor is closed.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    /// Which file it is, once that was queried.
    id: OnceLock<FileId>,
    /// It was opened for writing.
    pub(super) is_writable: bool,
    /// A copy was given away, with which the lock lives on; or the lock is freed already.
    is_copied: AtomicBool,
    /// A waiter had it open before it was locked.
    pub(super) was_waited_for: AtomicBool,
    pub(super) recorded: Recorded,
}

impl LockFile {
    /// Opens a file, and makes it if it is missing.
    ///
    /// A file of another user, which can only be read, can be locked all the same.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (file, is_writable) = match options().create(true).open(path) {
            Ok(file) => (file, true),
            // In a directory that many users share, the kernel may refuse to open a file of another user for creation.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::ACCESS | Errno::ROFS)) => {
                match options().open(path) {
                    Ok(file) => (file, true),
                    Err(_) => (File::open(path).map_err(|_| error)?, false),
                }
            }
            Err(error) => return Err(error),
        };
        Ok(Self::new(file, is_writable))
    }

    /// Opens a file for reading, if it is there.
    pub(super) fn open_existing(path: &Path) -> io::Result<Self> {
        Ok(Self::new(File::open(path)?, false))
    }

    fn new(file: File, is_writable: bool) -> Self {
        Self {
            file,
            id: OnceLock::new(),
            is_writable,
            is_copied: AtomicBool::new(false),
            was_waited_for: AtomicBool::new(false),
            recorded: Recorded::default(),
        }
    }

    /// Locks it, unless another open file excludes that.
    pub(super) fn try_lock(&self, mode: Mode) -> io::Result<bool> {
        let operation = match mode {
            Mode::Shared => FlockOperation::NonBlockingLockShared,
            Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            match flock(&self.file, operation) {
                Ok(()) => return Ok(true),
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The file, if it is still the one under this path: a lock on a file that was unlinked or replaced excludes no one.
    pub(super) fn current(&self, path: &Path) -> io::Result<Option<FileId>> {
        let own = match self.id.get() {
            Some(id) => *id,
            None => look(&self.file, Path::new(""))?.0,
        };
        // While the file is open, no other file gets its id.
        Ok(FileId::of(path)?.filter(|current| *current == *self.id.get_or_init(|| own)))
    }

    /// The file, if it still has a name.
    pub(super) fn linked(&self) -> io::Result<Option<FileId>> {
        let (id, names) = look(&self.file, Path::new(""))?;
        Ok((names > 0).then_some(id))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// From now on dropping this does not free the lock: other processes have it, too.
    pub(super) fn keep(&self) {
        self.is_copied.store(true, Ordering::SeqCst);
    }

    /// Frees the lock, unless there are copies. Dropping this does not free it once more.
    pub(super) fn unlock(&self) {
        if !self.is_copied.swap(true, Ordering::SeqCst) {
            // Closing frees it, too.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }

    /// A copy of the descriptor. From now on dropping this does not free the lock.
    pub(super) fn copy(&self) -> io::Result<File> {
        let copy = self.file.as_fd().try_clone_to_owned()?;
        self.keep();
        Ok(copy.into())
    }
}

impl Drop for LockFile {
    /// Unlocks before it closes: a child process that is just being started has copies of all descriptors for a moment.
    /// And the kernel notifies watchers of a close before it frees the lock, but of this one after.
    fn drop(&mut self) {
        self.unlock();
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o666);
    options
}
