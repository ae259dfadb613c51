//! The connection of a client to its engine, and its options.

use std::error::Error;
use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::block::block_on;
use crate::client::{Client, Shared};
use crate::client_id::ClientId;
use crate::credentials::{Credentials, Provider};
use crate::engine::schemes;
use crate::error::{Classified as _, ConnectError, Subject};
use crate::identity::{Identity, InProcess};
use crate::lease;
#[cfg(feature = "metrics")]
use crate::metrics::{GroupOf, Metrics};
use crate::observe::Warn;
use crate::observer::Observer;
use crate::operation::Operation;

/// The options of a client that [`Client::connect`] is to connect: set them, then `.await`, [`block`](ConnectOptions::block) or
/// [`lazy`](ConnectOptions::lazy).
///
/// A server client that is created on a tokio runtime reads its sockets there as long as that runtime has the time, which
/// saves waking another thread. So the runtime needs the I/O driver, too: `enable_all`, as `#[tokio::main]` does. On a
/// runtime without it tokio reports a panic for each connection, because tokio has no way to check for the driver; the
/// panic is caught, and the client's own thread reads alone. A program that aborts on panics ends there.
///
/// A server uses the real clock. Under tokio's paused clock, which jumps to the next timer while a reply is pending,
/// waits and leases of a server client end at once: use that clock only with `memory:` and the simulated server of the
/// feature `test-util`.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::ConnectError> {
/// use std::time::Duration;
///
/// let client = leasehold::Client::connect("memory:")
///     .namespace("billing:")
///     .label("billing-worker-3")
///     .watchdog(Duration::from_secs(10))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a connection is made when this is awaited, or `.block()` or `.lazy()` is called"]
pub struct ConnectOptions {
    url: String,
    namespace: String,
    label: String,
    watchdog: Duration,
    outage_limit: Duration,
    warn: Warn,
    connect_timeout: Duration,
    response_timeout: Duration,
    linger: Duration,
    token_retention: Option<Duration>,
    credentials: Option<Provider>,
    allow_unverified: bool,
    anonymous: bool,
    #[cfg(feature = "metrics")]
    metrics_group: Option<GroupOf>,
}

