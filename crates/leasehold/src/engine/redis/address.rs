//! The address of a server, and the credentials for it.

use std::fmt;
use std::path::PathBuf;

use crate::url::UrlError;

/// The contents of a `redis:` or `valkey:` URL.
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
    ///
    /// Unknown query parameters are refused: otherwise the locks would be in another database than the URL specifies, or under
    /// another user.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::BrokenRedis)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_unix = scheme.ends_with("+unix");
        let address = if is_unix { Self::unix(rest) } else { Self::tcp(rest) };
        let mut address = address.ok_or(UrlError::BrokenRedis)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !is_unix || !["db", "user", "pass"].contains(&key) {
                return Err(unknown(key, query));
            }
            address.set(key, value).ok_or(UrlError::BrokenRedis)?;
        }
        Ok(address)
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
            // An IPv6 address, which contains colons.
            Some(address) => address.split_once(']')?,
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        if host.is_empty() {
            return None;
        }
        let port = if port.is_empty() { PORT } else { port.strip_prefix(':')?.parse().ok()? };
        Some(Self { place: Place::Tcp(host.to_owned(), port), user, password, database: number(database)? })
    }

    fn unix(path: &str) -> Option<Self> {
        let place = Place::Unix(given(decoded(path)?)?.into());
        Some(Self { place, user: None, password: None, database: 0 })
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "db" => self.database = number(value)?,
            "user" => self.user = given(decoded(value)?),
            _ => self.password = given(decoded(value)?),
        }
        Some(())
    }
}

/// Reports the unknown key, but not a text that may be a part of a password with an unescaped question mark.
fn unknown(key: &str, query: &str) -> UrlError {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_plain && !query.contains('@') {
        UrlError::UnknownQuery(key.to_owned())
    } else {
        UrlError::BrokenRedis
    }
}

impl Address {
    /// A text of the server, without the password.
    pub(crate) fn without_password(&self, text: &str) -> String {
        self.password.as_ref().map_or_else(|| text.to_owned(), |password| text.replace(password, "***"))
    }

    /// Whether a text of the server contains the beginning of the password, as a truncated text may.
    pub(crate) fn is_repeated_in(&self, text: &str) -> bool {
        let beginning = self.password.as_deref().map(|password| password.chars().take(4).collect::<String>());
        beginning.is_some_and(|beginning| text.contains(&beginning))
    }
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A percent-decoded part of a URL (`%40` is `@` and so on), if that is text.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Debug for Address {
    /// Without the password.
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
            ("redis://host?", tcp("host", 6379)),
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
            assert_eq!(Address::parse(url), Ok(expected), "{url}");
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
            "redis+unix:///socket?db=-1",
            // A password with a question mark in it is not repeated.
            "redis://me:12?secret@host",
            "redis://me:12?sec=ret@host",
        ] {
            assert_eq!(Address::parse(url), Err(UrlError::BrokenRedis), "{url}");
        }
    }

    #[test]
    fn what_is_not_known_behind_the_question_mark_is_refused_by_its_name() {
        for (url, key) in [
            ("redis://host?db=2", "db"),
            ("redis://host/2?protocol=resp3", "protocol"),
            ("valkey://me:secret@host?tls", "tls"),
            ("redis+unix:///socket?db=2&password=secret", "password"),
            ("redis+unix:///socket?database=2", "database"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error, UrlError::UnknownQuery(key.into()), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", Address::parse("redis://me:secret@host").unwrap());
        assert!(!shown.contains("secret") && shown.contains("host"), "{shown}");
    }
}
