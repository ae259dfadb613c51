//! A server of MariaDB under the suite: one server for all cases, each under names of its own.

use std::sync::LazyLock;

use super::{
    Backend, DOWNGRADE, LEASES, LIST, MIN_HOLD, ONE_STEP, REMOVAL, Reply, SMALL_TOKENS, TRACED, VIEW,
};
use crate::server::Mysql as Server;

/// The server that all cases of a test binary share.
#[derive(Debug)]
pub struct Mysql {
    server: &'static Server,
    url: String,
}

impl Mysql {
    /// The server of this test binary, started by the first case that needs it.
    #[must_use]
    pub fn shared() -> Self {
        static SERVER: LazyLock<Server> = LazyLock::new(|| Server::with(&["max-connections=2000"]));
        Self { server: &SERVER, url: SERVER.url() }
    }
}

impl Backend for Mysql {
    fn url(&self) -> &str {
        &self.url
    }

    fn remove<'a>(&'a self, _name: &'a str) -> Reply<'a, ()> {
        unreachable!("the suite removes no hold where that is impossible")
    }

    fn lacks(&self) -> &'static [&'static str] {
        &[
            "fair lock",
            "SET NX lock",
            "read-write lock",
            "group lock",
            "semaphore",
            "leased semaphore",
            "latch",
            "takeover (`steal`)",
            "`force_unlock`",
            "last fencing token (`last_token`)",
            REMOVAL,
            MIN_HOLD,
            LEASES,
            LIST,
            DOWNGRADE,
            TRACED,
            VIEW,
            ONE_STEP,
            SMALL_TOKENS,
        ]
    }

    fn left_behind<'a>(&'a self, prefix: &'a str) -> Reply<'a, Option<usize>> {
        let left = self.server.locks().iter().filter(|(name, _)| name.starts_with(prefix)).count();
        Box::pin(async move { Some(left) })
    }
}
