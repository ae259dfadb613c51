//! An etcd server under the suite: one server for all cases, each under names of its own.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    Backend, DOWNGRADE, FREE_WITH_WAITERS, READERS_OVERTAKE, Reply, SMALL_TOKENS, TAKEOVER_FIRST, VIEW,
};
use crate::server::Etcd as Server;

/// The server that all cases of a test binary share. If it is one of several members, each client begins with another one.
#[derive(Debug)]
pub struct Etcd {
    server: &'static Server,
    urls: Vec<String>,
    clients: AtomicUsize,
}

impl Etcd {
    /// The server of this test binary, started by the first case that needs it.
    #[must_use]
    pub fn shared() -> Self {
        static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
        Self { server: &SERVER, urls: SERVER.urls(), clients: AtomicUsize::new(0) }
    }
}

/// What has keys of its own, which do not begin with a name.
const KINDS: [&str; 4] = ["semaphore", "latch", "permits", "group"];

impl Backend for Etcd {
    fn url(&self) -> &str {
        &self.urls[self.clients.fetch_add(1, Ordering::Relaxed) % self.urls.len()]
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        let own = KINDS.map(|kind| format!("_leasehold/{kind}/{name}"));
        for name in std::iter::once(name).chain(own.iter().map(String::as_str)) {
            let _ = self.server.ctl(&["del", "--prefix", &format!("{name}/")]);
        }
        Box::pin(async {})
    }

    fn lacks(&self) -> &'static [&'static str] {
        &[
            "SET NX lock",
            TAKEOVER_FIRST,
            DOWNGRADE,
            VIEW,
            FREE_WITH_WAITERS,
            READERS_OVERTAKE,
            SMALL_TOKENS,
            "last fencing token (`last_token`)",
        ]
    }

    fn left_behind<'a>(&'a self, prefix: &'a str) -> Reply<'a, Option<usize>> {
        let own = KINDS.map(|kind| format!("_leasehold/{kind}/{prefix}"));
        let all = std::iter::once(prefix).chain(own.iter().map(String::as_str));
        let left = all.map(|prefix| self.server.keys(prefix).len()).sum();
        Box::pin(async move { Some(left) })
    }
}
