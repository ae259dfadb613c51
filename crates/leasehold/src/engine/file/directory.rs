//! The directory of the locks: which one a URL means, and whether it can be used.

use std::env::home_dir;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::error::ServerError;
use crate::url::UrlError;
use crate::url::decode::decode_bytes;

/// The directory of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// It is the user's own, not one that the URL names.
    is_own: bool,
}

/// Where the locks of a user are, below the home directory. Not `$XDG_RUNTIME_DIR`: a shell has that variable and cron has
/// not, so the two would not contend.
const OWN: &str = ".local/state/leasehold/locks";

impl Directory {
    /// `file:` is the user's own directory, `file:///path` the one that it names.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let rest = url.split_once(':').map_or("", |(_, rest)| rest);
        if let Some((_, option)) = rest.split_once('?') {
            let key = option.split(['=', '&']).next().unwrap_or_default().to_owned();
            let hint = Some("`file:` has no options; write a `?` of a path as %3F");
            return Err(UrlError::UnknownOption { key, hint });
        }
        if rest.is_empty() {
            let home = home_dir().filter(|home| home.is_absolute());
            let why =
                "`file:` needs a home directory, and there is none: name a directory, file:///var/lock/app";
            return home
                .map(|home| Self { path: home.join(OWN), is_own: true })
                .ok_or_else(|| UrlError::Malformed(why.into()));
        }
        let path = match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
            None => rest,
        };
        if !path.starts_with('/') {
            let why =
                "the directory of a `file:` URL is absolute: write file:///directory, with three slashes";
            return Err(UrlError::Malformed(why.into()));
        }
        Ok(Self { path: decoded(path)?, is_own: false })
    }

    /// The URL that names this directory.
    pub(super) fn url(&self) -> String {
        let path = self.path.as_os_str().as_bytes().iter().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' | b'+' | b'@' => {
                char::from(*byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        });
        format!("file://{}", path.collect::<String>())
    }

    /// Makes the directory if it is missing, and checks it.
    pub(super) fn open(&self) -> Result<(), ServerError> {
        self.create().map_err(|error| self.unusable(&error))?;
        let metadata = self.metadata()?;
        if self.is_own && metadata.uid() != rustix::process::geteuid().as_raw() {
            let path = self.path.display();
            return Err(ServerError::Denied(format!(
                "{path} belongs to another user: name a directory for locks between users, file:///var/lock/app"
            )));
        }
        for warning in self.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    fn metadata(&self) -> Result<fs::Metadata, ServerError> {
        let metadata = fs::metadata(&self.path).map_err(|error| self.unusable(&error))?;
        if metadata.is_dir() {
            return Ok(metadata);
        }
        Err(ServerError::Denied(format!("{} is not a directory", self.path.display())))
    }

    /// Checks that the directory is there and can be written, and changes nothing.
    pub(super) fn check(&self) -> Result<(), ServerError> {
        self.metadata()?;
        access(&self.path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| self.unusable(&error.into()))
    }

    /// What an operator should know about the directory.
    pub(super) fn warnings(&self) -> Vec<String> {
        let network = kind(&self.path).and_then(network);
        let text = |system| {
            format!(
                "{} is on {system}: a lock there may be lost without notice when the file server restarts or is cut off",
                self.path.display()
            )
        };
        network.map(text).into_iter().collect()
    }

    /// Makes the directory if it is missing.
    pub(super) fn create(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(if self.is_own { 0o700 } else { 0o777 }).create(&self.path)
    }

    fn unusable(&self, error: &io::Error) -> ServerError {
        let path = self.path.display();
        let advice =
            if self.is_own { "; name a directory that can be written, file:///var/lock/app" } else { "" };
        ServerError::Denied(format!("the directory {path} cannot be used: {error}{advice}"))
    }
}

/// The bytes of a percent-encoded path.
fn decoded(path: &str) -> Result<PathBuf, UrlError> {
    let wrong = |why: &str| UrlError::Malformed(format!("the path of the `file:` URL {why}"));
    let bytes = decode_bytes(path)
        .ok_or_else(|| wrong("has a `%` without two hexadecimal digits: write %25 for a `%`"))?;
    if bytes.contains(&0) {
        return Err(wrong("has a zero byte, which no file name may have"));
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// The number of the kind of file system that a directory is on.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn kind(path: &Path) -> Option<u32> {
    u32::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn kind(_path: &Path) -> Option<u32> {
    None
}

/// The name of a kind of file system, if its locks depend on a file server. The numbers are those of `statfs(2)`.
fn network(kind: u32) -> Option<&'static str> {
    Some(match kind {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x6573_5546 => "a FUSE file system",
        0x0102_1997 => "9P",
        0x00c3_6400 => "Ceph",
        0x5346_414f => "AFS",
        0x0bd0_0bd0 => "Lustre",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_directory_in_every_usual_form() {
        for (url, path) in [
            ("file:///var/lock/app", "/var/lock/app"),
            ("FILE:/var/lock/app", "/var/lock/app"),
            ("file://localhost/var/lock", "/var/lock"),
            ("file:///with%20space/%EC%A2%8C", "/with space/좌"),
        ] {
            let directory = Directory::parse(url).unwrap();
            assert_eq!(directory, Directory { path: path.into(), is_own: false });
            assert_eq!(Directory::parse(&directory.url()), Ok(directory));
        }
        assert_eq!(Directory { path: "/a b".into(), is_own: false }.url(), "file:///a%20b");
    }

    #[test]
    fn a_network_file_system_is_recognised_and_a_local_one_is_not() {
        assert_eq!([0x6969, 0xfe53_4d42].map(network), [Some("NFS"), Some("SMB")]);
        let [ext4, btrfs, xfs, tmpfs, overlay] = [0xef53, 0x9123_683e, 0x5846_5342, 0x0102_1994, 0x794c_7630];
        assert_eq!([ext4, btrfs, xfs, tmpfs, overlay].map(network), [None; 5]);
    }

    #[test]
    fn an_incomplete_or_unknown_url_gets_an_error_that_says_what_to_write() {
        for (url, what) in [
            ("file:locks", "three slashes"),
            ("file://locks/app", "three slashes"),
            ("file://", "three slashes"),
            ("file:///a%2", "%25"),
            ("file:///a%00", "zero byte"),
            ("file:///a?mode=x", "`mode`"),
            ("file:?mode", "`mode`"),
        ] {
            let error = Directory::parse(url).unwrap_err().to_string();
            assert!(error.contains(what), "{url}: {error}");
        }
    }
}
