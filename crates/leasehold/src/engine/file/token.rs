//! The fencing token of a lock: a number in a file beside it.
//!
//! Not in the lock file itself: shells open that with `9>file`, which empties it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::table::{LONGEST_CHANGE, lock_shortly};

/// Raises the number and returns it when it is on the disk. The caller has the lock, perhaps with other readers.
pub(super) fn raise(path: &Path) -> io::Result<u64> {
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o666).open(path)?;
    // Readers hold the lock together. No one keeps this one for longer than the next lines take.
    lock_shortly(&file, LONGEST_CHANGE)?;
    let token = read(&file)?.checked_add(1).ok_or_else(invalid)?;
    // As long as any number, so one write replaces the one before.
    file.write_all_at(format!("{token:020}\n").as_bytes(), 0)?;
    file.sync_data()?;
    if is_new && let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(token)
}

/// The last number; zero if there was none.
pub(super) fn last(path: &Path) -> io::Result<u64> {
    match File::open(path) {
        Ok(file) => read(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

fn read(file: &File) -> io::Result<u64> {
    let mut text = String::new();
    file.take(64).read_to_string(&mut text).map_err(|_| invalid())?;
    match text.trim() {
        "" => Ok(0),
        number => number.parse().map_err(|_| invalid()),
    }
}

fn invalid() -> io::Error {
    io::Error::other(
        "this is not a token: write the greatest token that a holder may have had into it, as a number",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_from_one_and_a_file_that_is_not_a_number_is_not_overwritten() {
        let path = std::env::temp_dir().join(format!("leasehold-token-{}", std::process::id()));
        assert_eq!(last(&path).unwrap(), 0);
        assert_eq!([raise(&path).unwrap(), raise(&path).unwrap(), last(&path).unwrap()], [1, 2, 2]);
        std::fs::write(&path, "41\n").unwrap();
        assert_eq!(raise(&path).unwrap(), 42);
        for wrong in ["x", "-1", "18446744073709551615"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(raise(&path).unwrap_err().to_string().contains("not a token"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
        }
        std::fs::remove_file(path).unwrap();
    }
}
