//! The URL of a Redis or Valkey server: where it is, and how to identify to it.

use std::fmt;
use std::path::PathBuf;

use crate::credentials::Login;
use crate::tls::TlsOptions;
use crate::url::UrlError;
use crate::url::parts::{Host, Parts, malformed};

/// The contents of a URL of Redis or Valkey.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// As the URL has it, in lower case.
    scheme: String,
    pub(super) place: Place,
    pub(super) login: Login,
    pub(super) database: u32,
    pub(super) tls: Option<TlsOptions>,
}

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At this address, which may lead to another server later.
    Fixed(Endpoint),
    /// Where its sentinels say.
    Sentinels(Sentinels),
}

/// The sentinels that watch a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sentinels {
    pub(super) endpoints: Vec<Endpoint>,
    /// What the sentinels call the primary.
    pub(super) primary: String,
    pub(super) login: Login,
    pub(super) tls: Option<TlsOptions>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The forms of URL, by the end of the scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Tcp,
    Unix,
    Sentinel,
}

/// The schemes of each form. An `s` behind the name of the server means TLS.
pub(super) const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "redis+tls",
    "redis+ssl",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis-sentinel",
    "rediss-sentinel",
    "valkey",
    "valkeys",
    "valkey+tls",
    "valkey+ssl",
    "valkey+unix",
    "valkey+sentinel",
    "valkeys+sentinel",
    "valkey-sentinel",
    "valkeys-sentinel",
];

impl Address {
    /// Reads a URL of one of these forms:
    ///
    /// - `redis://[user[:password]@]host[:port][/database]`
    /// - `redis+sentinel://[user[:password]@]host[:port],…/NAME[/database]`
    /// - `redis+unix:///path[?db=…&user=…&pass=…]`
    ///
    /// Options that are not known are refused: otherwise the locks would be in another database than the URL specifies, under
    /// another user, or on a connection that is not verified as the URL says.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let mut parts = Parts::parse(url)?;
        let name = parts.scheme.as_str();
        let has_tls = ["rediss", "valkeys"].iter().any(|secure| name.starts_with(secure))
            || ["+tls", "+ssl"].iter().any(|secure| name.ends_with(secure));
        let form = match name {
            _ if name.ends_with("unix") => Form::Unix,
            _ if name.ends_with("sentinel") => Form::Sentinel,
            _ => Form::Tcp,
        };
        let mut known = Known::new(&mut parts, has_tls);
        for (key, value) in std::mem::take(&mut parts.options) {
            let is_known = known.set(form, &key, &value)?;
            parts.options.push((key, value));
            if !is_known {
                let (key, _) = &parts.options[parts.options.len() - 1];
                return Err(parts.unknown(key, hint(form, key)));
            }
        }
        known.address(form, parts)
    }

    /// Refuses TLS that this build does not have, and servers that are not verified if the program does not allow that.
    pub(super) fn permit_tls(&self, allow_unverified: bool) -> Result<(), UrlError> {
        let sentinels = match &self.place {
            Place::Sentinels(sentinels) => sentinels.tls.as_ref(),
            Place::Fixed(_) => None,
        };
        let permit = |tls: &TlsOptions| tls.permit(&self.scheme, cfg!(feature = "tls"), allow_unverified);
        self.tls.iter().chain(sentinels).try_for_each(permit)
    }

    /// The URL of the server without credentials, for errors and logs.
    pub(crate) fn server(&self) -> String {
        let Self { scheme, place, database, .. } = self;
        match (place, database) {
            (Place::Fixed(endpoint), 0) => format!("{scheme}://{endpoint}"),
            (Place::Fixed(endpoint @ Endpoint::Unix(_)), _) => format!("{scheme}://{endpoint}?db={database}"),
            (Place::Fixed(endpoint), _) => format!("{scheme}://{endpoint}/{database}"),
            (Place::Sentinels(sentinels), 0) => format!("{scheme}://{sentinels}"),
            (Place::Sentinels(sentinels), _) => format!("{scheme}://{sentinels}/{database}"),
        }
    }
}

