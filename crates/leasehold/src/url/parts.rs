//! The parts of the URL of a server, the same for every engine that has servers.

use std::fmt;

use super::UrlError;
use super::decode::decode_bytes;

/// `scheme://[user[:password]@]host[:port],…[/path][?key=value&…][#fragment]`, each part decoded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    /// In lower case.
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Empty if the path begins at once.
    pub(crate) hosts: Vec<Host>,
    /// What follows the slash behind the hosts.
    pub(crate) path: String,
    /// In the order of the URL.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) fragment: Option<String>,
}

/// A host, and its port if the URL has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

const AT: &str = "the URL has an `@` too many: in a user or a password percent-encode `@` as %40, `:` as %3A, `/` as %2F, \
                  `?` as %3F and `#` as %23";
const QUERY: &str = "the part of the URL after its `?` cannot be read: in a password write %3F for `?`";
const AMPERSAND: &str =
    "the part of the URL after its password cannot be read: in a password write %26 for `&`";

impl Parts {
    /// Splits a URL.
    ///
    /// An `@` where none belongs is a part of a password, and so may be everything before it: none of that is repeated.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            let scheme = url.split(':').next().unwrap_or_default();
            return Err(malformed(format!("there is no `//` in the URL: write {scheme}://HOST:PORT")));
        };
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, after)| (rest, Some(after)));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_stray = |text: &str| text.contains('@');
        // A socket's path has no host before it, so an `@` in it is none of a user.
        let is_path = authority.is_empty();
        if authority.matches('@').count() > 1
            || (!is_path && (is_stray(path) || is_stray(query)))
            || fragment.is_some_and(is_stray)
        {
            return Err(malformed(AT));
        }
        let (user, password, hosts) = match authority.split_once('@') {
            Some((login, hosts)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (given(decode(user)?), given(decode(password)?), hosts)
            }
            None => (None, None, authority),
        };
        let has_login = authority.contains('@');
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password,
            hosts: hosts.map(|host| Host::parse(host, has_login)).collect::<Result<_, _>>()?,
            path: decode(path)?,
            options: options(query)?,
            fragment: fragment.map(decode).transpose()?,
        })
    }
}

impl fmt::Debug for Parts {
    /// Without anything that may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("scheme", &self.scheme)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Reads `host`, `host:port`, `[address]` or `[address]:port`.
    pub(crate) fn parse(text: &str, has_login: bool) -> Result<Self, UrlError> {
        let (name, port) = match text.strip_prefix('[') {
            // An IPv6 address, which contains colons.
            Some(address) => address
                .split_once(']')
                .ok_or_else(|| malformed("an IPv6 address needs a closing bracket: write [::1]:PORT"))?,
            None if text.matches(':').count() > 1 => {
                return Err(malformed("an IPv6 address needs brackets: write [::1]:PORT"));
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if name.is_empty() {
            return Err(malformed("the URL names no host before the port: write HOST:PORT"));
        }
        if port.is_empty() {
            return Ok(Self { name: name.to_owned(), port: None });
        }
        let text = port.strip_prefix(':').unwrap_or_default();
        match text.parse() {
            Ok(port @ 1..) => Ok(Self { name: name.to_owned(), port: Some(port) }),
            _ if has_login => {
                Err(malformed(format!("the port `{text}` in the URL is not a number from 1 to 65535")))
            }
            // It may be a password whose host was forgotten, so it is not repeated.
            _ => Err(malformed(format!(
                "what follows `{name}:` in the URL is not a port, a number from 1 to 65535; if it is a password, `@HOST` \
                 is missing after it"
            ))),
        }
    }
}

/// Splits what follows the question mark. The words that are keys are not decoded.
fn options(query: &str) -> Result<Vec<(String, String)>, UrlError> {
    let mut options: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_word = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if !is_word {
            return Err(malformed(if after_secret(&options) { AMPERSAND } else { QUERY }));
        }
        options.push((key.to_owned(), decode(value)?));
    }
    Ok(options)
}

/// Whether what follows may be the rest of a password that contains an `&`.
fn after_secret(options: &[(String, String)]) -> bool {
    options.iter().any(|(key, _)| is_secret(key))
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.ends_with("pass") || key.ends_with("password")
}

impl Parts {
    /// The error of an option that no one knows. After a password with an `&` in it, the key is a part of the password.
    pub(crate) fn unknown(&self, key: &str, hint: Option<&'static str>) -> UrlError {
        let before = self.options.iter().take_while(|(other, _)| other != key);
        if before.into_iter().any(|(other, _)| is_secret(other)) {
            return malformed(AMPERSAND);
        }
        UrlError::UnknownOption { key: key.to_owned(), hint }
    }
}

pub(crate) fn malformed(text: impl Into<String>) -> UrlError {
    UrlError::Malformed(text.into())
}

fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A percent-decoded part of a URL: `%40` is `@`, and so on.
fn decode(part: &str) -> Result<String, UrlError> {
    decode_bytes(part).and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        malformed("a `%` in the URL needs two hexadecimal digits of UTF-8: write %25 for `%` itself")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: Option<u16>) -> Host {
        Host { name: name.into(), port }
    }

