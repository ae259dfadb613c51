//! Temporary directories.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// A fresh directory that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(super) fn new() -> Self {
        Self::below(&env::temp_dir())
    }

    /// One in memory, if the machine has a place for that: for a server that writes every change to its disk.
    pub(super) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory) } else { Self::new() }
    }

    fn below(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("leasehold-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self { path },
                // Left behind by an earlier process of the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make a directory for a server: {}: {error}", path.display()),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // If it stays, it does no harm; and a panic here might hide the relevant one.
        let _ = fs::remove_dir_all(&self.path);
    }
}