impl ConnectOptions {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            namespace: String::new(),
            label: String::new(),
            watchdog: Duration::from_secs(30),
            outage_limit: Duration::from_secs(30),
            warn: Warn::default(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            linger: Duration::from_millis(250),
            token_retention: None,
            credentials: None,
            allow_unverified: false,
            anonymous: false,
            #[cfg(feature = "metrics")]
            metrics_group: None,
        }
    }

    /// How long a lock without a [`lease`](crate::Acquire::lease) stays held after its process has died. 30 s
    /// by default; on a server the lock is renewed every third of it while the guard lives.
    #[doc(alias = "lockWatchdogTimeout")]
    pub fn watchdog(mut self, timeout: Duration) -> Self {
        self.watchdog = timeout;
        self
    }

    /// A prefix for every name, so that applications that share an engine do not conflict. None by default.
    #[doc(alias = "nameMapper")]
    pub fn namespace(mut self, prefix: impl Into<String>) -> Self {
        self.namespace = prefix.into();
        self
    }

    /// The name of this client in logs, in the server's list of clients, and wherever the holder of a lock is named: see
    /// [`ClientInfo`](crate::ClientInfo). None by default.
    #[doc(alias = "clientName")]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Logs a warning about each wait that lasts longer than this, while it lasts, with the holder. None by default.
    ///
    /// Choose a time that is unusual, not one that is impossible: the warnings show where waits begin to time out.
    pub fn warn_wait(mut self, longer_than: Duration) -> Self {
        self.warn.wait = Some(longer_than);
        self
    }

    /// Logs a warning about each lock that is held for longer than this: when it is released or lost, and where its lease is
    /// renewed while it is held. None by default.
    pub fn warn_hold(mut self, longer_than: Duration) -> Self {
        self.warn.hold = Some(longer_than);
        self
    }

    /// How long an acquire without [`wait`](crate::Acquire::wait), and a change of a count, goes on in an outage of the
    /// server. 30 s by default.
    #[doc(alias = "retryAttempts")]
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.outage_limit = limit;
        self
    }

    /// How long to wait for a connection to the server. 2 s by default.
    #[doc(alias = "connectTimeout")]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long to wait for a reply of the server before the connection is replaced. 2 s by default.
    ///
    /// It is replaced earlier if a renewal gets no reply and too little of its lease would be left: after half of the
    /// remaining lease, but not before half a second without a reply.
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// How long the drop of the client's last handle waits for releases that are still pending. 250 ms by default.
    pub fn linger(mut self, limit: Duration) -> Self {
        self.linger = limit;
        self
    }

    /// How long the counter of a lock's fencing tokens outlives the last token. For ever by default, as in Redisson: a server
    /// then keeps a key of some hundred bytes for each name that was ever locked with a token.
    ///
    /// Tokens rise all the same: a counter that has expired begins anew with the microseconds of the server's clock, which is
    /// above all tokens of before. So every client that takes tokens of these names needs this option, and so does every later
    /// version of the program: without it a counter that has expired begins with one, and a fence rejects its tokens.
    /// The page on [guarantees](crate::guide::guarantees) has what remains.
    ///
    /// It has to be longer than the [`watchdog`](Self::watchdog) time-out, and than the [`lease`](crate::Acquire::lease) and
    /// the [`max_hold`](crate::Acquire::max_hold) of each acquire with a token, which is refused otherwise. A hold that is
    /// renewed for longer outlives its counter; until the next token `last_token` is zero. A client without this option removes
    /// the time to live again. Redisson neither removes nor extends it, and begins an expired counter with one: do not set this for
    /// names that Redisson locks with tokens.
    ///
    /// On `memory:` and `file:` it is checked, and has no effect: their counters stay.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let client = leasehold::Client::connect("memory:").token_retention(day).await?;
    /// let guard = client.fenced_lock("order:1700").acquire().await?;
    /// assert!(client.fenced_lock("order:1701").acquire().lease(2 * day).await.is_err());
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn token_retention(mut self, length: Duration) -> Self {
        self.token_retention = Some(length);
        self
    }

    /// The program's own source of credentials, which replaces user and password of the URL: it is asked for each connection,
    /// and again when the server refused what it has returned.
    ///
    /// It runs on the thread of the client's connections and must not block it. Its error appears in the error of the
    /// connection and must not contain a secret.
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::ConnectError> {
    /// use std::time::Duration;
    /// use leasehold::{Client, Credentials};
    /// # async fn signed_token() -> std::io::Result<String> { Ok(String::new()) }
    ///
    /// let client = Client::connect("rediss://locks.example.com")
    ///     .credentials(|| async {
    ///         // Good for 15 minutes.
    ///         let token = signed_token().await?;
    ///         Ok::<_, std::io::Error>(Credentials::new("app", token).renew_after(Duration::from_secs(10 * 60)))
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "credentialsResolver")]
    pub fn credentials<F, E>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.credentials = Some(Provider::new(provider));
        self
    }

    /// Agrees to `verify=none` in the URL: the server is not verified, and any machine in between can read the password and
    /// answer in its place. Without this call such a URL is an error, so that a changed setting alone cannot turn the
    /// verification off.
    #[doc(alias = "sslVerificationMode")]
    pub fn allow_unverified_tls(mut self) -> Self {
        self.allow_unverified = true;
        self
    }

    /// Publishes nothing about this client: neither its label nor its host, process, program, version and start. For programs
    /// whose host names must not be seen by others that use the same server.
    ///
    /// Its locks work as before, but for other clients they are held by an id alone: [`Holder::client`](crate::Holder::client)
    /// is `None`. The label is in the logs of this program only. On `file:` the number of the process stays in the files of its
    /// locks, because other processes need it to tell whether the holder lives.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::Client::connect("memory:").anonymous().await?;
    /// let guard = client.lock("stock:7").acquire().await?;
    /// let holder = client.lock("stock:7").holder().await?.expect("it is held");
    /// assert_eq!(holder.client, None);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Adds the label `group` to the metrics of locks: what `group` makes of the name of a lock, such as the part before the first
    /// colon. Without it no metric tells one lock from another, because each name would be a time series.
    ///
    /// It is called with the whole name, namespace included, at each acquire, release and loss: where that is awaited, where a guard
    /// is dropped, and on the thread of the client that renews leases. It must not block, because no lease is renewed meanwhile. If it
    /// panics, the lock is in the group `other`. A client has at most 100 groups; the locks of further ones are in `other`, too.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::Client::connect("memory:")
    ///     .metrics_group(|name| name.split(':').next().unwrap_or_default().to_owned())
    ///     .await?;
    /// client.lock("coupon:42").acquire().await?.release().await?; // in the group `coupon`
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn metrics_group(mut self, group: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.metrics_group = Some(Arc::new(group));
        self
    }

    /// Opens the engine, and makes the client on it.
    async fn open(self, lazy: bool) -> Result<Client, ConnectError> {
        let Self { url, namespace, label, outage_limit, warn, .. } = self;
        let id = ClientId::random();
        let identity = (!self.anonymous).then(|| Arc::new(Identity::new(id, &label)));
        let watchdog = lease::checked("watchdog time-out", self.watchdog)?;
        let options = schemes::Options {
            identity: identity.clone(),
            #[cfg(any(feature = "etcd", feature = "mysql"))]
            watchdog,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            linger: self.linger,
            credentials: self.credentials,
            token_retention: self.token_retention,
            allow_unverified: self.allow_unverified,
            lazy,
        };
        let (opening, server) = schemes::open(&url, options)?;
        lease::outlived(self.token_retention, &[("watchdog time-out", Some(watchdog))])?;
        let engine = opening.await.map_err(|error| error.about(&Subject::server_alone(server.clone())))?;
        let observer = Arc::new(Observer::new(
            #[cfg(feature = "metrics")]
            Metrics::new(label.clone(), self.metrics_group),
        ));
        let mut shared = Shared::new(id, engine, server, namespace, watchdog, outage_limit, observer);
        (shared.label, shared.warn) = (label, warn);
        shared.token_retention = self.token_retention;
        shared.in_process = identity.as_deref().map(InProcess::register);
        Ok(Client::new(shared))
    }

    /// Connects from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`: a URL that is not supported, an option out of its range, or a failure of the server.
    #[track_caller]
    pub fn block(self) -> Result<Client, ConnectError> {
        self.into_future().block()
    }

    /// Makes the client at once, and connects it in the background: for a service that has to start without its server.
    ///
    /// The client goes on trying to connect, with growing pauses of up to a second. Until it is connected, it behaves as in an
    /// outage: an acquire waits until its [`wait`](crate::Acquire::wait) is over, or without one for the
    /// [`outage_limit`](Self::outage_limit); a `try_acquire` and a query fail at once, and say why there is no connection. If
    /// the server refuses the client for good, such as for a wrong password, every operation says so at once, a warning is
    /// logged, and the client still goes on trying. [`Client::status`] tells whether it is connected, [`Client::ping`] whether
    /// the server replies.
    ///
    /// It needs no runtime; on one, the client uses it as if it had been awaited there. On `memory:` and `file:` there is no
    /// server to wait for: the client is connected when this returns.
    ///
    /// # Errors
    ///
    /// A URL that is not supported, or an option out of its range. On `file:` also a directory that cannot be made or used:
    /// nothing would change that later by itself.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let client = leasehold::Client::connect("memory:").lazy()?; // no `.await`: it does not wait for the server
    /// let guard = client.lock("nightly-report").acquire().wait(Duration::from_secs(5)).await?;
    /// assert!(client.status().connected);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lazy(self) -> Result<Client, ConnectError> {
        block_on(self.open(true))
    }
}

impl fmt::Debug for ConnectOptions {
    /// Without the URL, which may have a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("namespace", &self.namespace)
            .field("label", &self.label)
            .field("watchdog", &self.watchdog)
            .field("outage_limit", &self.outage_limit)
            .finish_non_exhaustive()
    }
}

impl IntoFuture for ConnectOptions {
    type Output = Result<Client, ConnectError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(self.open(false))
    }
}
