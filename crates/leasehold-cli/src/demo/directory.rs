//! The directory of a demo on files.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};

use crate::url::Url;

/// A directory of one demo, with its locks and its counts. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Makes a new directory, which only this user can access.
    pub(crate) fn create_in(parent: &Path) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = parent.join(format!("leasehold-demo-{}-{number}", std::process::id()));
            match builder().create(&path) {
                Ok(()) => return Ok(Self(path)),
                // One of another demo that was killed, whose process had this number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn url(&self) -> Url {
        Url::of_directory(&self.0)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A child process that was just killed may still make a file.
        let removed = (0..10).any(|_| match fs::remove_dir_all(&self.0) {
            Err(error) => error.kind() == io::ErrorKind::NotFound,
            Ok(()) => true,
        });
        if !removed {
            crate::output::write(&crate::output::line(format!("{} could not be removed", self.0.display())));
        }
    }
}

#[cfg(unix)]
fn builder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn builder() -> DirBuilder {
    DirBuilder::new()
}