    #[test]
    fn a_url_is_split_into_decoded_parts() {
        let parts =
            Parts::parse("Redis+Sentinel://me:p%40ss@a:1,[::1]:2,c/main%2F1/2?k=v%26w&flag#frag%20ment")
                .unwrap();
        let expected = Parts {
            scheme: "redis+sentinel".into(),
            user: Some("me".into()),
            password: Some("p@ss".into()),
            hosts: vec![host("a", Some(1)), host("::1", Some(2)), host("c", None)],
            path: "main/1/2".into(),
            options: vec![("k".into(), "v&w".into()), ("flag".into(), String::new())],
            fragment: Some("frag ment".into()),
        };
        assert_eq!(parts, expected);
        let socket = Parts::parse("redis+unix:///run/a@b?pass=p@ss").unwrap();
        assert_eq!((socket.hosts.len(), socket.path.as_str()), (0, "run/a@b"));
        assert_eq!(socket.options, [("pass".to_owned(), "p@ss".to_owned())]);
    }

    #[test]
    fn an_error_names_the_mistake_in_a_url() {
        let at = "an `@` too many";
        for (url, mistake) in [
            ("redis:host", "no `//` in the URL: write redis://HOST:PORT"),
            ("redis://:7000", "names no host before the port"),
            ("redis://host:secret", "follows `host:` in the URL is not a port"),
            ("redis://me@host:port", "the port `port` in the URL is not a number"),
            ("redis://me@host:70000", "the port `70000` in the URL is not a number from 1 to 65535"),
            ("redis://host:0", "from 1 to 65535"),
            ("redis://a,b:secret", "follows `b:`"),
            ("redis://::1", "an IPv6 address needs brackets"),
            ("redis://[::1", "closing bracket"),
            ("redis://[::1]7000", "follows `::1:`"),
            ("redis://me:%zz@host", "%25"),
            ("redis://me:%f@host", "%25"),
            ("redis://%ff@host", "%25"),
            // A password with a character that has to be encoded is not repeated.
            ("redis://me:12?secret@host", at),
            ("redis://me:12?sec=ret@host", at),
            ("redis://me:12#secret@host", at),
            ("redis://u:p@ss:w/d@host", at),
            ("redis://u:p/d@host", at),
            ("redis://u:p@d@host", at),
            ("redis+unix:///socket?pass=ab&:secret", "%26"),
            ("redis+unix:///socket?:secret", "%3F"),
        ] {
            let error = Parts::parse(url).expect_err(url).to_string();
            assert!(error.contains(mistake), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_option_is_named_unless_it_may_be_a_part_of_a_password() {
        let parts = Parts::parse("redis://host?colour=red&pass=ab&secret=1").unwrap();
        assert_eq!(
            parts.unknown("colour", Some("paint it")).to_string(),
            "the URL option `colour` is not known here: paint it"
        );
        assert_eq!(parts.unknown("secret", None).to_string(), AMPERSAND);
    }

    #[test]
    fn the_debug_output_of_parts_shows_no_secret() {
        let shown = format!("{:?}", Parts::parse("redis://me:secret@host?pass=secret").unwrap());
        assert!(!shown.contains("secret") && shown.contains("host"), "{shown}");
    }
}
