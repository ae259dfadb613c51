//! The client, from which all locks are made.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::acquire::HandleOptions;
use crate::back_off::BackOff;
use crate::client_id::ClientId;
use crate::config::{Config, ConfigError};
use crate::connect::ConnectOptions;
use crate::diagnosis::{self, Diagnosis};
#[cfg(any(feature = "etcd", feature = "redis"))]
use crate::engine::Reply;
#[cfg(feature = "etcd")]
use crate::engine::Survey;
use crate::engine::{Engine, Feature, HoldKey, Kind, Resource};
#[cfg(feature = "redis")]
use crate::engine::{Probe, Probed};
use crate::env::{self, Instant};
use crate::error::{AcquireError, Classified, InvalidRequestError, PingError, Rounded, Subject, WriteError};
use crate::events::{Event, Events};
use crate::fair::FairLock;
use crate::fence::StaleTokenError;
use crate::fenced::FencedLock;
use crate::hold::Hold;
use crate::holds::HoldRegistry;
use crate::identity::InProcess;
use crate::latch::Latch;
use crate::leased_semaphore::LeasedSemaphore;
use crate::lock::Lock;
use crate::loss::Loss;
use crate::multi_lock::MultiLock;
use crate::name::Name;
use crate::observe::Warn;
use crate::observer::Observer;
use crate::operation::Operation;
use crate::owner::{Owner, OwnerId};
use crate::race::{First, race};
use crate::rw_lock::RwLock;
use crate::semaphore::Semaphore;
use crate::stats::Stats;
use crate::status::Status;

