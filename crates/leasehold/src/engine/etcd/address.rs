//! The URL of an etcd cluster: where its members are.

use crate::url::UrlError;
use crate::url::parts::{Host, Parts, malformed};

const PORT: u16 = 2379;

/// The members of a cluster, in the order of the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) members: Vec<String>,
}

impl Address {
    /// Reads `etcd://host[:port],…`.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let parts = Parts::parse(url)?;
        if parts.user.is_some() || parts.password.is_some() {
            return Err(malformed("users of etcd are not supported yet: write etcd://HOST:PORT"));
        }
        if parts.hosts.is_empty() || !parts.path.is_empty() {
            return Err(malformed(
                "the URL of etcd has hosts and nothing behind them: write etcd://HOST:PORT,HOST:PORT",
            ));
        }
        if let Some((key, _)) = parts.options.first() {
            return Err(parts.unknown(key, None));
        }
        let member = |Host { name, port }: &Host| {
            let port = port.unwrap_or(PORT);
            if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
        };
        Ok(Self { members: parts.hosts.iter().map(member).collect() })
    }

    /// The URL, for errors and logs.
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
        assert_eq!(Address::parse("ETCD://a").unwrap().server(), "etcd://a:2379");
    }

    #[test]
    fn what_is_not_supported_is_refused_and_no_password_repeated() {
        for (url, what) in [
            ("etcd://", "has hosts"),
            ("etcd://a/locks", "nothing behind them"),
            ("etcd://me:secret@a", "users of etcd are not supported yet"),
            ("etcd://a?tls=yes", "`tls` is not known"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
