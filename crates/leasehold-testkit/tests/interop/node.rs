//! node-redisson, a port of the plain lock to Node.js, beside ours: what holds between them, and where the port differs.

use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::node;
use leasehold_testkit::peer::Peer;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::Server;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::setup::{LONG, flavour, number, subscribed, until};
use crate::{driver, exclusion};

const SECOND: Duration = Duration::from_secs(1);

/// The server and the processes that lock there. Every test has names of its own.
struct Setup {
    server: Server,
    node: [Peer; 2],
    rust: [Peer; 2],
}

async fn setup() -> &'static Setup {
    static SETUP: OnceCell<Setup> = OnceCell::const_new();
    let begin = async || {
        let server = Server::start(flavour());
        let node = [1, 2].map(|n| node::start(&format!("node {n}"), server.port()));
        let rust = [1, 2].map(|n| driver::start(&format!("rust {n}"), &server));
        Setup { server, node, rust }
    };
    SETUP.get_or_init(begin).await
}

impl Setup {
    /// Two processes of different languages, in both orders.
    fn pairs(&self) -> [(&Peer, &Peer); 2] {
        [(&self.node[0], &self.rust[0]), (&self.rust[0], &self.node[0])]
    }

    /// A client in this process.
    async fn client(&self) -> Client {
        Client::connect(self.server.url()).response_timeout(SECOND * 20).await.unwrap()
    }

    /// A lock of ours for a fixed time.
    async fn leased(&self, name: &str, lease: Duration) -> Guard {
        self.client().await.lock(name).acquire().lease(lease).await.unwrap()
    }

    /// Waits until this process waits for a lock, and a message would wake it.
    async fn waits(&self, peer: &Peer, thread: &str, name: &str) {
        if peer.name().starts_with("node") {
            let (client, _) = thread.split_once('/').unwrap_or(("30000", thread));
            listens(peer, client, name).await;
        } else {
            subscribed(&self.server, &format!("redisson_lock__channel:{{{name}}}")).await;
        }
    }
}

