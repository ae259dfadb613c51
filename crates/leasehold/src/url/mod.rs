//! URLs of engines, and what may be wrong with them.

#[cfg(any(feature = "etcd", feature = "file", feature = "mysql", feature = "redis"))]
pub(crate) mod decode;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
pub(crate) mod parts;

use thiserror::Error;

use crate::engine::schemes::usage;

/// The URL is not supported. The text repeats no part of the URL that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is white space in it, mostly a remnant of copying.
    #[error("there is a space in the URL: remove it, or write %20 for it")]
    Space,
    /// There is no `scheme:` at the beginning.
    #[error("the URL has no scheme: write {known}", known = usage())]
    NoScheme,
    /// It begins with a host and a port.
    #[error("the URL has no scheme: for a Redis server at that host write redis://{0}:PORT")]
    OnlyHost(String),
    /// A scheme that is planned.
    #[error("{what} (`{scheme}:`) is not supported yet; supported are {known}", known = usage())]
    NotYet {
        /// The scheme.
        scheme: &'static str,
        /// What it stands for.
        what: &'static str,
    },
    /// No engine of this build supports that scheme.
    #[error("the URL scheme `{0}:` is not known; known are {known}", known = usage())]
    UnknownScheme(String),
    /// It asks for TLS, which this build does not have.
    #[error(
        "TLS (`{scheme}:`) is not a part of this build: enable the feature `tls` of the crate `leasehold`"
    )]
    NoTls {
        /// The scheme.
        scheme: String,
    },
    /// It asks for a server that is not verified, and the program has not agreed to that.
    #[error(
        "with `verify=none` any machine in between can read the password and answer in place of the server, so the program \
         has to agree, by `ConnectOptions::allow_unverified_tls` or `leasehold run --allow-unverified-tls`: better verify it \
         by ca=PATH"
    )]
    Unverified,
    /// A part of it cannot be read.
    #[error("{0}")]
    Malformed(String),
    /// A key after the question mark is unknown. Its value is not repeated.
    #[error("the URL option `{key}` is not known here{}", hint.as_ref().map_or_else(String::new, |hint| format!(": {hint}")))]
    UnknownOption {
        /// The key.
        key: String,
        /// What to write instead.
        hint: Option<&'static str>,
    },
}

/// Schemes that other clients know, and what they stand for.
const PLANNED: &[(&str, &str)] = &[
    ("redis+cluster", "Redis Cluster"),
    ("redis-cluster", "Redis Cluster"),
    ("rediss+cluster", "Redis Cluster with TLS"),
    ("rediss-cluster", "Redis Cluster with TLS"),
    ("valkey+cluster", "Valkey Cluster"),
    ("valkey-cluster", "Valkey Cluster"),
    ("valkeys+cluster", "Valkey Cluster with TLS"),
    ("valkeys-cluster", "Valkey Cluster with TLS"),
];

impl UrlError {
    /// What is wrong with a URL whose scheme is not in the table: `name` is the text before the first colon.
    pub(crate) fn unknown_scheme(name: &str, rest: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        if let Some(&(scheme, what)) = PLANNED.iter().find(|(planned, _)| *planned == lower) {
            return Self::NotYet { scheme, what };
        }
        let is_port = !rest.is_empty() && rest.len() <= 5 && rest.bytes().all(|byte| byte.is_ascii_digit());
        if is_port {
            return Self::OnlyHost(name.to_owned());
        }
        Self::UnknownScheme(name.to_owned())
    }

    /// Refuses white space.
    pub(crate) fn check_spaces(url: &str) -> Result<(), Self> {
        if url.contains(char::is_whitespace) { Err(Self::Space) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::engine::schemes::{self, Options};

    fn error(url: &str) -> Option<String> {
        let second = Duration::from_secs(1);
        let options = Options {
            connect_timeout: second,
            response_timeout: second,
            linger: second,
            ..Options::default()
        };
        schemes::open(url, options).err().map(|error| error.to_string())
    }

    #[test]
    fn known_urls_are_accepted() {
        for url in ["memory:", "memory:tests", "MEMORY:"] {
            assert_eq!(error(url), None, "{url}");
        }
        #[cfg(feature = "redis")]
        for url in [
            "redis://host",
            "REDIS://host",
            " redis://host",
            "redis://host\n",
            "valkey://host",
            "redis+unix:///socket",
            "valkey+unix:///socket",
            "Valkeys+Sentinel://a,b/main",
        ] {
            assert_eq!(error(url), None, "{url}");
        }
    }

    #[test]
    fn a_url_without_a_known_scheme_gets_an_error_that_lists_the_schemes() {
        for (url, what) in [
            ("", "no scheme"),
            ("localhost", "no scheme"),
            ("memory", "no scheme"),
            (":", "no scheme"),
            ("http://x", "`http:` is not known"),
            ("redis+cluster://x", "Redis Cluster (`redis+cluster:`) is not supported yet"),
        ] {
            let text = error(url).unwrap();
            assert!(text.contains(what), "{text}");
            assert!(text.contains("`memory:`") && text.contains("`memory:NAME`"), "{text}");
        }
    }

    #[test]
    fn a_url_with_one_mistake_gets_an_error_that_names_it() {
        for (url, text) in [
            ("memory://x", "a memory engine has no host and no path: write `memory:` or `memory:NAME`"),
            (
                "localhost:7481",
                "the URL has no scheme: for a Redis server at that host write redis://localhost:PORT",
            ),
            ("redis://ho st", "there is a space in the URL: remove it, or write %20 for it"),
        ] {
            assert_eq!(error(url).unwrap(), text);
        }
    }

    #[test]
    fn a_password_in_a_refused_url_is_not_repeated() {
        for url in [
            "postgres://me:secret@host/db",
            "secret@host:6379",
            "//me:secret@host",
            "me:secret",
            "redis://me:secret@host:port",
            "redis://me:se/secret@host",
            "redis://me:se:secret@host:1:2",
            "redis://me:p@secret/w@host",
            "redis://me:secret",
            "redis://me:p@host/secret@h",
        ] {
            let text = error(url).unwrap();
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
