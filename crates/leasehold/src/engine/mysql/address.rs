//! The URL of a server of MySQL or MariaDB: where it is, how to identify to it, and how names are written there.

use super::names::Rule;
use crate::credentials::Login;
use crate::url::UrlError;
use crate::url::parts::{Host, Parts, malformed};

const PORT: u16 = 3306;

/// One server, the user and the rule for names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    scheme: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The database that connections use. Locks are the same in all of them.
    pub(super) database: Option<String>,
    pub(super) login: Login,
    pub(super) rule: Rule,
}

impl Address {
    /// Reads `mysql://[user:password@]host[:port][/database]`; `mariadb:` is the same.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let mut parts = Parts::parse(url)?;
        let scheme = parts.scheme.clone();
        let Some(Host { name: host, port }) = parts.hosts.pop().filter(|_| parts.hosts.is_empty()) else {
            return Err(malformed(format!(
                "named locks belong to one server: write one host, {scheme}://USER:PASSWORD@HOST:PORT"
            )));
        };
        if parts.fragment.is_some() {
            return Err(malformed(
                "there is a `#` in the URL, which means nothing here: remove it and what follows",
            ));
        }
        let mut login = Login::new(parts.user.take(), parts.password.take());
        let mut rule = Rule::Safe;
        for (key, value) in &parts.options {
            match key.as_str() {
                "user" | "password" | "password_file" | "password_env" => login.set(key, value)?,
                "exact_names" => {
                    rule = match value.as_str() {
                        "true" => Rule::Exact,
                        "false" => Rule::Safe,
                        _ => return Err(malformed("the URL option `exact_names` is `true` or `false`")),
                    };
                }
                _ => return Err(parts.unknown(key, hint(key))),
            }
        }
        let database = Some(parts.path).filter(|path| !path.is_empty());
        Ok(Self { scheme, host, port: port.unwrap_or(PORT), database, login, rule })
    }

    /// The URL without the user, for errors and logs.
    pub(super) fn server(&self) -> String {
        let Self { scheme, host, port, .. } = self;
        if host.contains(':') {
            format!("{scheme}://[{host}]:{port}")
        } else {
            format!("{scheme}://{host}:{port}")
        }
    }
}

/// What to write instead of an option that is not known.
fn hint(key: &str) -> Option<&'static str> {
    match key.to_ascii_lowercase().replace(['_', '-'], "").as_str() {
        "tls" | "ssl" | "sslmode" | "usessl" | "requiressl" | "ca" | "sslca" | "cert" | "verify" => {
            Some("connections to MySQL and MariaDB have no TLS yet")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_a_port_and_a_database() {
        let parse = |url| Address::parse(url).unwrap();
        let plain = parse("mysql://me:secret@db");
        assert_eq!((plain.host.as_str(), plain.port, plain.database.as_deref()), ("db", 3306, None));
        assert_eq!(plain.rule, Rule::Safe);
        assert_eq!(plain.server(), "mysql://db:3306");
        assert!(!format!("{plain:?}").contains("secret"));
        let full = parse("MariaDB://[::1]:3307/app?exact_names=true&user=me&password_env=SECRET");
        assert_eq!((full.port, full.database.as_deref(), full.rule), (3307, Some("app"), Rule::Exact));
        assert_eq!(full.server(), "mariadb://[::1]:3307");
    }

    #[test]
    fn what_is_not_supported_is_refused_and_no_password_repeated() {
        for (url, what) in [
            ("mysql://", "write one host, mysql://USER"),
            ("mariadb://me:secret@a,b", "write one host, mariadb://USER"),
            ("mysql://me:secret@a?password=other", "two passwords"),
            ("mysql://me:secret@a?tls=true", "have no TLS yet"),
            ("mysql://me:secret@a?ssl-mode=REQUIRED", "have no TLS yet"),
            ("mysql://me:secret@a?exact_names=1", "`true` or `false`"),
            ("mysql://me:secret@a?pool=5", "`pool` is not known"),
            ("mysql://me:secret@a/db#x", "`#` in the URL"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
