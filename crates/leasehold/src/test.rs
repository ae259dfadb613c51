//! Faults on demand, to test code that uses locks.
//!
//! What a lock can do to your code in production, it can do here: be refused, be slow, answer too late, be lost in
//! the middle of the work. Under tokio's paused clock such a test takes no time. That clock is for this engine only: a
//! server does not know of it.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::{Client, Loss};
//!
//! /// The code under test: writes the report unless the lock is lost on the way.
//! async fn write_report(client: &Client) -> Result<&'static str, Loss> {
//!     let guard = client.lock("nightly-report").acquire().await.expect("the engine is there");
//!     guard.run(async {
//!         tokio::time::sleep(Duration::from_secs(3600)).await;
//!         "written"
//!     }).await
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // in a test: #[tokio::test(start_paused = true)]
//! async fn main() {
//!     let (client, faults) = leasehold::test::memory();
//!
//!     let report = tokio::spawn(async move { write_report(&client).await });
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     let _stranger = faults.take_over("nightly-report");
//!
//!     assert_eq!(report.await.unwrap(), Err(Loss::TakenOver));
//! }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::connect::Connect;
use crate::engine::faulty::{Faulty, Script};
use crate::engine::remote::sim::{self, SimFaults, SimServer};
use crate::engine::{Engine, Kind, Target, memory};
pub use crate::env::sim::{Host, Schedule, Task, Trace};
use crate::error::Failure;
use crate::guard::Guard;
use crate::name::Name;

/// A client on a memory engine of its own, and the handle that makes things go wrong there.
///
/// More clients join the same engine, with options of their own, by [`Faults::url`].
#[must_use]
pub fn memory() -> (Client, Faults) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("leasehold-test-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let faulty = Arc::new(Faulty::new());
    let engine: Arc<dyn Engine> = Arc::<Faulty>::clone(&faulty);
    memory::register(&name, &engine);
    let strangers: Arc<dyn Engine> = Arc::<memory::Memory>::clone(&faulty.memory);
    let faults = Faults { url: format!("memory:{name}"), faulty, stranger: client_of(strangers) };
    (client_of(engine), faults)
}

fn client_of(engine: Arc<dyn Engine>) -> Client {
    Connect::new(String::new()).client(engine).expect("the defaults are in range")
}

/// The locks that can have this name.
fn targets(name: &str) -> impl Iterator<Item = Target> {
    let name = Name::new("", name).ok();
    let kinds = [Kind::Lock, Kind::SetNx, Kind::Write, Kind::Group].into_iter();
    kinds.filter_map(move |kind| Some(Target::new(kind, name.clone()?)))
}

/// Makes things go wrong on one memory engine, for all its clients.
///
/// Names are full ones, namespace included.
#[derive(Debug)]
pub struct Faults {
    url: String,
    faulty: Arc<Faulty>,
    /// Somebody else, to whom no faults happen.
    stranger: Client,
}

impl Faults {
    /// The URL by which more clients join this engine, as long as this handle or a client of it lives.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests are refused from now on, as by a server that denies the command.
    pub fn deny(&self) {
        self.faulty.script().refusal = Some(Failure::Denied("a fault of the test".into()));
    }

    /// Requests fail from now on, as without a server. Waiters notice at once, as they do when a connection is lost.
    pub fn outage(&self) {
        self.faulty.script().refusal = Some(Failure::Unavailable("a fault of the test".into()));
        self.faulty.memory.hint_all();
    }

    /// Answers come this much later from now on. What was asked is done at once.
    pub fn delay(&self, length: Duration) {
        self.faulty.script().delay = length;
    }

    /// The next request is carried out, and its answer is lost.
    pub fn lose_reply(&self) {
        self.faulty.script().lost_replies += 1;
    }

    /// Ends what [`deny`](Faults::deny), [`outage`](Faults::outage), [`delay`](Faults::delay) and
    /// [`lose_reply`](Faults::lose_reply) began.
    pub fn clear(&self) {
        *self.faulty.script() = Script::default();
    }

    /// Removes a lock behind its holder's back, who is told [`Loss::Gone`](crate::Loss::Gone); false if nobody holds it.
    #[expect(clippy::must_use_candidate, reason = "the effect is the point")]
    pub fn lose_hold(&self, name: &str) -> bool {
        let remove = |target: &Target| self.faulty.memory.remove(target);
        targets(name).filter(remove).count() > 0
    }

    /// Lets somebody else take a lock over; the holder is told [`Loss::TakenOver`](crate::Loss::TakenOver).
    ///
    /// # Panics
    ///
    /// If no lock can have that name.
    pub fn take_over(&self, name: &str) -> Guard {
        self.stranger.lock(name).acquire().steal().block().expect("a valid lock name")
    }

    /// How many wait for a lock.
    #[must_use]
    pub fn waiters(&self, name: &str) -> usize {
        targets(name).map(|target| self.faulty.memory.waiters(&target)).sum()
    }

    /// How many names are held or waited for: zero when nothing is left behind.
    #[must_use]
    pub fn names(&self) -> usize {
        self.faulty.memory.names()
    }
}

/// A simulated server, and what goes wrong on it.
///
/// Its clients run the code that runs on a real server: waiting, renewal, undo and reconnecting. Under tokio's paused clock
/// that takes no time.
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
    /// A server of its own.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasehold-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { url: format!("sim:{name}"), server: sim::shared(&name) }
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
        self.server.faults().refusal = Some(Failure::Denied("a fault of the test".into()));
    }

    /// All connections break, and none can be had from now on.
    pub fn outage(&self) {
        self.server.faults().outage = sim::all_shards();
        self.server.cut();
    }

    /// The same only for one of the two parts of this server: the one that has this name.
    ///
    /// # Panics
    ///
    /// If no lock can have that name.
    pub fn outage_of(&self, name: &str) {
        let shard = sim::shard_of(&Name::new("", name).expect("a valid lock name"));
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

    /// Every message that a lock is free comes twice from now on.
    pub fn double_messages(&self) {
        self.server.faults().doubled_messages = true;
    }

    /// Requests on their way to the server when their connection breaks are carried out this much later from now on. Their
    /// clients are told at once that the connection is closed.
    pub fn act_late(&self, delay: Duration) {
        self.server.faults().acts_late = Some(delay);
    }

    /// All connections break. Clients connect again.
    pub fn cut(&self) {
        self.server.cut();
    }

    /// The server restarts and has lost everything.
    pub fn restart_empty(&self) {
        self.server.restart_empty();
    }

    /// Ends what the methods above have begun.
    pub fn clear(&self) {
        *self.server.faults() = SimFaults::default();
    }

    /// Removes what is held under a name behind its holder's back; false if nothing is.
    #[expect(clippy::must_use_candidate, reason = "the effect is the point")]
    pub fn lose_hold(&self, name: &str) -> bool {
        let memory = self.server.memory();
        targets(name).filter(|target| memory.remove(target)).count() > 0
    }

    /// How many names the server knows: zero when nothing is left behind.
    #[must_use]
    pub fn names(&self) -> usize {
        self.server.memory().names()
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("url", &self.url).finish_non_exhaustive()
    }
}
