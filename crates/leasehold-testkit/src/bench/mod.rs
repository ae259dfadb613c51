//! The environment of a test case: an engine, clients of it, and names that no other case uses.

mod etcd;
mod example;
mod files;
mod memory;
mod shared_server;
mod sim;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, ConnectOptions, InvalidRequestError, Lock, RwLock};
use tokio::time::{Instant, sleep};

pub use self::etcd::Etcd;
pub use self::example::Example;
pub use self::files::Files;
pub use self::memory::Memory;
pub use self::shared_server::SharedServer;
pub use self::sim::Sim;

/// The requirements of the suite for an engine, beside connections.
pub trait Backend: Send + Sync {
    /// The URL by which any number of clients join this engine.
    fn url(&self) -> &str;

    /// Removes the hold under a full name, as an operator does by deleting the key. Not called on an engine that
    /// [lacks](Backend::lacks) [`REMOVAL`].
    fn remove<'a>(&'a self, name: &'a str) -> Reply<'a, ()>;

    /// The features that the engine lacks, in the words of [`InvalidRequestError::Unsupported`]. A case that needs one of these is not for
    /// this engine; any other refusal fails the case.
    fn lacks(&self) -> &'static [&'static str] {
        &[]
    }

    /// How many names that begin with `prefix` still have any state: holds, queues, or any other. `None`, the default, if the
    /// engine does not know.
    fn left_behind<'a>(&'a self, _prefix: &'a str) -> Reply<'a, Option<usize>> {
        Box::pin(async { None })
    }
}

/// Lacking on an engine where no hold can be removed without its holder.
pub const REMOVAL: &str = "removal by an operator";
/// Lacking on an engine where only the client of a hold knows its hold count, and how long it lasts.
pub const VIEW: &str = "view of another client's hold";
/// Lacking on an engine that cannot say which locks are held.
pub const LIST: &str = "listing of locks (`list`, `find`)";
/// Lacking on an engine where no hold outlasts its holder.
pub const MIN_HOLD: &str = "hold that outlasts its guard (`min_hold`)";
/// Lacking on an engine where a hold lasts no longer than a session that is renewed by itself.
pub const LEASES: &str = "lease of its own for each hold";
/// Lacking on an engine that cannot change one half of a read-write lock into the other without a gap.
pub const DOWNGRADE: &str = "upgrade or downgrade of a read-write lock";
/// Lacking on an engine that acquires several locks one after the other.
pub const ONE_STEP: &str = "several locks in one step";

/// Lacking on an engine where a lock with waiters is never free: the server grants it to the first of them at once.
pub const FREE_WITH_WAITERS: &str = "free lock beside its waiters";
/// Lacking on an engine where older waiters come before the owner that takes a lock over.
pub const TAKEOVER_FIRST: &str = "takeover before older waiters";
/// Lacking on an engine where no reader overtakes a waiting writer, whatever its options are.
pub const READERS_OVERTAKE: &str = "readers that overtake a waiting writer";
/// Lacking on an engine whose tokens rise in steps greater than one.
pub const SMALL_TOKENS: &str = "tokens that count from one";

/// The reply of a [`Backend`].
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An engine and the names of one case.
pub struct Bench {
    backend: Box<dyn Backend>,
    prefix: String,
}

impl Bench {
    /// A bench on an engine, which may be shared with other cases: the names are this case's own.
    pub fn new(backend: impl Backend + 'static) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        Self { backend: Box::new(backend), prefix: format!("conformance:{}-{case}:", process::id()) }
    }

    /// The URL of the engine.
    #[must_use]
    pub fn url(&self) -> &str {
        self.backend.url()
    }

    /// A name that no other case uses.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A new client.
    pub async fn client(&self) -> Client {
        self.client_with(|connect| connect).await
    }

    /// A new client with options.
    ///
    /// # Panics
    ///
    /// If none can be connected.
    pub async fn client_with(&self, options: impl FnOnce(ConnectOptions) -> ConnectOptions) -> Client {
        options(Client::connect(self.url())).await.expect("the engine under test takes clients")
    }

    /// The case's lock, with a new client.
    pub async fn lock(&self) -> Lock {
        self.lock_with(|connect| connect).await
    }

    /// The case's lock, with a new client with options.
    pub async fn lock_with(&self, options: impl FnOnce(ConnectOptions) -> ConnectOptions) -> Lock {
        self.client_with(options).await.lock(self.name("lock"))
    }

    /// The case's read-write lock, with a new client.
    pub async fn rw_lock(&self) -> RwLock {
        self.rw_lock_with(|connect| connect).await
    }

    /// The case's read-write lock, with a new client with options.
    pub async fn rw_lock_with(&self, options: impl FnOnce(ConnectOptions) -> ConnectOptions) -> RwLock {
        self.client_with(options).await.rw_lock(self.name("lock"))
    }

    /// Removes the hold under a full name without a release by its holder.
    ///
    /// # Errors
    ///
    /// [`InvalidRequestError::Unsupported`] on an engine that does not support that.
    pub async fn remove(&self, name: &str) -> Result<(), InvalidRequestError> {
        self.needs(REMOVAL)?;
        self.backend.remove(name).await;
        Ok(())
    }

    /// Restricts a case to engines that have this.
    ///
    /// # Errors
    ///
    /// [`InvalidRequestError::Unsupported`] on the others.
    pub fn needs(&self, what: &str) -> Result<(), InvalidRequestError> {
        if self.lacks(what) {
            return Err(InvalidRequestError::Unsupported {
                what: what.into(),
                engine: "tested",
                can: Vec::new(),
            });
        }
        Ok(())
    }

    /// Whether the engine lacks this.
    #[must_use]
    pub fn lacks(&self, what: &str) -> bool {
        self.backend.lacks().contains(&what)
    }

    /// Waits until the engine has no state of this case any more: dropped guards are released in the background.
    ///
    /// # Panics
    ///
    /// If some state stays.
    pub async fn nothing_is_left(&self) {
        let begun = Instant::now();
        while let Some(left @ 1..) = self.backend.left_behind(&self.prefix).await {
            assert!(begun.elapsed() < PATIENCE, "{left} names of the case are left behind");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Longer than any engine needs to clean up, shorter than the watchdog time-out that would clean up by itself.
const PATIENCE: Duration = Duration::from_secs(10);

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench")
            .field("url", &self.url())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
