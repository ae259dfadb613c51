//! A directory of lock files under the suite.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Backend, DOWNGRADE, MIN_HOLD, ONE_STEP, Reply, VIEW};

/// A directory of its own, removed with this.
#[derive(Debug, Clone)]
pub struct Files {
    directory: Arc<Directory>,
    url: String,
}

#[derive(Debug)]
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Files {
    /// A new directory.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every one is another directory")]
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-files-{}-{number}", std::process::id());
        Self::at(std::env::temp_dir().join(name))
    }

    /// This directory, which the first client makes.
    #[must_use]
    pub fn at(directory: PathBuf) -> Self {
        let url = format!("file://{}", directory.display());
        Self { directory: Arc::new(Directory(directory)), url }
    }

    /// Where the files are.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory.0
    }

    /// The names of locked files, and of tables with content, of names that begin with this. Files of locks stay for good.
    #[must_use]
    pub fn left(&self, prefix: &str) -> Vec<String> {
        let prefix = encode(prefix);
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        let is_state = |entry: &fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let inode = entry.metadata().map_or(0, |metadata| metadata.ino());
            let is_table = entry.path().extension().is_some_and(|extension| extension == "state");
            name.starts_with(&prefix) && (is_table || locks.contains(&format!(":{inode} ")))
        };
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten().filter(is_state);
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The file of a lock.
    #[must_use]
    pub fn lock_file(&self, name: &str) -> PathBuf {
        self.path().join(format!("{}.lock", encode(name)))
    }
}

/// The file name of a short name.
fn encode(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let letter = |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(letter).collect()
}

impl Backend for Files {
    fn url(&self) -> &str {
        &self.url
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        let name = encode(name);
        for kind in ["lock", "group.state"] {
            let _ = fs::remove_file(self.path().join(format!("{name}.{kind}")));
        }
        Box::pin(async {})
    }

    fn lacks(&self) -> &'static [&'static str] {
        &[
            "fair lock",
            "SET NX lock",
            "takeover (`steal`)",
            "`force_unlock`",
            MIN_HOLD,
            DOWNGRADE,
            VIEW,
            ONE_STEP,
        ]
    }

    fn left_behind<'a>(&'a self, prefix: &'a str) -> Reply<'a, Option<usize>> {
        let left = self.left(prefix).len();
        Box::pin(async move { Some(left) })
    }
}
