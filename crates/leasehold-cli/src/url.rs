//! The URL of an engine, which may contain a password.

use std::env::{self, home_dir};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use thiserror::Error;

/// The URL of an engine. Its displayed, logged and serialized forms leave out everything that may be secret.
#[derive(Clone)]
pub struct Url(String);

impl Url {
    /// The environment variable that replaces `--url`.
    pub const VARIABLE: &str = "LEASEHOLD_URL";

    /// The whole URL, with its password.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether the engine runs inside the process that connects to it.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.has_scheme("memory")
    }

    /// Whether the locks are files of this machine.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.has_scheme("file")
    }

    /// Whether it names one server, which is connected to without TLS.
    #[must_use]
    pub fn is_plain_server(&self) -> bool {
        ["redis", "valkey", "redis+unix", "valkey+unix"].iter().any(|scheme| self.has_scheme(scheme))
    }

    fn has_scheme(&self, name: &str) -> bool {
        self.0.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(name))
    }

    /// The value of an option, which an empty text is not: a script with an unset variable must not lock on one machine
    /// only by mistake.
    pub(crate) fn given(option: Option<&Self>) -> Result<Option<&Self>, EmptyUrl> {
        match option {
            Some(url) if url.0.is_empty() => {
                let is_variable = env::var_os(Self::VARIABLE).is_some_and(|value| value.is_empty());
                Err(if is_variable { EmptyUrl::Variable } else { EmptyUrl::Option })
            }
            given => Ok(given),
        }
    }

    /// The URL of the user's own locks on this machine.
    pub(crate) fn own_files() -> Self {
        Self("file:".into())
    }

    /// The URL of the locks in a directory.
    pub(crate) fn of_directory(path: &Path) -> Self {
        let encoded = path.as_os_str().as_encoded_bytes().iter().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' | b'+' | b'@' => {
                char::from(*byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        });
        Self(format!("file://{}", encoded.collect::<String>()))
    }

    /// The directory of a `file:` URL that the library accepts.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let (_, rest) = self.0.split_once(':').filter(|_| self.is_file())?;
        if rest.is_empty() {
            return home_dir().map(|home| home.join(OWN_FILES));
        }
        let path =
            rest.strip_prefix("//").map_or(rest, |rest| rest.strip_prefix("localhost").unwrap_or(rest));
        decoded(path)
    }

    /// The same URL, with the directory that `file:` alone means.
    #[must_use]
    pub(crate) fn resolved(&self) -> Self {
        self.directory().map_or_else(|| self.clone(), |path| Self::of_directory(&path))
    }
}

/// The directory of `file:` below the home directory, as the library has it.
const OWN_FILES: &str = ".local/state/leasehold/locks";

/// A percent-encoded path.
#[cfg(unix)]
fn decoded(path: &str) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let mut parts = path.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    Some(std::ffi::OsString::from_vec(bytes).into())
}

/// Where there is no file engine.
#[cfg(not(unix))]
fn decoded(_path: &str) -> Option<PathBuf> {
    None
}

/// A URL was given, and it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmptyUrl {
    /// In the environment.
    #[error("{} is empty: unset it to lock on this machine only, or set it to a URL", Url::VARIABLE)]
    Variable,
    /// As an argument.
    #[error("--url is empty: leave it out to lock on this machine only, or give a URL")]
    Option,
}

impl From<String> for Url {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://").filter(|_| !self.is_file()) else {
            return f.write_str(&self.0);
        };
        // The last `@`, not the first: a password that is not encoded may contain one, or a `/` or a `?`.
        let address = rest.rsplit_once('@').map_or(rest, |(_userinfo, address)| address);
        // Some servers accept a password as a parameter too.
        let address = address.split(['?', '#']).next().unwrap_or_default();
        write!(f, "{scheme}://{address}")
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

impl Serialize for Url {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("redis://me:secret@host:6379/0", "redis://host:6379/0"),
            ("redis://:secret@host", "redis://host"),
            ("redis://:sec/r?e#t@secret@host/1", "redis://host/1"),
            ("redis://me:secret@a,me:secret@b/main", "redis://b/main"),
            ("postgres://host/db?user=me&password=secret", "postgres://host/db"),
        ] {
            let url = Url::from(url.to_owned());
            assert_eq!(url.to_string(), shown);
            assert_eq!(serde_json::to_value(&url).unwrap(), shown);
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn a_url_without_secrets_is_shown_unchanged() {
        for url in ["memory:", "memory:me@home", "redis://host:6379/0", "redis://[::1]:6379", "file:///a@b"] {
            assert_eq!(Url::from(url.to_owned()).to_string(), url);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_url_and_its_directory_are_the_same_place() {
        for (url, path, resolved) in [
            ("file:///var/lock/app", "/var/lock/app", "file:///var/lock/app"),
            ("FILE:/var/lock", "/var/lock", "file:///var/lock"),
            ("file://localhost/a%20b%25", "/a b%", "file:///a%20b%25"),
            ("file:///%EC%A2%8C/좌", "/좌/좌", "file:///%EC%A2%8C/%EC%A2%8C"),
        ] {
            let url = Url::from(url.to_owned());
            assert_eq!(url.directory(), Some(path.into()));
            assert_eq!(url.resolved().secret(), resolved);
            assert_eq!(url.resolved().directory(), url.directory());
        }
        let own = Url::own_files().directory().expect("a home directory");
        assert!(own.is_absolute() && own.ends_with(OWN_FILES), "{own:?}");
        for none in ["file:///a%2", "file:///a%zz", "redis://host"] {
            assert_eq!(Url::from(none.to_owned()).directory(), None);
            assert_eq!(Url::from(none.to_owned()).resolved().secret(), none);
        }
    }
}
