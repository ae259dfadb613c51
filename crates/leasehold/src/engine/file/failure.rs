//! The errors of the file system, and what to do about them.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::engine::remote::store::StoreError;
use crate::error::ServerError;

/// A request failed at this file, and has changed nothing.
pub(super) fn refused(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Refused(failure(path, error))
}

/// A name under which there is something else.
pub(super) fn not_ours() -> StoreError {
    StoreError::Refused(ServerError::NotALock)
}

fn failure(path: &Path, error: &io::Error) -> ServerError {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "free some space, or name a directory on another disk",
        Some(Errno::MFILE) => "every held lock is an open file: raise the limit of open files (ulimit -n)",
        Some(Errno::NFILE) => "the system has too many open files",
        Some(Errno::ACCESS | Errno::PERM) => {
            return denied(path, error, "give this user the right to write the file and its directory");
        }
        Some(Errno::ROFS) => return denied(path, error, "name a directory that can be written"),
        _ => return ServerError::Unavailable(format!("{}: {error}", path.display())),
    };
    ServerError::Unavailable(format!("{}: {error}: {advice}", path.display()))
}

fn denied(path: &Path, error: &io::Error, advice: &str) -> ServerError {
    ServerError::Denied(format!("{}: {error}: {advice}", path.display()))
}