/// Waits until a client of node-redisson listens to the messages of a lock.
async fn listens(node: &Peer, client: &str, name: &str) {
    let begun = Instant::now();
    while node.ask(&format!("{client}/listeners"), &format!("listeners plain {name}")).await != "1" {
        assert!(begun.elapsed() < LONG, "{} does not wait for {name}", node.name());
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn own_236_locks_of_node_redisson_and_ours_exclude_each_other() {
    let Setup { server, node: [a, b], rust: [c, d] } = setup().await;
    let topic = "node-exclusion";
    exclusion::contend(server, [a, b, c, d], topic, ["plain"; 4], [&format!("{topic}:lock"); 4]).await;
}

#[tokio::test]
async fn own_237_a_release_wakes_waiters_of_node_redisson_and_of_ours() {
    // The watchdog time is so long that a lock without a release stays for two minutes.
    const HOLDER: &str = "120000/holder";
    const WAITER: &str = "120000/waiter";
    let setup = setup().await;
    for (holder, waiter) in setup.pairs() {
        let mut times = Vec::new();
        for round in 0..number("LEASEHOLD_ROUNDS", 9) {
            let name = format!("node-wake-{}-{round}", holder.name()).replace(' ', "-");
            assert_eq!(holder.ask(HOLDER, &format!("lock plain {name}")).await, "held");
            let waiting = waiter.tell(WAITER, &format!("lock plain {name}"));
            setup.waits(waiter, WAITER, &name).await;
            assert!(!waiting.is_answered(), "there was no release");
            let begun = Instant::now();
            assert_eq!(holder.ask(HOLDER, &format!("unlock plain {name}")).await, "released");
            assert_eq!(waiting.within(LONG).ok().await, "held");
            times.push(begun.elapsed());
            assert_eq!(waiter.ask(WAITER, &format!("unlock plain {name}")).await, "released");
        }
        times.sort();
        println!(
            "wake-up, plain lock: {} to {}: {:.1?}",
            holder.name(),
            waiter.name(),
            times[times.len() / 2]
        );
    }
}

#[tokio::test]
async fn own_238_a_lock_is_renewed_while_its_process_lives_and_then_goes_to_the_other_language() {
    const WATCHDOG: u32 = 3000;
    let setup = setup().await;
    let node = node::start("node, mortal", setup.server.port());
    let rust = driver::start("rust, mortal", &setup.server);
    let mut all = Vec::new();
    for (mortal, survivor) in [(&node, &setup.rust[0]), (&rust, &setup.node[0])] {
        let name = format!("node-watchdog-{}", survivor.name()).replace(' ', "-");
        assert_eq!(mortal.ask(&format!("{WATCHDOG}/a"), &format!("lock plain {name}")).await, "held");
        let waiting = survivor.tell("watchdog", &format!("lock plain {name}"));
        setup.waits(survivor, "watchdog", &name).await;
        all.push((mortal, survivor, name, waiting));
    }
    sleep(Duration::from_millis(u64::from(WATCHDOG)) * 7 / 2).await;
    for (mortal, survivor, name, waiting) in all {
        assert!(!waiting.is_answered(), "{} has lost {name}", mortal.name());
        mortal.kill();
        assert_eq!(waiting.within(LONG).ok().await, "held");
        assert_eq!(survivor.ask("watchdog", &format!("unlock plain {name}")).await, "released");
    }
}

#[tokio::test]
async fn own_239_holds_of_node_redisson_and_ours_are_visible_to_each_other_and_released_by_their_owners() {
    let (name, setup) = ("node-leases", setup().await);
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let (mut messages, client) = (setup.server.subscribe(&[&channel]), setup.client().await);
    for (holder, onlooker) in setup.pairs() {
        let ask = async |peer: &Peer, verb: &str| peer.ask("leases", &format!("{verb} plain {name}")).await;
        let owner = holder.ask("leases", "owner").await;
        assert_eq!((ask(holder, "lock").await, ask(holder, "lock").await), ("held".into(), "held".into()));
        assert_eq!(setup.server.cli(&["HGETALL", name]).elements(), [owner.as_str(), "2"]);
        let seen = client.lock(name).holder().await.unwrap().expect("it is held");
        // An owner of node-redisson is none of ours.
        let known = holder.name().starts_with("rust").then_some(owner);
        assert_eq!((seen.owner.as_ref().map(ToString::to_string), seen.holds), (known, 2));
        assert!(seen.remaining > SECOND * 15 && seen.remaining <= SECOND * 30, "{seen:?}");
        for peer in [holder, onlooker] {
            assert_eq!(ask(peer, "locked").await, "true");
        }
        assert_eq!(ask(onlooker, "try").await, "false");
        assert_eq!(onlooker.ask("leases", &format!("wait plain {name} 100 -1")).await, "false");
        onlooker.tell("leases", &format!("unlock plain {name}")).refused().await;

        assert_eq!(ask(holder, "unlock").await, "released");
        assert!(messages.take().is_empty() && client.lock(name).is_locked().await.unwrap());
        assert_eq!(ask(holder, "unlock").await, "released");
        let published: Vec<_> = messages.take().into_iter().map(|message| message.payload).collect();
        assert_eq!((published, ask(onlooker, "locked").await), (vec!["0".to_owned()], "false".into()));
        holder.tell("leases", &format!("unlock plain {name}")).refused().await;

        assert_eq!(holder.ask("leases", &format!("wait plain {name} 100 60000")).await, "true");
        assert!(client.lock(name).ttl().await.unwrap().is_some_and(|left| left > SECOND * 40));
        assert_eq!(ask(onlooker, "force").await, "true");
        holder.tell("leases", &format!("unlock plain {name}")).refused().await;
        assert_eq!(messages.take().len(), 1);
    }
}

/// It tries, subscribes, and does not try again.
#[tokio::test]
async fn node_redisson_misses_a_release_before_its_subscription_and_tries_when_the_lease_is_over() {
    let (name, setup) = ("node-missed", setup().await);
    let proxy = Proxy::start(setup.server.port());
    let node = node::start("node, slow", proxy.port());
    // The proxy knows a connection for messages by its first subscription.
    let first = "node-missed-first";
    let other = setup.leased(first, SECOND * 60).await;
    let waiting = node.tell("missed", &format!("lock plain {first}"));
    listens(&node, "30000", first).await;
    other.release().await.unwrap();
    assert_eq!(waiting.ok().await, "held");
    assert_eq!(
        (node.ask("missed", &format!("unlock plain {first}")).await, proxy.open(Which::PubSub)),
        ("released".into(), 1)
    );
    proxy.half_open(Which::PubSub);
    let _earlier = proxy.take_sent();
    let guard = setup.leased(name, SECOND * 5).await;
    let waiting = node.tell("missed", &format!("lock plain {name}"));
    until("its subscription is on the way", || proxy.take_sent().iter().any(|sent| sent.name == "SUBSCRIBE"))
        .await;
    let left = guard.remaining();
    let begun = Instant::now();
    guard.release().await.unwrap();
    proxy.heal();
    assert_eq!(waiting.within(LONG).ok().await, "held");
    assert!(
        begun.elapsed() > left.saturating_sub(SECOND / 2),
        "it was woken after {:?}: docs/redisson.md",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_wait_of_node_redisson_ends_without_the_lock_when_the_lease_that_it_saw_is_over() {
    let (name, setup) = ("node-wait", setup().await);
    let guard = setup.leased(name, SECOND).await;
    let begun = Instant::now();
    assert_eq!(setup.node[0].ask("wait", &format!("wait plain {name} 40000 -1")).await, "false");
    assert!(begun.elapsed() < SECOND * 30, "it has waited: docs/redisson.md");
    assert!(!guard.is_held());
    assert_eq!(setup.node[0].ask("wait", &format!("try plain {name}")).await, "true");
    assert_eq!(setup.node[0].ask("wait", &format!("unlock plain {name}")).await, "released");
}

/// Redisson and we leave such a name as it is.
#[tokio::test]
async fn node_redisson_has_other_channels_for_names_with_a_tag_inside() {
    let setup = setup().await;
    let channel = async |name: &str| setup.node[0].ask("tag", &format!("channel plain {name}")).await;
    assert_eq!(channel("node-tag").await, "redisson_lock__channel:{node-tag}");
    assert_eq!(channel("{node}:tag").await, "redisson_lock__channel:{node}:tag");
    let name = "node-{tag}";
    assert_eq!(channel(name).await, "redisson_lock__channel:{node-{tag}}");
    let guard = setup.leased(name, SECOND * 5).await;
    let waiting = setup.node[0].tell("tag", &format!("lock plain {name}"));
    listens(&setup.node[0], "30000", name).await;
    let left = guard.remaining();
    let begun = Instant::now();
    guard.release().await.unwrap();
    assert_eq!(waiting.within(LONG).ok().await, "held", "when the lease that it saw is over");
    assert!(
        begun.elapsed() > left.saturating_sub(SECOND / 2),
        "it was woken after {:?}: docs/redisson.md",
        begun.elapsed()
    );
    assert_eq!(setup.node[0].ask("tag", &format!("unlock plain {name}")).await, "released");
}

/// Its watchdog renews the first of its owners that has not unlocked, and ends when that one has lost its lock.
#[tokio::test]
async fn node_redisson_does_not_renew_a_lock_after_an_earlier_hold_was_ended_by_force() {
    let (name, setup) = ("node-forced", setup().await);
    let client = setup.client().await;
    let node = node::start("node, forced", setup.server.port());
    assert_eq!(node.ask("6000/a", &format!("lock plain {name}")).await, "held");
    assert!(client.lock(name).force_unlock().await.unwrap());
    assert_eq!(node.ask("6000/b", &format!("lock plain {name}")).await, "held");
    until("the lock expires: docs/redisson.md", || setup.server.cli(&["EXISTS", name]) == 0).await;
    node.tell("6000/b", &format!("unlock plain {name}")).refused().await;
}
