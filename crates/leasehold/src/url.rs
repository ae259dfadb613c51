//! Errors of URLs.

use thiserror::Error;

use crate::engine::schemes::usage;

/// The URL is not supported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `scheme:` at the beginning.
    #[error("the URL has no scheme; known are {known}", known = usage())]
    NoScheme,
    /// No engine of this build supports that scheme.
    #[error("the URL scheme `{0}:` is not known; known are {known}", known = usage())]
    UnknownScheme(String),
    /// A memory engine has a name, not a host or a path.
    #[error("a memory engine has no host and no path; known are {known}", known = usage())]
    MemoryPath,
    /// The part after `redis:` or `valkey:` is malformed.
    #[cfg(feature = "redis")]
    #[error("the address of the Redis server cannot be read; known are {known}", known = usage())]
    BrokenRedis,
    /// A key after the question mark is unknown. Its value is not repeated.
    #[cfg(feature = "redis")]
    #[error("the URL says `{0}` behind its question mark, which is not known there; known are {known}", known = usage())]
    UnknownQuery(String),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::engine::schemes::{self, Options};

    fn error(url: &str) -> Option<String> {
        let second = Duration::from_secs(1);
        let options = Options {
            label: String::new(),
            connect_timeout: second,
            response_timeout: second,
            linger: second,
        };
        schemes::open(url, options).err().map(|error| error.to_string())
    }

    #[test]
    fn known_urls() {
        for url in ["memory:", "memory:tests"] {
            assert_eq!(error(url), None, "{url}");
        }
        #[cfg(feature = "redis")]
        for url in ["redis://host", "valkey://host", "redis+unix:///socket", "valkey+unix:///socket"] {
            assert_eq!(error(url), None, "{url}");
        }
    }

    #[test]
    fn a_broken_url_says_what_is_wrong_and_lists_the_schemes() {
        for (url, what) in [
            ("", "no scheme"),
            ("localhost", "no scheme"),
            ("memory", "no scheme"),
            (":", "no scheme"),
            ("memory://x", "no host and no path"),
            ("Memory:", "`Memory:` is not known"),
            ("http://x", "`http:` is not known"),
        ] {
            let text = error(url).unwrap();
            assert!(text.contains(what), "{text}");
            assert!(text.contains("`memory:`") && text.contains("`memory:NAME`"), "{text}");
        }
    }

    #[test]
    fn a_password_in_an_unknown_url_is_not_repeated() {
        for url in [
            "postgres://me:secret@host/db",
            "secret@host:6379",
            "//me:secret@host",
            "me:secret",
            "redis://me:secret@host:port",
        ] {
            let text = error(url).unwrap();
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