/// The options that were read so far.
struct Known {
    login: Login,
    tls: Option<TlsOptions>,
    sentinel_login: Login,
    /// Those of TLS, which override the server's.
    sentinel_tls: Vec<(String, String)>,
    /// Whether the sentinels are reached by TLS, if the URL says so.
    sentinels_have_tls: Option<bool>,
    primary: Option<String>,
    database: Option<u32>,
    hosts: Vec<Host>,
}

impl Known {
    fn new(parts: &mut Parts, has_tls: bool) -> Self {
        Self {
            login: Login::new(parts.user.take(), parts.password.take()),
            tls: has_tls.then(TlsOptions::default),
            sentinel_login: Login::default(),
            sentinel_tls: Vec::new(),
            sentinels_have_tls: None,
            primary: None,
            database: None,
            hosts: std::mem::take(&mut parts.hosts),
        }
    }

    /// Reads one option; false if it is not known.
    fn set(&mut self, form: Form, key: &str, value: &str) -> Result<bool, UrlError> {
        if let Some(tls) = &mut self.tls
            && tls.set(key, value)?
        {
            return Ok(true);
        }
        if form == Form::Sentinel && self.set_sentinel(key, value)? {
            return Ok(true);
        }
        match (form, key) {
            (Form::Unix, "db") => self.database = Some(number(value, UNIX_DATABASE)?),
            (Form::Unix, "user" | "pass") | (_, "password_file" | "password_env") => {
                self.login.set(key, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_sentinel(&mut self, key: &str, value: &str) -> Result<bool, UrlError> {
        // The spellings of other clients.
        let key = match key {
            "sentinelUsername" => "sentinel_user",
            "sentinelPassword" => "sentinel_password",
            other => other,
        };
        match (key, key.strip_prefix("sentinel_")) {
            ("sentinelServiceName" | "sentinelMasterId" | "master_set", _) => {
                self.primary = Some(value.to_owned());
            }
            ("node" | "addr", _) => self.hosts.push(Host::parse(value, true)?),
            (_, Some("tls")) => {
                self.sentinels_have_tls = Some(match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(malformed("the URL option `sentinel_tls` is `on` or `off`")),
                });
            }
            (_, Some(key @ ("user" | "password" | "password_file" | "password_env"))) => {
                self.sentinel_login.set(key, value)?;
            }
            (_, Some(key)) if TlsOptions::default().set(key, value)? => {
                self.sentinel_tls.push((key.to_owned(), value.to_owned()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn address(mut self, form: Form, parts: Parts) -> Result<Address, UrlError> {
        let scheme = parts.scheme;
        if let Some(fragment) = parts.fragment {
            if form != Form::Sentinel {
                return Err(malformed(
                    "there is a `#` in the URL, which means nothing here: remove it and what follows",
                ));
            }
            self.primary.get_or_insert(fragment);
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        let (place, database) = match form {
            Form::Unix => (Place::Fixed(unix(&self.hosts, &parts.path)?), self.database.unwrap_or(0)),
            Form::Tcp => {
                let endpoint = tcp(&self.hosts, &scheme)?;
                (Place::Fixed(endpoint), number(&parts.path, DATABASE)?)
            }
            Form::Sentinel => {
                let (primary, database) = if let Some(primary) = self.primary.take() {
                    (primary, parts.path.as_str())
                } else {
                    let (primary, database) = parts.path.split_once('/').unwrap_or((&parts.path, ""));
                    (primary.to_owned(), database)
                };
                let database = number(database, SENTINEL_DATABASE)?;
                (Place::Sentinels(self.sentinels(primary)?), database)
            }
        };
        Ok(Address { scheme, place, login: self.login, database, tls: self.tls })
    }

    fn sentinels(&mut self, primary: String) -> Result<Sentinels, UrlError> {
        if self.hosts.is_empty() {
            return Err(malformed(
                "the URL names no sentinel: write redis+sentinel://HOST:26379,HOST:26379/NAME",
            ));
        }
        if primary.is_empty() {
            return Err(malformed(
                "the URL does not say what the sentinels call the primary: write redis+sentinel://HOST:26379/NAME, with the \
                 name of their `sentinel monitor NAME …`",
            ));
        }
        let tls = if self.sentinels_have_tls.unwrap_or(self.tls.is_some()) {
            let mut tls = self.tls.clone().unwrap_or_default();
            for (key, value) in &self.sentinel_tls {
                tls.set(key, value)?;
            }
            tls.check()?;
            Some(tls)
        } else if let Some((key, _)) = self.sentinel_tls.first() {
            return Err(malformed(format!(
                "the URL option `sentinel_{key}` is one of TLS: add sentinel_tls=on"
            )));
        } else {
            None
        };
        let endpoints = self.hosts.drain(..).map(|host| endpoint(host, SENTINEL_PORT)).collect();
        Ok(Sentinels { endpoints, primary, login: std::mem::take(&mut self.sentinel_login), tls })
    }
}

fn endpoint(host: Host, port: u16) -> Endpoint {
    Endpoint::Tcp(host.name, host.port.unwrap_or(port))
}

fn tcp(hosts: &[Host], scheme: &str) -> Result<Endpoint, UrlError> {
    match hosts {
        [host] => Ok(endpoint(host.clone(), PORT)),
        [] => Err(malformed(format!("the URL names no host: write {scheme}://HOST:PORT"))),
        _ => Err(malformed(
            "the URL names several hosts: if they are sentinels, write redis+sentinel://HOST,HOST/NAME",
        )),
    }
}

fn unix(hosts: &[Host], path: &str) -> Result<Endpoint, UrlError> {
    if !hosts.is_empty() || path.is_empty() {
        return Err(malformed("the path of a socket begins with a slash: write redis+unix:///path"));
    }
    Ok(Endpoint::Unix(format!("/{path}").into()))
}

const DATABASE: &str = "write the number behind the host, as in redis://HOST:PORT/2";
const UNIX_DATABASE: &str = "write ?db=2";
const SENTINEL_DATABASE: &str = "write the number behind the name, as in redis+sentinel://HOST/NAME/2";

fn number(text: &str, hint: &str) -> Result<u32, UrlError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| malformed(format!("the database in the URL is not a number: {hint}")))
}

/// What to write instead of an option that is not known.
fn hint(form: Form, key: &str) -> Option<&'static str> {
    match (form, key) {
        (Form::Tcp, "db" | "database") => Some(DATABASE),
        (Form::Unix, "database") => Some(UNIX_DATABASE),
        (Form::Sentinel, "db" | "database") => Some(SENTINEL_DATABASE),
        (Form::Unix, "ssl" | "tls" | "ca" | "cert" | "key" | "server_name" | "verify") => {
            Some("a socket of this machine has no TLS")
        }
        (_, "ssl" | "tls" | "ca" | "cert" | "key" | "server_name" | "verify") => {
            Some("TLS is a part of the scheme: write rediss://")
        }
        (Form::Unix, "password" | "username") => Some("write ?user=USER&pass=PASSWORD"),
        (_, "password" | "pass" | "user" | "username") => Some("write USER:PASSWORD@ before the host"),
        _ => None,
    }
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

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            write!(f, "{}{endpoint}", if index > 0 { "," } else { "" })?;
        }
        write!(f, "/{}", self.primary)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("place", &self.place)
            .field("login", &self.login)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Verify;

    fn at(endpoint: Endpoint) -> Address {
        let (place, login) = (Place::Fixed(endpoint), Login::default());
        Address { scheme: "redis".into(), place, login, database: 0, tls: None }
    }

    fn tcp(host: &str, port: u16) -> Address {
        at(Endpoint::Tcp(host.into(), port))
    }

    fn login(user: Option<&str>, password: Option<&str>) -> Login {
        Login::new(user.map(Into::into), password.map(Into::into))
    }

    fn option(key: &str, value: &str) -> Login {
        let mut login = Login::default();
        login.set(key, value).unwrap();
        login
    }

    #[test]
    fn valid_addresses_are_parsed() {
        let secret = Some("p@ss/w:rd");
        let unix = |path: &str| at(Endpoint::Unix(path.into()));
        for (url, expected) in [
            ("redis://localhost", tcp("localhost", 6379)),
            ("valkey://10.0.0.7:7000/", tcp("10.0.0.7", 7000)),
            ("redis://[::1]:7000/3", Address { database: 3, ..tcp("::1", 7000) }),
            ("redis://[fe80::1]", tcp("fe80::1", 6379)),
            ("redis://host?", tcp("host", 6379)),
            ("redis://:p%40ss%2Fw:rd@host", Address { login: login(None, secret), ..tcp("host", 6379) }),
            ("redis://me@host", Address { login: login(Some("me"), None), ..tcp("host", 6379) }),
            (
                "redis://me:p%40ss%2fw%3Ard@host:1/15",
                Address { login: login(Some("me"), secret), database: 15, ..tcp("host", 1) },
            ),
            (
                "redis://host?password_file=/run/a%20secret",
                Address { login: option("password_file", "/run/a secret"), ..tcp("host", 6379) },
            ),
            (
                "redis://host?password_env=REDIS_PASSWORD",
                Address { login: option("password_env", "REDIS_PASSWORD"), ..tcp("host", 6379) },
            ),
            (
                "redis+unix:///socket?pass=p@ss",
                Address { login: login(None, Some("p@ss")), ..unix("/socket") },
            ),
            (
                "redis+unix:///run/a%20b.sock?db=2&user=me&pass=p%40ss/w:rd",
                Address { login: login(Some("me"), secret), database: 2, ..unix("/run/a b.sock") },
            ),
        ] {
            let parsed = Address::parse(url).map(|parsed| Address { scheme: "redis".into(), ..parsed });
            assert_eq!(parsed, Ok(expected), "{url}");
        }
    }

    #[test]
    fn a_scheme_with_tls_has_options_for_it() {
        for scheme in ["rediss", "valkeys", "redis+tls", "redis+ssl", "valkey+tls", "valkey+ssl"] {
            let address = Address::parse(&format!("{scheme}://host?ca=/ca&verify=ca")).unwrap();
            let tls = TlsOptions { ca: Some("/ca".into()), verify: Verify::Ca, ..TlsOptions::default() };
            assert_eq!((address.scheme.as_str(), address.tls), (scheme, Some(tls)));
        }
        let error = Address::parse("redis://host?ca=/ca").unwrap_err().to_string();
        assert_eq!(
            error,
            "the URL option `ca` is not known here: TLS is a part of the scheme: write rediss://"
        );
        let error = Address::parse("rediss://host?cert=/c").unwrap_err().to_string();
        assert!(error.contains("`cert` needs `key`"), "{error}");
    }

    fn sentinels(url: &str) -> Sentinels {
        match Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}")).place {
            Place::Sentinels(sentinels) => sentinels,
            other @ Place::Fixed(_) => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn sentinels_are_given_in_the_spellings_of_several_clients() {
        let expected = Sentinels {
            endpoints: vec![Endpoint::Tcp("a".into(), 1), Endpoint::Tcp("b".into(), 26379)],
            primary: "main".into(),
            login: Login::default(),
            tls: None,
        };
        for url in [
            "redis+sentinel://a:1,b/main",
            "redis+sentinel://a:1,b/main/",
            "valkey+sentinel://a:1,b/main/2",
            "redis-sentinel://a:1,b/0?sentinelMasterId=main",
            "redis-sentinel://a:1,b#main",
            "redis-sentinel://pw@a:1,b/3#main",
            "redis-sentinel://user:pw@a:1/0?sentinelServiceName=main&node=b",
            "redis-sentinel://a:1?addr=b:26379&master_set=main",
        ] {
            assert_eq!(sentinels(url), expected, "{url}");
        }
        for (url, database) in [
            ("redis+sentinel://a/main", 0),
            ("redis+sentinel://a/main/2", 2),
            ("redis-sentinel://a/3?sentinelMasterId=main", 3),
        ] {
            assert_eq!(Address::parse(url).unwrap().database, database, "{url}");
        }
    }

    #[test]
    fn sentinels_may_have_other_credentials_and_other_tls_than_the_server() {
        let plain = sentinels("redis+sentinel://me:pw@a/main?sentinel_user=u&sentinel_password=p");
        assert_eq!((plain.login, plain.tls), (login(Some("u"), Some("p")), None));
        let fred = sentinels("redis-sentinel://me:pw@a/main?sentinelUsername=u&sentinelPassword=p");
        assert_eq!(fred.login, login(Some("u"), Some("p")));
        let same = sentinels("rediss+sentinel://a/main?ca=/ca");
        assert_eq!(same.tls, Some(TlsOptions { ca: Some("/ca".into()), ..TlsOptions::default() }));
        let other = sentinels("rediss+sentinel://a/main?sentinel_ca=/other&ca=/ca&verify=ca");
        let expected = TlsOptions { ca: Some("/other".into()), verify: Verify::Ca, ..TlsOptions::default() };
        assert_eq!(other.tls, Some(expected));
        assert_eq!(sentinels("rediss+sentinel://a/main?sentinel_tls=off").tls, None);
        let only = Address::parse("redis+sentinel://a/main?sentinel_tls=on&sentinel_ca=/ca").unwrap();
        assert!(only.tls.is_none());
        assert!(matches!(only.place, Place::Sentinels(Sentinels { tls: Some(_), .. })));
    }

    #[test]
    fn an_error_names_the_mistake_in_an_address() {
        for (url, mistake) in [
            ("redis://", "names no host: write redis://HOST:PORT"),
            ("rediss://", "names no host: write rediss://HOST:PORT"),
            ("redis://host/first", "database in the URL is not a number"),
            ("redis://host/-1", "database in the URL is not a number"),
            ("redis://a,b", "several hosts: if they are sentinels"),
            ("redis://host#insecure", "`#` in the URL"),
            ("redis+unix://", "begins with a slash"),
            ("redis+unix://relative.sock", "begins with a slash"),
            ("redis+unix:///socket?db=x", "database in the URL is not a number"),
            ("redis+unix:///socket?db=-1", "database in the URL is not a number"),
            ("redis+unix:///socket?pass=ab&secret", "%26"),
            ("redis+unix:///socket?pass=ab&secret=1", "%26"),
            ("redis+sentinel:///main", "names no sentinel"),
            ("redis+sentinel://a", "does not say what the sentinels call the primary"),
            ("redis+sentinel://a/main/x", "write the number behind the name"),
            ("redis+sentinel://a/main?sentinel_tls=yes", "`sentinel_tls` is `on` or `off`"),
            ("redis+sentinel://a/main?sentinel_ca=/ca", "`sentinel_ca` is one of TLS: add sentinel_tls=on"),
            ("redis://me:secret@host?password_file=/x", "two passwords"),
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
            ("redis+sentinel://host/main?sentinel_colour=red", "sentinel_colour"),
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
            (
                "rediss+sentinel://me:secret@a:1,b/main/2?sentinel_password=secret",
                "rediss+sentinel://a:1,b:26379/main/2",
            ),
        ] {
            assert_eq!(Address::parse(url).unwrap().server(), server);
        }
    }

    #[test]
    fn the_debug_output_of_an_address_does_not_show_the_password() {
        let shown = format!("{:?}", Address::parse("redis://me:secret@host").unwrap());
        assert!(!shown.contains("secret") && shown.contains("host"), "{shown}");
    }
}
