//! The shared setup of all tests: a server, two Java processes with Redisson and two Rust processes.

use std::env;
use std::thread;
use std::time::Duration;

use leasehold_testkit::jvm;
use leasehold_testkit::peer::Peer;
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::{Flavour, Server};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{Instant, sleep};

use crate::driver;

/// How long any step may take that has no duration of its own, on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

static SETUP: OnceCell<RwLock<Setup>> = OnceCell::const_new();

/// The server and the processes that lock there. Every test has names of its own.
pub(crate) struct Setup {
    pub(crate) server: Server,
    pub(crate) java: [Peer; 2],
    pub(crate) rust: [Peer; 2],
    /// The version of Redisson.
    pub(crate) version: String,
}

/// The setup, beside other tests.
pub(crate) async fn setup() -> RwLockReadGuard<'static, Setup> {
    SETUP.get_or_init(Setup::begun).await.read().await
}

/// The setup for a test that measures time, or needs much of it.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, Setup> {
    SETUP.get_or_init(Setup::begun).await.write().await
}

impl Setup {
    /// Every process has run every operation once: the first time takes a second in Java.
    async fn begun() -> RwLock<Self> {
        let begun = Instant::now();
        let setup = Self::new();
        let begin = |peer: &Peer| peer.tell("begin", "loop plain begin begin 2 20");
        for pending in setup.peers().map(begin) {
            pending.ok().await;
        }
        let version = setup.java[0].ask("begin", "version").await;
        assert_eq!(version, setup.version, "this is not the Redisson that is to be tested");
        let (flavour, took) = (setup.server.flavour(), begun.elapsed());
        println!("interop: Redisson {version} and Leasehold on {flavour:?}, ready after {took:.1?}");
        RwLock::new(setup)
    }

    fn new() -> Self {
        let version = env::var("LEASEHOLD_REDISSON").unwrap_or_else(|_| jvm::newest().into());
        let server = Server::start(flavour());
        let (java, rust) = thread::scope(|scope| {
            let java = [1, 2].map(|n| {
                let (server, version) = (&server, &version);
                scope.spawn(move || jvm::start(&format!("java {n}"), version, server))
            });
            let rust = [1, 2].map(|n| driver::start(&format!("rust {n}"), &server));
            (java.map(|java| java.join().expect("Java starts")), rust)
        });
        Self { server, java, rust, version }
    }

    /// All processes, Java first.
    pub(crate) fn peers(&self) -> [&Peer; 4] {
        [&self.java[0], &self.java[1], &self.rust[0], &self.rust[1]]
    }

    /// Two processes of different languages, in both orders.
    pub(crate) fn pairs(&self) -> [(&Peer, &Peer); 2] {
        [(&self.java[0], &self.rust[0]), (&self.rust[0], &self.java[0])]
    }

    /// Checks that Redisson logged no unreadable message, no listener that throws, and nothing else but a slow machine.
    pub(crate) fn no_complaints(&self) {
        for java in &self.java {
            let mut complaints = java.complaints();
            complaints.retain(|line| line.contains(" ERROR ") && !line.contains("PING"));
            assert_eq!(complaints, [""; 0], "{}", java.name());
        }
    }

    /// The strings of a list on the server.
    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        list(&self.server, key)
    }

    /// Waits until a channel has a subscriber.
    pub(crate) async fn subscribed(&self, channel: &str) {
        subscribed(&self.server, channel).await;
    }
}

/// The server of this run.
pub(crate) fn flavour() -> Flavour {
    match env::var("LEASEHOLD_INTEROP_SERVER").as_deref() {
        Ok("valkey") => Flavour::Valkey,
        Ok("redis") | Err(_) => Flavour::Redis,
        Ok(other) => panic!("LEASEHOLD_INTEROP_SERVER is redis or valkey, not {other}"),
    }
}

/// The strings of a list on a server.
pub(crate) fn list(server: &Server, key: &str) -> Vec<String> {
    let list = server.cli(&["LRANGE", key, "0", "-1"]);
    list.elements().iter().map(|line| line.as_str().expect("a string").to_owned()).collect()
}

/// Waits until a channel has a subscriber.
pub(crate) async fn subscribed(server: &Server, channel: &str) {
    let count = || server.cli(&["PUBSUB", "NUMSUB", channel]).elements()[1].clone();
    until(&format!("a waiter is subscribed to {channel}"), || count() != Value::Int(0)).await;
}

/// Polls until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// A number from the environment, for runs that are longer or shorter than usual.
pub(crate) fn number(variable: &str, usual: u32) -> u32 {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => usual,
    }
}
