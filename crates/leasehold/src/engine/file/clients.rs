//! Which clients are alive: each locks a file of its own for as long as it lives.
//!
//! Permits and groups are lines in a table, which does not disappear with a process. So each line names its client, and a
//! line of a client that is gone does not count. One open file per client is enough, however many holds it has.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::lock_file::{LockFile, Mode};
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
        self.create()?;
        let file = loop {
            let file = LockFile::open(&path)?;
            // A client that checks whether this one lives has it for a moment, and may remove it.
            lock_shortly(file.file(), LONGEST_CHANGE)?;
            if file.current(&path)?.is_some() {
                break file;
            }
        };
        // Only for people who look at it.
        let _ = file.file().write_all_at(writer.client().as_bytes(), 0);
        own.insert(client, file);
        Ok(())
    }

    /// Makes the folder, for the same users as the directory of the locks.
    fn create(&self) -> io::Result<()> {
        if self.folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        if let Some(permissions) = self.folder.parent().and_then(|of| fs::metadata(of).ok()) {
            // Where that is not allowed, the folder is for this user alone.
            let _ = fs::set_permissions(&self.folder, permissions.permissions());
        }
        Ok(())
    }

    /// Whether a client lives. The file of a dead one is removed.
    pub(super) fn is_alive(&self, client: ClientId) -> bool {
        if self.own.lock().contains_key(&client) {
            return true;
        }
        let path = self.path(client);
        let file = match LockFile::open_existing(&path) {
            Ok(file) => file,
            // Any other error says nothing about the client.
            Err(error) => return error.kind() != io::ErrorKind::NotFound,
        };
        // Alone, and only the file that is there: the client may have made another one.
        match file.try_lock(Mode::Exclusive) {
            Ok(true) if matches!(file.current(&path), Ok(Some(_))) => {
                let _ = fs::remove_file(&path);
                false
            }
            // It was replaced, or another client checks at the same time.
            _ => true,
        }
    }

    /// This client does not live any more.
    ///
    /// A fork only closes its copies: the files belong to its parent.
    pub(super) fn close(&self, is_fork: bool) {
        for (client, file) in std::mem::take(&mut *self.own.lock()) {
            if is_fork {
                file.keep();
            } else {
                let _ = fs::remove_file(self.path(client));
            }
            drop(file);
        }
    }
}
