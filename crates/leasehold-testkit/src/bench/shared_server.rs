//! A Redis or Valkey server under the suite: one server for all cases, each under names of its own.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use super::{Backend, Reply};
use crate::certificates::{self, Certificates};
use crate::resp::Value;
use crate::server::{Flavour, Server};
use crate::watched::Watched;

const WIRE: &str = include_str!("../../../../docs/wire.md");

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

    /// A Redis server with TLS and a user who has no other rights than `docs/wire.md` lists, started by the first case that
    /// needs it.
    ///
    /// # Panics
    ///
    /// When the page has no such list.
    #[must_use]
    pub fn secure() -> Self {
        static SERVER: LazyLock<(Server, PathBuf)> = LazyLock::new(|| {
            let certificates = Certificates::new();
            let files = certificates.of_server(&certificates.server());
            let server = Server::builder(Flavour::Redis).tls(files).start();
            let line =
                WIRE.lines().map(str::trim).find(|line| line.starts_with("ACL SETUSER worker on >secret "));
            let line = line.expect("the page has the rights of a user");
            // The names of all cases begin like this.
            let words = line.split(' ').map(|word| {
                word.strip_suffix("lock:*")
                    .map_or_else(|| word.to_owned(), |word| format!("{word}conformance:*"))
            });
            assert_eq!(server.cli(&words.collect::<Vec<_>>()), "OK");
            let looks = WIRE.lines().map(str::trim).find(|line| line.starts_with("ACL SETUSER worker +"));
            let looks = looks.expect("the page has the rights to look at locks");
            assert_eq!(server.cli(&looks.split(' ').collect::<Vec<_>>()), "OK");
            // The server has read its files; the one of the clients is removed with the server.
            let ca = server.directory().join("ca.pem");
            fs::copy(certificates.ca(), &ca).expect("the directory can be written to");
            (server, ca)
        });
        let (server, ca) = &*SERVER;
        let url = certificates::url(server.port(), &[("ca", ca)]);
        Self { server, url: url.replace("rediss://", "rediss://worker:secret@") }
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
