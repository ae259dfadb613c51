//! Where a client connects to.

use thiserror::Error;

#[cfg(feature = "redis")]
use crate::engine::redis::Address;

/// A URL we know, taken apart.
pub(crate) enum Url {
    /// `memory:`, an engine of its own for one client.
    Private,
    /// `memory:NAME`, an engine shared by all clients of the process that say the same name.
    Shared(String),
    /// `sim:NAME`, a simulated server for tests, shared by all clients of the process that say the same name.
    #[cfg(feature = "test-util")]
    Simulated(String),
    /// A Redis or Valkey server.
    #[cfg(feature = "redis")]
    Redis(Address),
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once(':').ok_or(UrlError::NoScheme)?;
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Private),
            "memory" if rest.starts_with('/') => Err(UrlError::MemoryPath),
            "memory" => Ok(Self::Shared(rest.to_owned())),
            #[cfg(feature = "test-util")]
            "sim" => Ok(Self::Simulated(rest.to_owned())),
            #[cfg(feature = "redis")]
            "redis" | "valkey" | "redis+unix" | "valkey+unix" => Address::parse(text).map(Self::Redis),
            // What only looks like a scheme may be half of a password: it is not repeated.
            _ if scheme.is_empty() || !scheme.bytes().all(may_be_in_scheme) => Err(UrlError::NoScheme),
            _ => Err(UrlError::UnknownScheme(scheme.to_owned())),
        }
    }
}

fn may_be_in_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

#[cfg(feature = "redis")]
const SCHEMES: &str = "\
    `redis://[user:password@]host[:port][/db]` (Redis; `valkey://` is the same), \
    `redis+unix:///path[?db=…&user=…&pass=…]` (its socket on this machine), \
    `memory:` (an engine inside this process, for one client), \
    `memory:NAME` (the same, shared by all clients of this process that say NAME)";
#[cfg(not(feature = "redis"))]
const SCHEMES: &str = "\
    `memory:` (an engine inside this process, for one client), \
    `memory:NAME` (the same, shared by all clients of this process that say NAME)";

/// The URL is not one we know.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `scheme:` at the beginning.
    #[error("the URL has no scheme; known are {SCHEMES}")]
    NoScheme,
    /// Nothing here speaks that scheme.
    #[error("the URL scheme `{0}:` is not known; known are {SCHEMES}")]
    UnknownScheme(String),
    /// A memory engine has a name, not a host or a path.
    #[error("a memory engine has no host and no path; known are {SCHEMES}")]
    MemoryPath,
    /// The part behind `redis:` or `valkey:` is not what it should be.
    #[cfg(feature = "redis")]
    #[error("the address of the Redis server cannot be read; known are {SCHEMES}")]
    BrokenRedis,
    /// Behind the question mark stands a key that is not known there. Its value is not repeated.
    #[cfg(feature = "redis")]
    #[error("the URL says `{0}` behind its question mark, which is not known there; known are {SCHEMES}")]
    UnknownQuery(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_urls() {
        assert!(matches!(Url::parse("memory:"), Ok(Url::Private)));
        assert!(matches!(Url::parse("memory:tests"), Ok(Url::Shared(name)) if name == "tests"));
        #[cfg(feature = "redis")]
        for url in ["redis://host", "valkey://host", "redis+unix:///socket", "valkey+unix:///socket"] {
            assert!(matches!(Url::parse(url), Ok(Url::Redis(_))), "{url}");
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
            let text = Url::parse(url).err().unwrap().to_string();
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
            let text = Url::parse(url).err().unwrap().to_string();
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
