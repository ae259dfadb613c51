//! The handle of a simulated server in a test: its faults and its state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::embedded;
use super::server::{self, SimServer};
use super::store::{all_shards, shard_of};
use super::{SimFaults, Takeover};
use crate::error::ServerError;
use crate::name::Name;

/// A simulated server, with faults on demand.
///
/// Its clients run the code that runs on a real server: waiting, renewal, undo and reconnecting. Under tokio's paused clock
/// that takes no time. Names are full ones, namespace included.
///
/// ```
/// use std::time::Duration;
/// use leasehold::test::Simulation;
/// use leasehold::{Client, Loss};
///
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let simulation = Simulation::new();
///     let client = Client::connect(simulation.url()).await?;
///     let guard = client.lock("nightly-report").acquire().await?;
///     simulation.outage();
///     assert_eq!(guard.lost().await, Loss::Unreachable);
///     Ok(())
/// }
/// ```
pub struct Simulation {
    url: String,
    server: Arc<SimServer>,
}

impl Simulation {
    /// A server of its own. Each hold has a lease there, as on Redis.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        Self::of("sim")
    }

    /// A server that binds holds to the session of their client, as `ZooKeeper` and Consul do. It has plain and spin locks.
    #[must_use]
    pub fn sessions() -> Self {
        Self::of("sim-sessions")
    }

    /// A server that binds holds to the connection of their client, as `MySQL` and `PostgreSQL` do. It has plain and spin
    /// locks.
    #[must_use]
    pub fn connections() -> Self {
        Self::of("sim-connections")
    }

    fn of(scheme: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasehold-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { url: format!("{scheme}:{name}"), server: server::shared(&name) }
    }

    /// The URL by which clients connect to this server, as long as this handle or a client of it lives.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A request, a reply and a message take this long each from now on.
    pub fn latency(&self, length: Duration) {
        self.server.faults().latency = length;
    }

    /// Requests are refused from now on, as by a server that denies the command.
    pub fn deny(&self) {
        self.server.faults().refusal = Some(ServerError::Denied("a fault of the test".into()));
    }

    /// All connections break, and no new ones can be opened from now on.
    pub fn outage(&self) {
        self.server.faults().outage = all_shards();
        self.server.cut();
    }

    /// The same for only one of the two parts of this server: the one that has this name.
    ///
    /// # Panics
    ///
    /// If no lock can have that name.
    pub fn outage_of(&self, name: &str) {
        let shard = shard_of(&Name::new("", name).expect("a valid lock name"));
        self.server.faults().outage.push(shard);
        self.server.cut_shard(shard);
    }

    /// The next request is carried out, and its reply is lost. Its client replaces the connection after two seconds.
    pub fn lose_reply(&self) {
        self.server.faults().lost_replies += 1;
    }

    /// The next message that a lock is free is lost.
    pub fn lose_message(&self) {
        self.server.faults().lost_messages += 1;
    }

    /// Every message that a lock is free arrives twice from now on.
    pub fn double_messages(&self) {
        self.server.faults().doubled_messages = true;
    }

    /// Of the requests that wait on a connection, and of the replies, the last one is delivered first from now on. Those about
    /// one name stay in order: that is all that a client may rely on.
    pub fn reorder(&self) {
        self.server.faults().is_reordered = true;
    }

    /// Requests on their way to the server when their connection breaks are carried out this much later from now on. Their
    /// clients see at once that the connection is closed.
    pub fn act_late(&self, delay: Duration) {
        self.server.faults().acts_late = Some(delay);
    }

    /// All connections break. Clients connect again.
    pub fn cut(&self) {
        self.server.cut();
    }

    /// The server restarts and has lost all data.
    pub fn restart_empty(&self) {
        self.server.restart_empty();
    }

    /// Ends the faults that the methods above have started.
    pub fn clear(&self) {
        *self.server.faults() = SimFaults::default();
    }

    /// Removes the hold under a name, as an operator does by deleting the key; false if there is none. Its holder gets
    /// [`Loss::Gone`](crate::Loss::Gone) at its next renewal; waiters are not notified.
    #[expect(clippy::must_use_candidate, reason = "the effect is the point")]
    pub fn lose_hold(&self, name: &str) -> bool {
        embedded::resources(name).filter(|resource| self.server.remove(resource)).count() > 0
    }

    /// Makes another client take a lock over, whatever faults the clients of this server have. The holder gets
    /// [`Loss::TakenOver`](crate::Loss::TakenOver) at its next renewal. A lock that is free is acquired, too.
    ///
    /// This is about locks of [`lock`](crate::Client::lock), [`spin_lock`](crate::Client::spin_lock),
    /// [`fair_lock`](crate::Client::fair_lock) and [`fenced_lock`](crate::Client::fenced_lock). Any other is taken over by
    /// `steal` of a second client.
    ///
    /// # Panics
    ///
    /// If no lock can have that name.
    pub fn take_over(&self, name: &str) -> Takeover {
        Takeover::new(&self.server, Name::new("", name).expect("a valid lock name"))
    }

    /// How many acquires wait for this name, at all clients of this server.
    #[must_use]
    pub fn waiters(&self, name: &str) -> usize {
        self.server.waiters(name)
    }

    /// How many names the server has state for: zero when nothing is left behind.
    #[must_use]
    pub fn names(&self) -> usize {
        self.server.names()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("url", &self.url).finish_non_exhaustive()
    }
}
