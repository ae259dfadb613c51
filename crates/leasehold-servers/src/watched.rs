//! A primary and its replicas, which sentinels watch.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use crate::resp::Value;
use crate::server::{Builder, Flavour, Server};

/// What the sentinels call the primary.
pub const NAME: &str = "main";

/// How often, and how many times, a condition is checked: for 20 s. A failover takes some of them.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 4000;

/// A primary with two replicas, and three sentinels that fail over when it has been silent for a second.
///
/// Both servers and sentinels want passwords, not the same ones. The methods are blocking, as those of [`Server`].
#[derive(Debug)]
pub struct Watched {
    /// The first one is the primary, to begin with.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
}

/// The password of the servers.
pub const PASSWORD: &str = "serverpassword";
/// The password of the sentinels.
pub const SENTINEL_PASSWORD: &str = "sentinelpassword";

impl Watched {
    /// Starts all of them, and waits until they know each other.
    ///
    /// # Panics
    ///
    /// As for [`Server::start`], and when they do not know each other within 20 s.
    #[must_use]
    pub fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, |builder| builder)
    }

    /// The same, with a further configuration of the servers.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn start_with(flavour: Flavour, configure: impl Fn(Builder) -> Builder) -> Self {
        let server = || {
            let builder =
                Server::builder(flavour).password(PASSWORD).config(format!("masterauth {PASSWORD}"));
            // Without a pause before the first copy.
            configure(builder.config("repl-diskless-sync-delay 0"))
        };
        let primary = server().start();
        let port = primary.port();
        let replica = || server().config(format!("replicaof {} {port}", Ipv4Addr::LOCALHOST)).start();
        let servers = vec![primary, replica(), replica()];
        let sentinel = || {
            let builder = Server::builder(flavour).sentinel().password(SENTINEL_PASSWORD);
            let lines = [
                format!("sentinel sentinel-pass {SENTINEL_PASSWORD}"),
                format!("sentinel monitor {NAME} {} {port} 2", Ipv4Addr::LOCALHOST),
                format!("sentinel auth-pass {NAME} {PASSWORD}"),
                format!("sentinel down-after-milliseconds {NAME} 1000"),
                format!("sentinel failover-timeout {NAME} 3000"),
            ];
            lines.into_iter().fold(builder, Builder::config).start()
        };
        let watched = Self { servers, sentinels: vec![sentinel(), sentinel(), sentinel()] };
        watched.settle();
        watched
    }

    /// Waits until every sentinel that runs knows the others and two replicas, and the replicas follow the primary.
    ///
    /// # Panics
    ///
    /// When they do not within 20 s.
    pub fn settle(&self) {
        let knows_all = |sentinel: &Server| {
            let known = sentinel.cli(&["SENTINEL", "MASTER", NAME]);
            let has = |name: &str, value: &str| field(&known, name).as_deref() == Some(value);
            has("num-slaves", "2") && has("num-other-sentinels", "2") && has("flags", "master")
        };
        until("the sentinels know each other", || self.sentinels.iter().all(knows_all));
        let primary = self.primary();
        until("the replicas follow the primary", || {
            self.servers.iter().enumerate().filter(|(index, _)| *index != primary).all(|(_, server)| {
                // One that the sentinels make a replica just now cuts the connection.
                let Ok(info) = server.try_cli(&["INFO", "replication"]) else { return false };
                let info = info.as_str().unwrap_or_default();
                info.contains("master_link_status:up")
                    && info.contains(&format!("master_port:{}", self.servers[primary].port()))
            })
        });
    }

    /// The URL of the primary by its sentinels, with the passwords of both.
    #[must_use]
    pub fn url(&self) -> String {
        let ports: Vec<_> = self.sentinels.iter().map(Server::port).collect();
        Self::url_by(&ports)
    }

    /// The same by way of sentinels at these ports, perhaps those of proxies.
    #[must_use]
    pub fn url_by(sentinels: &[u16]) -> String {
        let hosts: Vec<_> = sentinels.iter().map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST)).collect();
        let hosts = hosts.join(",");
        format!("redis+sentinel://:{PASSWORD}@{hosts}/{NAME}?sentinel_password={SENTINEL_PASSWORD}")
    }

    /// Which server the first sentinel calls the primary.
    ///
    /// # Panics
    ///
    /// When that is none of these.
    #[must_use]
    pub fn primary(&self) -> usize {
        self.primary_by(0)
    }

    /// Which server a sentinel calls the primary.
    ///
    /// # Panics
    ///
    /// When that is none of these.
    #[must_use]
    pub fn primary_by(&self, sentinel: usize) -> usize {
        let address = self.sentinels[sentinel].cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        let port = address.elements().get(1).and_then(Value::as_str).and_then(|port| port.parse().ok());
        let is_it = |server: &Server| Some(server.port()) == port;
        self.servers.iter().position(is_it).unwrap_or_else(|| panic!("an unknown primary: {address:?}"))
    }

    /// Orders a failover while the primary is well, and returns when the first sentinel has announced the new one.
    ///
    /// # Panics
    ///
    /// When there is none within 20 s.
    #[must_use]
    pub fn fail_over(&self) -> usize {
        let before = self.primary();
        let mut switches = self.sentinels[0].subscribe(&["+switch-master"]);
        until("a failover begins", || self.sentinels[0].cli(&["SENTINEL", "FAILOVER", NAME]) == "OK");
        switches.wait();
        let after = self.primary();
        assert_ne!(before, after);
        after
    }

    /// Waits until the first sentinel that runs calls another server the primary.
    ///
    /// # Panics
    ///
    /// When it does not within 20 s.
    #[must_use]
    pub fn failed_over_from(&self, before: usize) -> usize {
        until("a failover", || self.primary() != before);
        self.primary()
    }
}

fn field(reply: &Value, name: &str) -> Option<String> {
    let parts = reply.elements();
    let pairs = parts.chunks(2).filter_map(|pair| Some((pair.first()?.as_str()?, pair.get(1)?.as_str()?)));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if happened() {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("not within {:?}: {what}", LOOK_EVERY * LOOKS);
}
