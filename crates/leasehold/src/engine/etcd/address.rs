//! The URL of an etcd cluster: where its members are, and how to identify to them.

use std::fmt;

use crate::credentials::Login;
use crate::tls::TlsOptions;
use crate::url::UrlError;
use crate::url::parts::{Host, Parts, malformed};

const PORT: u16 = 2379;

/// The members of a cluster, in the order of the URL, and the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) members: Vec<Member>,
    pub(super) login: Login,
    /// The same for all members.
    pub(super) tls: Option<TlsOptions>,
}

/// Where a member listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Member {
    fn new(Host { name, port }: &Host) -> Self {
        Self { host: name.clone(), port: port.unwrap_or(PORT) }
    }

    /// Reads `host[:port]`.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        Host::parse(text, false).map(|host| Self::new(&host))
    }
}

impl Address {
    /// Reads `etcd://[user:password@]host[:port],…`, and `etcds://` with the options of TLS.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let mut parts = Parts::parse(url)?;
        let mut tls = (parts.scheme == SECURE).then(TlsOptions::default);
        if parts.hosts.is_empty() || !parts.path.is_empty() {
            let scheme = &parts.scheme;
            return Err(malformed(format!(
                "the URL of etcd has hosts and nothing behind them: write {scheme}://HOST:PORT,HOST:PORT"
            )));
        }
        let mut login = Login::new(parts.user.take(), parts.password.take());
        for (key, value) in &parts.options {
            if let Some(tls) = &mut tls
                && tls.set(key, value)?
            {
                continue;
            }
            if !["user", "password", "password_file", "password_env"].contains(&key.as_str()) {
                let is_tls = matches!(TlsOptions::default().set(key, value), Ok(true) | Err(_));
                return Err(parts.unknown(key, is_tls.then_some(TLS_BY_SCHEME)));
            }
            login.set(key, value)?;
        }
        if let Some(tls) = &tls {
            tls.check()?;
        }
        Ok(Self { members: parts.hosts.iter().map(Member::new).collect(), login, tls })
    }

    /// Refuses TLS that this build does not have, and servers that are not verified if the program does not allow that.
    pub(super) fn permit_tls(&self, allow_unverified: bool) -> Result<(), UrlError> {
        let permit = |tls: &TlsOptions| tls.permit(SECURE, cfg!(feature = "tls"), allow_unverified);
        self.tls.as_ref().map_or(Ok(()), permit)
    }

    /// The URL without the user, for errors and logs.
    pub(super) fn server(&self) -> String {
        let members: Vec<_> = self.members.iter().map(Member::to_string).collect();
        self.url_of(&members.join(","))
    }

    /// The URL of some members.
    pub(super) fn url_of(&self, members: &str) -> String {
        let scheme = if self.tls.is_some() { SECURE } else { PLAIN };
        format!("{scheme}://{members}")
    }
}

pub(super) const PLAIN: &str = "etcd";
/// With TLS.
pub(super) const SECURE: &str = "etcds";
const TLS_BY_SCHEME: &str = "TLS is a part of the scheme: write etcds://";

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Verify;

    #[test]
    fn the_members_of_a_cluster_are_read_in_their_order() {
        let server = |url| Address::parse(url).unwrap().server();
        assert_eq!(server("etcd://a,b:1,[::1]"), "etcd://a:2379,b:1,[::1]:2379");
        assert_eq!(server("ETCD://me:secret@a"), "etcd://a:2379");
        assert_eq!(server("etcds://me:secret@a,b?ca=/ca"), "etcds://a:2379,b:2379");
    }

    #[test]
    fn a_scheme_with_tls_has_options_for_it() {
        let address = Address::parse("etcds://a,b?ca=/ca&cert=/c&key=/k&server_name=n&verify=ca").unwrap();
        let expected = TlsOptions {
            ca: Some("/ca".into()),
            cert: Some("/c".into()),
            key: Some("/k".into()),
            server_name: Some("n".into()),
            verify: Verify::Ca,
        };
        assert_eq!(address.tls, Some(expected));
        assert_eq!(Address::parse("etcd://a").unwrap().tls, None);
        assert_eq!(
            Address::parse("etcd://a?ca=/ca").unwrap_err().to_string(),
            "the URL option `ca` is not known here: TLS is a part of the scheme: write etcds://"
        );
    }

    #[test]
    fn what_is_not_supported_is_refused_and_no_password_repeated() {
        for (url, what) in [
            ("etcd://", "has hosts"),
            ("etcd://a/locks", "nothing behind them: write etcd://"),
            ("etcds://a/locks", "nothing behind them: write etcds://"),
            ("etcd://me:secret@a?password=other", "two passwords"),
            ("etcd://a?tls=yes", "`tls` is not known"),
            ("etcds://me:secret@a?cert=/c", "`cert` needs `key`"),
            ("etcds://me:secret@a?verify=no", "`verify` is `full`"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