/// A connection to one lock engine. Cheap to clone; all clones are one client.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock("coupon:42").acquire().await?;
/// // … issue the coupon …
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RedissonClient")]
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Connects to the engine that `url` names. Options are set on the returned [`ConnectOptions`], before `.await` or
    /// `.block()`, which wait for the connection, or [`lazy`](ConnectOptions::lazy), which does not.
    ///
    /// | URL | Engine |
    /// |---|---|
    /// | `memory:` | inside this process, for this client alone |
    /// | `memory:NAME` | inside this process, shared by all clients that use the same name |
    /// | `redis://[user:password@]host[:port][/db]`, `valkey://…` | a Redis or Valkey server (feature `redis`) |
    /// | `redis+unix:///path[?db=…&user=…&pass=…]` | the same, by its socket on this machine (feature `redis`) |
    ///
    /// The server must support RESP3 and be a primary: Redis from 6.0.6 on, or Valkey, outside of a cluster.
    pub fn connect(url: impl Into<String>) -> ConnectOptions {
        ConnectOptions::new(url.into())
    }

    /// The options of a client whose settings are in the environment: `LEASEHOLD_URL`, `LEASEHOLD_NAMESPACE` and so on. See
    /// [`Config::from_env`].
    ///
    /// # Errors
    ///
    /// If `LEASEHOLD_URL` is not set, or a variable is malformed.
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::Client::from_env()?.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<ConnectOptions, ConfigError> {
        Config::from_env()?.connect()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The lock of this name: plain and re-entrant, Redisson's `RLock`.
    ///
    /// The handle costs nothing to make or to drop. An invalid name is refused by the first operation on the lock, before
    /// anything is sent.
    #[doc(alias = "getLock")]
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.lock_of(Kind::Lock, name.as_ref(), HandleOptions::DEFAULT)
    }

    /// The lock of this name with a fencing token for every acquisition: Redisson's `RFencedLock`.
    ///
    /// It is the same lock as [`lock`](Client::lock) of that name.
    #[doc(alias = "getFencedLock")]
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> FencedLock {
        FencedLock::new(self.lock(name))
    }

    /// The lock of this name, granted to its waiters in FIFO order: Redisson's fair lock.
    #[doc(alias = "getFairLock")]
    pub fn fair_lock(&self, name: impl AsRef<str>) -> FairLock {
        FairLock::new(self.lock_of(Kind::Fair, name.as_ref(), HandleOptions::DEFAULT))
    }

    /// The lock of this name, waited for by retrying after pauses: Redisson's spin lock.
    ///
    /// It is the same lock as [`lock`](Client::lock) of that name, but its waiters are not notified of a release. It costs no
    /// subscription, and suits locks that many clients hold for a moment with little contention. Waiters are served in no
    /// order. The pauses are Redisson's unless [`back_off`](Lock::back_off) sets others.
    #[doc(alias = "getSpinLock")]
    #[doc(alias = "RedissonSpinLock")]
    pub fn spin_lock(&self, name: impl AsRef<str>) -> Lock {
        let options = HandleOptions { spin: Some(BackOff::default()), ..HandleOptions::DEFAULT };
        self.lock_of(Kind::Spin, name.as_ref(), options)
    }

    /// Several locks as one: the locks of these names, all of them or none.
    ///
    /// Each name is a lock of its own, with its own key, which other callers may acquire alone by [`lock`](Client::lock).
    /// Values of one key, which need no locks of their own, are [`group_lock`](Client::group_lock). For locks of other kinds
    /// or clients, see [`MultiLock::new`].
    #[doc(alias = "getMultiLock")]
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.lock(name)))
    }

    /// Values of one key as one lock: these values of a group, all of them or none, in one step. Redisson's "faster" multi
    /// lock, `getMultiLock(group, values)`.
    ///
    /// A value has no key and no name of its own: a caller that needs one value acquires a set of one, and a
    /// [`lock`](Client::lock) whose name is that value is another lock. Several locks, each with its own name, are
    /// [`multi_lock`](Client::multi_lock).
    ///
    /// Two sets of one group exclude each other if they have a value in common, and do not otherwise. It suits a shop that
    /// sells several things at once, or a transfer between accounts: however many values there are, on a server the whole
    /// group is one key, and each step one request. It behaves as [`Lock`] does, except that
    ///
    /// - [`is_locked`](Lock::is_locked) is true if *any* of the values is held, and [`holder`](Lock::holder) returns the
    ///   holder of the first held value; [`is_held_by`](Lock::is_held_by) and [`hold_count`](Lock::hold_count) count an owner
    ///   that holds *all* of them.
    /// - [`force_unlock`](Lock::force_unlock) and [`steal`](crate::Acquire::steal) take these values from their holders.
    ///   Guards that held some of them are lost; their other values become free when those guards are dropped or expire.
    /// - Waiters for the same set are served in FIFO order. Among different sets there is no order: a waiter for many values
    ///   may wait long while other owners hold some of them in turn.
    /// - Sets that one [owner](crate::Acquire::as_owner) holds are the same or have nothing in common; anything else is
    ///   [`InvalidRequestError::SetsOverlap`].
    /// - Re-entering never shortens the lease: the longer one stays.
    /// - Tokens count the whole group.
    ///
    /// The order of the values does not matter. An empty set, more than
    /// [`limits::MOST_VALUES`](crate::limits::MOST_VALUES) values, and a value given twice are refused by the first operation,
    /// like an invalid name. For Redisson to see the same values, its codec must be the `StringCodec`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let transfer = client.group_lock("accounts", ["7", "3"]).acquire().await?;
    /// assert!(client.group_lock("accounts", ["3", "4"]).try_acquire().await?.is_none());
    /// assert!(client.group_lock("accounts", ["4", "5"]).try_acquire().await?.is_some());
    /// transfer.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getMultiLock")]
    pub fn group_lock(
        &self,
        group: impl AsRef<str>,
        values: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Lock {
        let name = self.named(Kind::Group, group.as_ref());
        let resource = name.and_then(|name| Resource::group(name, values));
        Lock::new(Arc::clone(&self.shared), resource, HandleOptions::DEFAULT)
    }

    /// The lock of this name as most other libraries write it: one `SET name value NX PX lease`.
    ///
    /// It contends with redis-py's `Lock`, Lettuce, Spring's `setIfAbsent`, bsm/redislock and all other programs that write
    /// such a key. It is the cheapest lock: one plain command to acquire it, one to release it. Its limits:
    ///
    /// - It is not re-entrant: the key has no count. A second acquire by the same owner, and
    ///   [`Guard::reenter`](crate::Guard::reenter), fail with [`InvalidRequestError::NotReentrant`].
    /// - Other libraries publish nothing when they release it. Our own releases wake our waiters; besides that the front waiter
    ///   of a client polls five to ten times a second, and when the time to live that it saw is over.
    /// - It is another lock than [`lock`](Client::lock) of that name: on a server both use the same key, and the second
    ///   request fails with [`ServerError::NotALock`](crate::ServerError::NotALock).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.setnx_lock("import").acquire().await?;
    /// // … what no Python worker does meanwhile …
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn setnx_lock(&self, name: impl AsRef<str>) -> Lock {
        self.lock_of(Kind::SetNx, name.as_ref(), HandleOptions { reentrant: false, ..HandleOptions::DEFAULT })
    }

    /// Writes a value to the same Redis unless it was written with a greater fencing token. Check and write are one step there.
    ///
    /// The value is an ordinary string that any client can read. The greatest token it was written with is stored beside it
    /// and never expires. The same token may write again. The client's namespace is not prepended to the key, which is yours.
    ///
    /// It refuses a holder that was paused past its lease, but only if every writer of that key writes like this, with
    /// tokens of one lock.
    ///
    /// # Errors
    ///
    /// [`WriteError::Stale`] with both tokens: nothing was written. [`WriteError::Server`] if there was no reply; it is
    /// safe to write again with the same token. [`InvalidRequestError::Unsupported`] on an engine that stores no values: in
    /// memory, use a [`Fence`](crate::Fence).
    ///
    /// # Cancel safety
    ///
    /// Once begun, the value may be written even if the future is dropped.
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::Client::connect("redis://127.0.0.1").await?;
    /// let guard = client.fenced_lock("account:7").acquire().await?;
    /// // … work out the new balance …
    /// client.fenced_write("balance:7", guard.token(), "150").await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fenced_write(
        &self,
        key: impl AsRef<str>,
        token: u64,
        value: impl Into<Vec<u8>>,
    ) -> Operation<Result<(), WriteError>> {
        let shared = Arc::clone(&self.shared);
        let (key, value) = (Name::new("", key.as_ref()), value.into());
        Operation::new(async move {
            let key = key?;
            let write = async {
                shared.check(Feature::FencedWrite)?;
                match shared.engine.fenced_write(&key, token, &value).await? {
                    None => Ok(()),
                    Some(highest) => Err(StaleTokenError::new(token, highest).into()),
                }
            };
            write.await.map_err(|error: WriteError| {
                error.about(&Subject::new("key", key.clone(), shared.server.clone()))
            })
        })
    }

    /// The read-write lock of this name: many readers or one writer, Redisson's `RReadWriteLock`.
    #[doc(alias = "getReadWriteLock")]
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        let half = |kind| self.lock_of(kind, name.as_ref(), HandleOptions::DEFAULT);
        RwLock::new(half(Kind::Read), half(Kind::Write))
    }

    /// The semaphore of this name: permits that are only counted, Redisson's `RSemaphore`.
    #[doc(alias = "getSemaphore")]
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(Arc::clone(&self.shared), self.resource(Kind::Semaphore, name.as_ref()))
    }

    /// The semaphore of this name whose permits have a lease: Redisson's `RPermitExpirableSemaphore`. Prefer it to
    /// [`semaphore`](Client::semaphore).
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn leased_semaphore(&self, name: impl AsRef<str>) -> LeasedSemaphore {
        LeasedSemaphore::new(Arc::clone(&self.shared), self.resource(Kind::LeasedSemaphore, name.as_ref()))
    }

    /// The count-down latch of this name, Redisson's `RCountDownLatch`.
    #[doc(alias = "getCountDownLatch")]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch::new(Arc::clone(&self.shared), self.resource(Kind::Latch, name.as_ref()))
    }

    fn lock_of(&self, kind: Kind, name: &str, options: HandleOptions) -> Lock {
        Lock::new(Arc::clone(&self.shared), self.resource(kind, name), options)
    }

    fn resource(&self, kind: Kind, name: &str) -> Result<Resource, InvalidRequestError> {
        self.named(kind, name).map(|name| Resource::new(kind, name))
    }

    /// The full name, if the engine supports this kind.
    fn named(&self, kind: Kind, name: &str) -> Result<Name, InvalidRequestError> {
        self.shared.check(Feature::Kind(kind))?;
        Name::new(&self.shared.namespace, name)
    }

    /// The id of this client, the first half of the owners it creates.
    #[must_use]
    pub fn id(&self) -> String {
        self.shared.id.to_string()
    }

    /// What an operator should know about the engine, such as locks on a network file system; mostly nothing. It was logged
    /// when the client was connected, too.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.shared.engine.warnings()
    }

    /// Whether the client is connected to its server, since when, and if not, why. It sends nothing, so it costs nothing: for
    /// readiness probes and metrics.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let status = client.status();
    /// if !status.connected {
    ///     eprintln!("no connection for {:?}: {:?}", status.lasting, status.last_error);
    /// }
    /// # assert!(status.connected);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        let Shared { engine, server, made, .. } = &*self.shared;
        Status::new(server.as_deref(), engine.connection(), *made)
    }

    /// What the client has counted since it was made: acquires by their outcome, waits, losses by their cause and so on. It costs
    /// nothing, and needs no feature. [`Stats`] tells what each number means and has an example.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.observer.stats()
    }

    /// A receiver of what happens to the locks of this client from now on: grants, time-outs, releases, losses, outages.
    ///
    /// Without a receiver events cost nothing. Those of one hold arrive in their order.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::Event;
    ///
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let mut events = client.events();
    /// let watcher = tokio::spawn(async move {
    ///     let mut lost = Vec::new();
    ///     while let Some(event) = events.recv().await {
    ///         match event {
    ///             Event::Lost { lock, cause, .. } => lost.push(format!("{}: {cause}", lock.name())),
    ///             Event::Missed(count) => eprintln!("{count} events were missed"),
    ///             _ => {}
    ///         }
    ///     }
    ///     lost
    /// });
    /// let guard = client.lock("report").acquire().await?;
    /// client.lock("report").force_unlock().await?;
    /// assert!(!guard.is_held());
    /// # drop(guard);
    /// drop(client);
    /// assert_eq!(watcher.await?, ["report: the lock was freed by force_unlock"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> Events {
        self.shared.observer.events()
    }

    /// Sends a request that does nothing to the server, on the connection for commands, and returns how long the reply took:
    /// for checks that the server replies.
    ///
    /// On `memory:` it replies at once. On `file:` it checks that the directory is there and can be written.
    ///
    /// # Errors
    ///
    /// [`PingError::Server`] if there is no connection, which is reported at once; if there was no reply within the
    /// [`response_timeout`](ConnectOptions::response_timeout); or if the server refuses the request, for instance because it is
    /// loading its data.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let round_trip = client.ping().await?;
    /// println!("the server replied after {round_trip:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn ping(&self) -> Operation<Result<Duration, PingError>> {
        let shared = Arc::clone(&self.shared);
        Operation::new(async move {
            let begun = env::now();
            let reply = shared.engine.ping().await.map_err(PingError::from);
            reply.map_err(|error| error.about(&Subject::server_alone(shared.server.clone())))?;
            Ok(env::now().saturating_duration_since(begun))
        })
    }

    /// Examines the server: what is there, and what endangers locks.
    ///
    /// It asks the server about itself, measures a hundred round trips against the [watchdog](ConnectOptions::watchdog), counts
    /// counters of fencing tokens for at most two seconds, and acquires and releases a lock of each kind, whose name begins with
    /// the namespace of this client and `leasehold-doctor:`. On etcd it asks each member, and has a lease of one second granted, which
    /// it revokes. What the user may not ask is reported as not known. `leasehold
    /// doctor` prints the report.
    ///
    /// # Errors
    ///
    /// [`PingError::Server`] if the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing but keys of its own, which are deleted again, also when it is dropped.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let diagnosis = client.diagnose().await?;
    /// for finding in &diagnosis.findings {
    ///     println!("{}: {}: {}", finding.severity, finding.code, finding.meaning);
    /// }
    /// assert_ne!(diagnosis.worst(), Some(leasehold::Severity::Danger));
    /// # Ok(())
    /// # }
    /// ```
    pub fn diagnose(&self) -> Operation<Result<Diagnosis, PingError>> {
        Operation::new(diagnosis::diagnose(self.clone(), self.shared.watchdog))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The name of the engine.
    pub(crate) fn engine_name(&self) -> &'static str {
        self.shared.engine.profile().engine
    }

    /// What all names of this client begin with.
    #[cfg(feature = "redis")]
    pub(crate) fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// A question of a diagnosis.
    #[cfg(feature = "redis")]
    pub(crate) fn probe(&self, probe: Probe) -> Reply<Probed> {
        self.shared.engine.probe(probe)
    }

    /// What the cluster of its server says about itself, for a diagnosis.
    #[cfg(feature = "etcd")]
    pub(crate) fn survey(&self) -> Reply<Survey> {
        self.shared.engine.survey()
    }

    /// The label given at [`connect`](ConnectOptions::label), or an empty text.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.shared.label
    }

    /// Shuts the client down: refuses new locks, waits up to `grace` for the live guards, then stops.
    ///
    /// Waiters fail at once. Guards that end within `grace` are released as usual. The locks of other guards are never
    /// released under running work: the guards are lost with [`Loss::Shutdown`](crate::Loss::Shutdown) and no longer
    /// renewed, and their locks expire, or are released if the work ends first.
    ///
    /// Operations that acquire nothing still work: queries such as [`is_locked`](Lock::is_locked), which shows when a lock
    /// that was left behind has expired, releases, and [`force_unlock`](Lock::force_unlock).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting; the client stays closed to new locks. Call it again to finish.
    pub fn shutdown(&self, grace: Duration) -> Operation<ShutdownReport> {
        let shared = Arc::clone(&self.shared);
        Operation::new(async move { shared.shutdown(grace).await })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.shared.id)
            .field("label", &self.shared.label)
            .finish_non_exhaustive()
    }
}

