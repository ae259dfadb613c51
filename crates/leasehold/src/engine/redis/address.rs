//! Where a server is, and who we are to it.

use std::fmt;
use std::path::PathBuf;

/// What `redis:` and `valkey:` URLs say.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) place: Place,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

const PORT: u16 = 6379;

impl Address {
    /// Reads `redis://[user[:password]@]host[:port][/database]` or `redis+unix:///path[?db=…&user=…&pass=…]`.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if scheme.ends_with("+unix") { Self::unix(rest, query) } else { Self::tcp(rest) }
    }

    fn tcp(rest: &str) -> Option<Self> {
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password, host) = match authority.rsplit_once('@') {
            Some((login, host)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (given(decoded(user)?), given(decoded(password)?), host)
            }
            None => (None, None, authority),
        };
        let (host, port) = match host.strip_prefix('[') {
            // An address with colons in it.
            Some(address) => address.split_once(']')?,
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        if host.is_empty() {
            return None;
        }
        let port = if port.is_empty() { PORT } else { port.strip_prefix(':')?.parse().ok()? };
        Some(Self { place: Place::Tcp(host.to_owned(), port), user, password, database: number(database)? })
    }

    fn unix(path: &str, query: &str) -> Option<Self> {
        let place = Place::Unix(given(decoded(path)?)?.into());
        let mut address = Self { place, user: None, password: None, database: 0 };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "db" => address.database = number(value)?,
                "user" => address.user = given(decoded(value)?),
                "pass" => address.password = given(decoded(value)?),
                _ => {}
            }
        }
        Some(address)
    }
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A part of a URL in which `%40` stands for `@` and so on, if that is text.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for Address {
    /// Without what is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("place", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address { place: Place::Tcp(host.into(), port), user: None, password: None, database: 0 }
    }

    #[test]
    fn addresses_that_are_good() {
        let (user, password) = (Some("me".to_owned()), Some("p@ss/w:rd".to_owned()));
        let unix = Place::Unix("/run/a b.sock".into());
        for (url, expected) in [
            ("redis://localhost", tcp("localhost", 6379)),
            ("valkey://10.0.0.7:7000/", tcp("10.0.0.7", 7000)),
            ("redis://[::1]:7000/3", Address { database: 3, ..tcp("::1", 7000) }),
            ("redis://[fe80::1]", tcp("fe80::1", 6379)),
            ("redis://host?protocol=resp3", tcp("host", 6379)),
            ("redis://:p%40ss%2Fw:rd@host", Address { password: password.clone(), ..tcp("host", 6379) }),
            ("redis://me@host", Address { user: user.clone(), ..tcp("host", 6379) }),
            (
                "redis://me:p%40ss%2fw%3Ard@host:1/15",
                Address { user: user.clone(), password: password.clone(), database: 15, ..tcp("host", 1) },
            ),
            (
                "redis+unix:///run/a%20b.sock?db=2&user=me&pass=p%40ss/w:rd",
                Address { place: unix, user, password, database: 2 },
            ),
        ] {
            assert_eq!(Address::parse(url), Some(expected), "{url}");
        }
    }

    #[test]
    fn addresses_that_are_not() {
        for url in [
            "redis://",
            "redis:host",
            "redis://:7000",
            "redis://host:port",
            "redis://host:70000",
            "redis://host/first",
            "redis://host/-1",
            "redis://[::1",
            "redis://[::1]7000",
            "redis://me:%zz@host",
            "redis://me:%f@host",
            "redis://%ff@host",
            "redis+unix://",
            "redis+unix:///socket?db=x",
        ] {
            assert_eq!(Address::parse(url), None, "{url}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", Address::parse("redis://me:secret@host").unwrap());
        assert!(!shown.contains("secret") && shown.contains("host"), "{shown}");
    }
}
