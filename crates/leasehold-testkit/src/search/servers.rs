//! A real server, with a proxy for each client.

use std::sync::Arc;

use leasehold::Client;

use super::round::{CLIENTS, Setting};
use crate::proxy::Proxy;
use crate::server::Server;

/// The server of a round, and the proxies in front of it.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) proxies: Vec<Arc<Proxy>>,
    server: Server,
}

impl Servers {
    /// Starts the server and the proxies, and connects the clients: one behind each proxy, and one directly.
    pub(super) async fn start(setting: Setting) -> (Arc<Self>, Vec<Client>, Client) {
        let server = Server::start(setting.flavour);
        let mut user = vec!["ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"];
        user.extend(setting.denied);
        assert_eq!(server.cli(&user), "OK", "{user:?}");
        let observer = Client::connect(server.url()).await.expect("the server is there");
        let (mut clients, mut proxies) = (Vec::new(), Vec::new());
        for _ in 0..CLIENTS {
            let proxy = Arc::new(Proxy::start(server.port()));
            let url = proxy.url().replace("redis://", "redis://worker:secret@");
            clients.push(setting.connect(url).await);
            proxies.push(proxy);
        }
        (Arc::new(Self { proxies, server }), clients, observer)
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        for proxy in &self.proxies {
            proxy.heal();
        }
    }

    /// The state that is left, by the server's own lists.
    pub(super) fn left(&self) -> Vec<String> {
        let listed = |command: &[&str]| -> Vec<String> {
            let reply = self.server.cli(command);
            reply.elements().iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let keys = listed(&["KEYS", "*"]).into_iter().filter(|key| !stays(key));
        let mut left: Vec<_> = keys.map(|key| format!("the key {key}")).collect();
        let channels = listed(&["PUBSUB", "CHANNELS", "*"]);
        left.extend(channels.into_iter().map(|channel| format!("a subscription to {channel}")));
        left
    }
}

/// Keys that are documented to stay: tokens, semaphores with the record of their changes, and who the clients are.
fn stays(key: &str) -> bool {
    let stay = [
        "redisson_lock_token:",
        "leasehold_permits:",
        "leasehold_latch:",
        "lock:semaphore:",
        "leasehold:client:",
    ];
    stay.iter().any(|prefix| key.starts_with(prefix)) || key.contains("lock:leased:")
}