/// How a [`Client::shutdown`] went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many locks were still held at the end of the grace period, and now expire by themselves.
    pub left_to_expire: usize,
}

/// The state that all clones of a client, its locks and its guards share.
pub(crate) struct Shared {
    pub(crate) id: ClientId,
    pub(crate) engine: Arc<dyn Engine>,
    /// The URL of the server without credentials.
    server: Option<Arc<str>>,
    made: Instant,
    pub(crate) namespace: String,
    pub(crate) label: String,
    /// Lets the other clients of the process find this one, unless it is anonymous.
    pub(crate) in_process: Option<InProcess>,
    pub(crate) watchdog: Duration,
    pub(crate) outage_limit: Duration,
    pub(crate) warn: Warn,
    pub(crate) token_retention: Option<Duration>,
    pub(crate) holds: HoldRegistry,
    pub(crate) observer: Arc<Observer>,
    closed: AtomicBool,
    /// Notified when the client closes, and when the last guard is dropped afterwards.
    changed: Notify,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.id, self.label)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.observer.close();
    }
}

impl Shared {
    pub(crate) fn new(
        id: ClientId,
        engine: Arc<dyn Engine>,
        server: Option<Arc<str>>,
        namespace: String,
        watchdog: Duration,
        outage_limit: Duration,
        observer: Arc<Observer>,
    ) -> Self {
        engine.observe(&observer);
        Self {
            id,
            engine,
            server,
            made: env::now(),
            namespace,
            label: String::new(),
            in_process: None,
            watchdog,
            outage_limit,
            warn: Warn::default(),
            token_retention: None,
            holds: HoldRegistry::default(),
            observer,
            closed: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Records that a caller learns the holder of a resource: if it is an owner of this client, its hold is not handed over
    /// to another task under the same owner.
    pub(crate) fn expose_owner(&self, resource: &Resource, owner: OwnerId) {
        if owner.client == self.id && self.engine.handover().is_some() {
            self.drawn_hold(&HoldKey { resource: resource.clone(), owner, amount: 1 });
        }
    }

    /// The same for an error that names the holder.
    pub(crate) fn expose_holder<T>(&self, resource: &Resource, result: &Result<T, AcquireError>) {
        if let Err(AcquireError::Timeout { holder: Some(holder), .. }) = result {
            self.expose_owner(resource, holder.at(self.id));
        }
    }

    /// The hold of an owner that this client created, which only its guard refers to: found through the engine.
    fn drawn_hold(&self, key: &HoldKey) -> Option<Arc<Hold>> {
        let hold = self.engine.term(key).and_then(|term| term.hold());
        hold.inspect(|hold| hold.expose_owner())
    }

    /// The hold of an owner, if the owner may have one there.
    pub(crate) fn hold_of(self: &Arc<Self>, key: HoldKey) -> Result<Arc<Hold>, InvalidRequestError> {
        // The holds of groups are all in the registry.
        let drawn = if key.resource.kind == Kind::Group { None } else { self.drawn_hold(&key) };
        drawn.map_or_else(|| self.holds.hold(self, key), Ok)
    }

    /// The owner in its engine form, if it belongs to this client.
    pub(crate) fn own(&self, owner: &Owner) -> Result<OwnerId, InvalidRequestError> {
        let owner = owner.at(self.id);
        if owner.client == self.id { Ok(owner) } else { Err(InvalidRequestError::ForeignOwner(owner.into())) }
    }

    /// What an error about this resource is about.
    pub(crate) fn subject(&self, resource: &Resource) -> Subject {
        Subject::new(resource.kind.noun(), resource.name.clone(), self.server.clone())
    }

    /// The same for a handle: nothing if its name or its kind was refused.
    pub(crate) fn subject_of(&self, resource: &Result<Resource, InvalidRequestError>) -> Subject {
        resource.as_ref().map_or_else(|_| Subject::default(), |resource| self.subject(resource))
    }

    /// An operation on a resource: its errors name the resource and the server.
    pub(crate) fn operation<T, E, F>(
        self: &Arc<Self>,
        resource: Result<Resource, InvalidRequestError>,
        work: impl FnOnce(Arc<Self>, Resource) -> F + Send + 'static,
    ) -> Operation<Result<T, E>>
    where
        E: Classified + From<InvalidRequestError>,
        F: Future<Output = Result<T, E>> + Send,
    {
        let shared = Arc::clone(self);
        Operation::new(async move {
            let resource = resource?;
            let done = work(Arc::clone(&shared), resource.clone()).await;
            done.map_err(|error| error.about(&shared.subject(&resource)))
        })
    }

    /// Checks that the engine has this feature.
    pub(crate) fn check(&self, feature: Feature) -> Result<(), InvalidRequestError> {
        self.engine.profile().check(feature)
    }

    pub(crate) fn check_open(&self) -> Result<(), InvalidRequestError> {
        if self.closed.load(Ordering::SeqCst) { Err(InvalidRequestError::ShutDown) } else { Ok(()) }
    }

    /// Resolves when a shutdown has begun.
    pub(crate) async fn closed(&self) {
        loop {
            let changed = self.changed.notified();
            if self.check_open().is_err() {
                return;
            }
            changed.await;
        }
    }

    /// The URL of the server without credentials.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Whether the moment of each grant is kept. Inside a process a query of the clock would be a fiftieth of a lock and its
    /// release.
    pub(crate) fn times_holds(&self) -> bool {
        self.warn.hold.is_some() || self.observer.is_watched() || self.engine.handover().is_some()
    }

    /// Logs that a hold was or is longer than is usual.
    pub(crate) fn log_long_hold(&self, key: &HoldKey, held_for: Duration) {
        let (HoldKey { resource, owner, .. }, Self { label, server, .. }) = (key, self);
        let (server, held_for) = (server.as_deref(), tracing::field::display(Rounded(held_for)));
        tracing::warn!(lock = %resource, %owner, label, server, held_for, "a lock is held for long");
    }

    /// Logs and counts that a hold is lost.
    pub(crate) fn log_loss(&self, key: &HoldKey, loss: Loss, held_for: Option<Duration>) {
        self.observer.lost(key, loss, held_for);
        let (HoldKey { resource, owner, .. }, Self { label, server, .. }) = (key, self);
        let held_for = held_for.map(|length| tracing::field::display(Rounded(length)));
        let server = server.as_deref();
        match loss {
            // It was ordered, and the line about the shutdown counts them.
            Loss::Shutdown => {
                tracing::debug!(lock = %resource, %owner, label, server, held_for, cause = %loss, "a held lock is lost");
            }
            loss => {
                tracing::warn!(lock = %resource, %owner, label, server, held_for, cause = %loss, "a held lock is lost");
            }
        }
    }

    pub(crate) fn guard_made(&self) {
        self.observer.guard_made();
    }

    pub(crate) fn guard_gone(&self) {
        if self.observer.guard_gone() && self.closed.load(Ordering::SeqCst) {
            self.changed.notify_waiters();
        }
    }

    async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let deadline = env::after(grace);
        self.closed.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.engine.wake_all();
        loop {
            let changed = self.changed.notified();
            if self.observer.counters.guards() == 0 {
                break;
            }
            match race(pin!(changed), env::sleep_until_or_forever(deadline)).await {
                First::Left(()) => {}
                First::Right(()) => break,
            }
        }
        let left_to_expire = self.engine.retire(self.id);
        let (client, label) = (self.id, &self.label);
        if left_to_expire == 0 {
            tracing::info!(%client, label, left_to_expire, "the client was shut down");
        } else {
            tracing::warn!(%client, label, left_to_expire, "the client was shut down while locks were held");
        }
        self.observer.report(|| Event::ShutDown { left_to_expire });
        ShutdownReport { left_to_expire }
    }
}
