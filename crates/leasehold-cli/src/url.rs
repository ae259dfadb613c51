//! The URL of an engine, which may contain a password.

use std::fmt;

use serde::{Serialize, Serializer};

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
        self.0.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("memory"))
    }
}

impl From<String> for Url {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(&self.0) };
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
        for url in ["memory:", "memory:me@home", "redis://host:6379/0", "redis://[::1]:6379"] {
            assert_eq!(Url::from(url.to_owned()).to_string(), url);
        }
    }
}
