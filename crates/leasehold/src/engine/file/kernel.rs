//! Which processes have locked a file, by the kernel's own list.

use std::path::Path;

use super::lock_file::{FileId, Mode};

/// One holder of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHolder {
    pub(super) mode: Mode,
    /// The process that has locked it; a child that inherited the file may have outlived it.
    pub(super) process: u32,
}

/// The holders of the file under a path. The query locks nothing, so it keeps no one out.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn holders(path: &Path, id: FileId) -> std::io::Result<Vec<FileHolder>> {
    let id = FileId { device: device(path).unwrap_or(id.device), ..id };
    for _ in 0..TRIES {
        let (list, is_whole) = list()?;
        let holders: Vec<_> = list.lines().filter_map(|line| holder(line, id)).collect();
        if is_whole || !holders.is_empty() {
            return Ok(holders);
        }
    }
    Ok(Vec::new())
}

/// The device of a file as the list has it: that of its mount. Some file systems (btrfs) give each file another one.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn device(path: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let mount = stat.stx_mnt_id.to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount))?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// How often a list is read that came in several pieces and does not have the file.
#[cfg(any(target_os = "linux", target_os = "android"))]
const TRIES: u32 = 8;

/// The kernel's list, and whether it came in one piece. Only one piece is consistent: if a lock goes away between two, the
/// next line is missing.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn list() -> std::io::Result<(String, bool)> {
    use std::io::Read as _;
    let mut file = std::fs::File::open("/proc/locks")?;
    let (mut text, mut pieces, mut buffer) = (Vec::new(), 0, vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((String::from_utf8_lossy(&text).into_owned(), pieces <= 1)),
            length => {
                text.extend_from_slice(&buffer[..length]);
                pieces += 1;
            }
        }
    }
}

/// Without such a list, all that is known is whether it can be locked at this moment.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn holders(path: &Path, _id: FileId) -> std::io::Result<Vec<FileHolder>> {
    use super::lock_file::LockFile;
    let file = LockFile::open(path)?;
    let mode = match (file.try_lock(Mode::Shared)?, file.try_lock(Mode::Exclusive)?) {
        (_, true) => return Ok(Vec::new()),
        (true, false) => Mode::Shared,
        (false, false) => Mode::Exclusive,
    };
    Ok(vec![FileHolder { mode, process: 0 }])
}

/// The holder in one line: `7: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF`. A process that waits has an arrow before it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn holder(line: &str, id: FileId) -> Option<FileHolder> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let mode = match words.nth(1)? {
        "READ" => Mode::Shared,
        _ => Mode::Exclusive,
    };
    let process = words.next()?.parse().ok()?;
    let mut file = words.next()?.split(':');
    let mut number = |radix| u64::from_str_radix(file.next()?, radix).ok();
    let (major, minor, inode) = (number(16)?, number(16)?, number(10)?);
    let (own_major, own_minor) = (rustix::fs::major(id.device), rustix::fs::minor(id.device));
    let is_it = inode == id.inode && (major, minor) == (own_major.into(), own_minor.into());
    is_it.then_some(FileHolder { mode, process })
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn only_holders_of_the_same_file_are_found_in_the_list() {
        let id = FileId { device: rustix::fs::makedev(0xfd, 0x1), inode: 1234 };
        let found = |line| holder(line, id);
        let exclusive = Some(FileHolder { mode: Mode::Exclusive, process: 4711 });
        assert_eq!(found("7: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF"), exclusive);
        let shared = Some(FileHolder { mode: Mode::Shared, process: 4711 });
        assert_eq!(found("7: FLOCK  ADVISORY  READ  4711 fd:01:1234 0 EOF"), shared);
        for other in [
            "7: -> FLOCK  ADVISORY  WRITE 4712 fd:01:1234 0 EOF",
            "7: POSIX  ADVISORY  WRITE 4711 fd:01:1234 0 EOF",
            "7: FLOCK  ADVISORY  WRITE 4711 fd:01:1235 0 EOF",
            "7: FLOCK  ADVISORY  WRITE 4711 fd:02:1234 0 EOF",
            "",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
