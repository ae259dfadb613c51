//! A Redis or Valkey server under the suite: one server for all cases, each under names of its own.

use std::sync::LazyLock;

use super::{Backend, Reply};
use crate::resp::Value;
use crate::server::{Flavour, Server};
use crate::watched::Watched;

/// A server shared by all cases of a test binary.
#[derive(Debug)]
pub struct SharedServer {
    server: &'static Server,
    url: String,
}

impl SharedServer {
    /// The Redis server of this test binary, started by the first case that needs it.
    #[must_use]
    pub fn redis() -> Self {
        static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(Flavour::Redis));
        Self::on(&SERVER)
    }

    /// The Valkey server of this test binary, started by the first case that needs it.
    #[must_use]
    pub fn valkey() -> Self {
        static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(Flavour::Valkey));
        Self::on(&SERVER)
    }

    /// A Redis server behind sentinels, started by the first case that needs it.
    #[must_use]
    pub fn sentinel() -> Self {
        static WATCHED: LazyLock<Watched> = LazyLock::new(|| Watched::start(Flavour::Redis));
        Self { server: &WATCHED.servers[0], url: WATCHED.url() }
    }

    fn on(server: &'static Server) -> Self {
        Self { server, url: server.url() }
    }
}

impl Backend for SharedServer {
    fn url(&self) -> &str {
        &self.url
    }

    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()> {
        self.server.cli(&["DEL", name]);
        Box::pin(async {})
    }

    fn left_behind<'a>(&'a self, prefix: &'a str) -> Reply<'a, Option<usize>> {
        let pattern = format!("*{prefix}*");
        let keys = self.server.cli(&["KEYS", &pattern]);
        // Tokens stay for good, so that none is minted twice.
        let stays = |key: &&Value| key.as_str().is_some_and(|key| key.starts_with("redisson_lock_token:"));
        let keys = keys.elements().iter().filter(|key| !stays(key)).count();
        let channels = self.server.cli(&["PUBSUB", "CHANNELS", &pattern]).elements().len();
        Box::pin(async move { Some(keys + channels) })
    }
}
