//! The address of a server, and the credentials for it.

use std::fmt;
use std::path::PathBuf;

use crate::url::UrlError;

/// The contents of a `redis:` or `valkey:` URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
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
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(malformed("there is no `//` in the URL: write redis://HOST:PORT"));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_unix = scheme.to_ascii_lowercase().ends_with("+unix");
        // An `@` where none belongs is a part of a password, and so may be everything before it: none of it is repeated.
        let (before, after) = rest.split_once('/').unwrap_or((rest, ""));
        if before.matches('@').count() > 1 || (!is_unix && (after.contains('@') || query.contains('@'))) {
            return Err(malformed(
                "the URL has an `@` too many: in a user or a password write %40 for `@`, %3A for `:`, %2F for `/` and \
                 %3F for `?`",
            ));
        }
        let mut address = if is_unix { Self::unix(rest)? } else { Self::tcp(rest)? };
        let mut after_password = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !is_unix || !["db", "user", "pass"].contains(&key) {
                // After a password with an `&` in it, the key is a part of the password.
                return Err(if after_password { malformed(AMPERSAND) } else { unknown(key, is_unix) });
            }
            address.set(key, value)?;
            after_password |= key == "pass";
        }
        Ok(address)
    }

    fn tcp(rest: &str) -> Result<Self, UrlError> {
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password, host) = match authority.rsplit_once('@') {
            Some((login, host)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (given(decoded(user)?), given(decoded(password)?), host)
            }
            None => (None, None, authority),
        };
        let bracket = || malformed("an IPv6 address needs a closing bracket: write redis://[::1]:6379");
        let (host, port) = match host.strip_prefix('[') {
            // An IPv6 address, which contains colons.
            Some(address) => address.split_once(']').ok_or_else(bracket)?,
            None if host.matches(':').count() > 1 => {
                return Err(malformed("an IPv6 address needs brackets: write redis://[::1]:6379"));
            }
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        if host.is_empty() {
            return Err(malformed("the URL names no host: write redis://HOST:PORT"));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => PORT,
            text => text.and_then(|text| text.parse().ok()).filter(|port| *port > 0).ok_or_else(|| {
                // Without an `@` the text may be a user and a password whose host was forgotten.
                let port = if rest.contains('@') {
                    format!(" {:?}", port.trim_start_matches(':'))
                } else {
                    String::new()
                };
                malformed(&format!("the port{port} in the URL is not a number from 1 to 65535"))
            })?,
        };
        let database = number(database, DATABASE)?;
        Ok(Self { endpoint: Endpoint::Tcp(host.to_owned(), port), user, password, database })
    }

    fn unix(path: &str) -> Result<Self, UrlError> {
        let path = decoded(path)?;
        if !path.starts_with('/') {
            return Err(malformed("the path of a socket begins with a slash: write redis+unix:///path"));
        }
        Ok(Self { endpoint: Endpoint::Unix(path.into()), user: None, password: None, database: 0 })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), UrlError> {
        match key {
            "db" => self.database = number(value, UNIX_DATABASE)?,
            "user" => self.user = given(decoded(value)?),
            _ => self.password = given(decoded(value)?),
        }
        Ok(())
    }

    /// The URL of the server without credentials, for errors and logs.
    pub(crate) fn server(&self, url: &str) -> String {
        let scheme = url.split_once(':').map_or("redis", |(scheme, _)| scheme).to_ascii_lowercase();
        let database = match (self.database, &self.endpoint) {
            (0, _) => String::new(),
            (database, Endpoint::Tcp(..)) => format!("/{database}"),
            (database, Endpoint::Unix(_)) => format!("?db={database}"),
        };
        format!("{scheme}://{}{database}", self.endpoint)
    }
}

fn malformed(text: &str) -> UrlError {
    UrlError::Malformed(text.to_owned())
}

const AMPERSAND: &str = "the part of the URL after `pass=` cannot be read: in a password write %26 for `&`";
const DATABASE: &str = "write the number behind the host, as in redis://HOST:PORT/2";
const UNIX_DATABASE: &str = "write ?db=2";

/// Names the unknown key, if that is a plain word.
fn unknown(key: &str, is_unix: bool) -> UrlError {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if !is_plain {
        return malformed(
            "the part of the URL after its `?` cannot be read: in a password write %3F for `?`",
        );
    }
    let hint = match (key, is_unix) {
        ("db" | "database", false) => Some(DATABASE),
        ("database", true) => Some(UNIX_DATABASE),
        ("ssl" | "tls", _) => Some("TLS is not supported yet"),
        ("password" | "pass" | "user" | "username", false) => Some("write redis://USER:PASSWORD@HOST:PORT"),
        ("password" | "username", true) => Some("write ?user=USER&pass=PASSWORD"),
        _ => None,
    };
    UrlError::UnknownOption { key: key.to_owned(), hint }
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

fn number(text: &str, hint: &str) -> Result<u32, UrlError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| malformed(&format!("the database in the URL is not a number: {hint}")))
}

fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A percent-decoded part of a URL: `%40` is `@`, and so on.
fn decoded(part: &str) -> Result<String, UrlError> {
    let decode = || {
        let mut bytes = Vec::with_capacity(part.len());
        let mut rest = part.bytes();
        while let Some(byte) = rest.next() {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
        }
        String::from_utf8(bytes).ok()
    };
    decode().ok_or_else(|| {
        malformed("a `%` in the URL needs two hexadecimal digits of UTF-8: write %25 for `%` itself")
    })
}

impl fmt::Display for Endpoint {
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
        f.debug_struct("Address").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address { endpoint: Endpoint::Tcp(host.into(), port), user: None, password: None, database: 0 }
    }

    #[test]
    fn valid_addresses_are_parsed() {
        let (user, password) = (Some("me".to_owned()), Some("p@ss/w:rd".to_owned()));
        let unix = Endpoint::Unix("/run/a b.sock".into());
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
                "redis+unix:///socket?pass=p@ss",
                Address {
                    endpoint: Endpoint::Unix("/socket".into()),
                    user: None,
                    password: Some("p@ss".into()),
                    database: 0,
                },
            ),
            (
                "redis+unix:///run/a%20b.sock?db=2&user=me&pass=p%40ss/w:rd",
                Address { endpoint: unix, user, password, database: 2 },
            ),
        ] {
            assert_eq!(Address::parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn an_error_names_the_mistake_in_an_address() {
        let at = "an `@` too many";
        for (url, mistake) in [
            ("redis://", "names no host"),
            ("redis:host", "no `//`"),
            ("redis://:7000", "names no host"),
            ("redis://host:port", "the port in the URL is not a number"),
            ("redis://me@host:port", "the port \"port\" in the URL is not a number"),
            ("redis://host:70000", "from 1 to 65535"),
            ("redis://host:0", "from 1 to 65535"),
            ("redis://host/first", "database in the URL is not a number"),
            ("redis://host/-1", "database in the URL is not a number"),
            ("redis://::1", "brackets"),
            ("redis://[::1", "closing bracket"),
            ("redis://[::1]7000", "the port in the URL"),
            ("redis://me:%zz@host", "%25"),
            ("redis://me:%f@host", "%25"),
            ("redis://%ff@host", "%25"),
            ("redis+unix://", "begins with a slash"),
            ("redis+unix://relative.sock", "begins with a slash"),
            ("redis+unix:///socket?db=x", "database in the URL is not a number"),
            ("redis+unix:///socket?db=-1", "database in the URL is not a number"),
            // A password with a character that has to be encoded is not repeated.
            ("redis://me:12?secret@host", at),
            ("redis://me:12?sec=ret@host", at),
            ("redis://u:p@ss:w/d@host", at),
            ("redis://u:p/d@host", at),
            ("redis://u:p@d@host", at),
            ("redis+unix:///socket?pass=ab&secret", "%26"),
            ("redis+unix:///socket?pass=ab&secret=1", "%26"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains(mistake), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_option_is_refused_by_its_name() {
        for (url, key) in [
            ("redis://host?db=2", "db"),
            ("redis://host/2?protocol=resp3", "protocol"),
            ("valkey://me:secret@host?tls", "tls"),
            ("redis+unix:///socket?db=2&password=secret", "password"),
            ("redis+unix:///socket?database=2", "database"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(matches!(&error, UrlError::UnknownOption { key: found, .. } if found == key), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let error = Address::parse("redis://host?db=2").unwrap_err().to_string();
        assert_eq!(
            error,
            "the URL option `db` is not known here: write the number behind the host, as in redis://HOST:PORT/2"
        );
    }

    #[test]
    fn the_server_is_shown_without_credentials() {
        for (url, server) in [
            ("redis://me:secret@host", "redis://host:6379"),
            ("VALKEY://[::1]:7000/3", "valkey://[::1]:7000/3"),
            ("redis+unix:///run/a.sock?db=2&pass=secret", "redis+unix:///run/a.sock?db=2"),
        ] {
            assert_eq!(Address::parse(url).unwrap().server(url), server);
        }
    }

    #[test]
    fn the_debug_output_of_an_address_does_not_show_the_password() {
        let shown = format!("{:?}", Address::parse("redis://me:secret@host").unwrap());
        assert!(!shown.contains("secret") && shown.contains("host"), "{shown}");
    }
}
