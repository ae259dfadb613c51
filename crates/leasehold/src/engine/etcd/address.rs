//! The URL of an etcd cluster: where its members are, and how to identify to them.

use crate::credentials::Login;
use crate::url::UrlError;
use crate::url::parts::{Host, Parts, malformed};

const PORT: u16 = 2379;

/// The members of a cluster, in the order of the URL, and the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) members: Vec<String>,
    pub(super) login: Login,
}

impl Address {
    /// Reads `etcd://[user:password@]host[:port],…`.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let mut parts = Parts::parse(url)?;
        if parts.hosts.is_empty() || !parts.path.is_empty() {
            return Err(malformed(
                "the URL of etcd has hosts and nothing behind them: write etcd://HOST:PORT,HOST:PORT",
            ));
        }
        let mut login = Login::new(parts.user.take(), parts.password.take());
        for (key, value) in &parts.options {
            if !["user", "password", "password_file", "password_env"].contains(&key.as_str()) {
                return Err(parts.unknown(key, None));
            }
            login.set(key, value)?;
        }
        let member = |Host { name, port }: &Host| {
            let port = port.unwrap_or(PORT);
            if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
        };
        Ok(Self { members: parts.hosts.iter().map(member).collect(), login })
    }

    /// The URL without the user, for errors and logs.
    pub(super) fn server(&self) -> String {
        format!("etcd://{}", self.members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_cluster_are_read_in_their_order() {
        let members = |url| Address::parse(url).unwrap().members;
        assert_eq!(members("etcd://a,b:1,[::1]"), ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!(Address::parse("ETCD://me:secret@a").unwrap().server(), "etcd://a:2379");
    }

    #[test]
    fn what_is_not_supported_is_refused_and_no_password_repeated() {
        for (url, what) in [
            ("etcd://", "has hosts"),
            ("etcd://a/locks", "nothing behind them"),
            ("etcd://me:secret@a?password=other", "two passwords"),
            ("etcd://a?tls=yes", "`tls` is not known"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
