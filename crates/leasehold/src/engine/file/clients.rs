//! Which clients are alive: each locks a file of its own for as long as it lives.
//!
//! Permits and groups are lines in a table, which does not disappear with a process. So each line names its client, and a
//! line of a client that is gone does not count. One open file per client is enough, however many holds it has.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::lock_file::LockFile;
use super::record::Writer;
use super::table::{LONGEST_CHANGE, lock_shortly};
use crate::client_id::ClientId;
use crate::mutex::Mutex;

/// The files of clients, below the directory of the locks. No name of a lock begins with a dot.
const FOLDER: &str = ".clients";

#[derive(Debug)]
pub(super) struct Clients {
    folder: PathBuf,
    // Invariant: each file is locked.
    own: Mutex<HashMap<ClientId, LockFile>>,
}

impl Clients {
    pub(super) fn new(directory: &Path) -> Self {
        Self { folder: directory.join(FOLDER), own: Mutex::default() }
    }

    fn path(&self, client: ClientId) -> PathBuf {
        self.folder.join(client.to_string())
    }

    /// Makes this client count as alive from now on, until [`close`](Self::close).
    pub(super) fn enter(&self, client: ClientId, writer: &Writer) -> io::Result<()> {
        let mut own = self.own.lock();
        let path = self.path(client);
        if let Some(file) = own.get(&client)
            && file.current(&path)?.is_some()
        {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let file = loop {
            let file = LockFile::open(&path)?;
            // A client that checks whether this one lives has it for a moment, and may remove it.
            lock_shortly(file.file(), LONGEST_CHANGE, &path)?;
            if file.current(&path)?.is_some() {
                break file;
            }
        };
        // Only for people who look at it.
        let _ = fs::write(&path, writer.client());
        own.insert(client, file);
        Ok(())
    }

    /// Whether a client lives. The file of a dead one is removed.
    pub(super) fn is_alive(&self, client: ClientId) -> bool {
        if self.own.lock().contains_key(&client) {
            return true;
        }
        let path = self.path(client);
        let Ok(file) = fs::File::open(&path) else { return false };
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = fs::remove_file(&path);
                false
            }
            Err(_) => true,
        }
    }

    /// This client does not live any more.
    pub(super) fn close(&self) {
        for (client, file) in std::mem::take(&mut *self.own.lock()) {
            let _ = fs::remove_file(self.path(client));
            drop(file);
        }
    }
}
