//! One lock on several independent servers, held by the owner that has a majority of them.

mod guard;
mod members;
mod round;

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

pub use self::guard::QuorumGuard;
pub(crate) use self::members::Members;
use self::round::Round;
use crate::back_off::BackOff;
use crate::client::Client;
use crate::env;
use crate::error::{AcquireError, Classified as _, InvalidRequestError, ServerError, Subject, unless_busy};
use crate::interrupt::{Interrupt, acquire_until};
use crate::lock::Lock;
use crate::operation::Operation;
use crate::outage::{Limit, Outage};
use crate::run::runs_work;

/// A lock on several independent servers, held by the owner that holds it on a majority of them: Redlock.
///
/// It works while a minority of the servers is down, slow or restarting, and is for several independent servers without
/// replication between them. Requests go to all servers at the same time and with a short limit; votes of fewer than a
/// majority are released. While the guard lives, its members are renewed, and missing members are acquired as soon as
/// possible.
///
/// **What it does not promise.** A server that restarts without its data within one lease has lost its vote, and may
/// grant it to another owner: with three such servers out of five, or one if no more than three had voted, two owners can
/// hold the lock at once. Start a server that has lost its data no sooner than one lease later, or set
/// [`rejoin_delay`](QuorumLock::rejoin_delay). Clocks must run at about the same speed. There is no fencing
/// token: no number rises on all servers together. Waiters are not notified of a release: they retry after a pause, in no
/// order.
/// If one server with a replica is enough for you, a [`fenced_lock`](Client::fenced_lock) there is simpler and safer.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Client, QuorumLock};
///
/// # let (a, b, c) = ("memory:", "memory:", "memory:");
/// let servers = [Client::connect(a).await?, Client::connect(b).await?, Client::connect(c).await?];
/// let lock = QuorumLock::new(&servers, "nightly-report");
/// let guard = lock.acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RedissonRedLock")]
#[derive(Clone)]
pub struct QuorumLock {
    members: Arc<[Lock]>,
    limit: Duration,
    rejoin_delay: Option<Duration>,
}

/// How long a server may take to reply by default.
const LIMIT: Duration = Duration::from_millis(200);

impl QuorumLock {
    /// The lock of this name on all of these servers, each through its own client.
    #[doc(alias = "getRedLock")]
    pub fn new<'a>(servers: impl IntoIterator<Item = &'a Client>, name: impl AsRef<str>) -> Self {
        let members = servers.into_iter().map(|client| client.lock(name.as_ref())).collect();
        Self { members, limit: LIMIT, rejoin_delay: None }
    }

    /// How long each server may take to reply before it counts as missing. 200 ms by default; keep it short compared to the
    /// lease.
    #[must_use]
    pub fn server_timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Does not count the vote of a server that has been up for less than this: it may have restarted without its data.
    ///
    /// Give the longest lease that any client uses for this lock, which without [`lease`](AcquireQuorum::lease) is the
    /// watchdog time-out; and use the same value in all clients that contend for it. It costs one more request to each
    /// server, `INFO server`. None by default.
    #[must_use]
    pub fn rejoin_delay(mut self, delay: Duration) -> Self {
        self.rejoin_delay = Some(delay);
        self
    }

    /// The number of servers on which it must be held.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Waits for the lock. See [`AcquireQuorum`] for the options.
    pub fn acquire(&self) -> AcquireQuorum {
        AcquireQuorum { lock: self.clone(), wait: None, lease: None }
    }

    /// Tries once: `None` when other owners hold it on too many servers.
    pub fn try_acquire(&self) -> Operation<Result<Option<QuorumGuard>, AcquireError>> {
        let acquire = self.acquire().wait(Duration::ZERO);
        Operation::new(async move { unless_busy(acquire.await) })
    }
}

impl QuorumLock {
    /// What an error about the lock as a whole is about: its name. The errors of a member also have its server.
    fn subject(&self) -> Subject {
        let resource = self.members.first().and_then(|member| member.resource.as_ref().ok());
        resource.map_or_else(Subject::default, |resource| {
            Subject::new("quorum lock", resource.name.clone(), None)
        })
    }

    /// How long a wait without a limit goes on while a majority is missing: the longest of the limits of its clients.
    fn outage_limit(&self) -> Duration {
        self.members.iter().map(|member| member.shared.outage_limit).max().unwrap_or_default()
    }
}

impl fmt::Debug for QuorumLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumLock").field("members", &self.members).finish_non_exhaustive()
    }
}

/// A lock on several servers to be waited for: options first, then `.await` or [`block`](AcquireQuorum::block).
///
/// # Errors
///
/// [`AcquireError::Timeout`] if other owners held it on too many servers all the time; [`AcquireError::Server`] if too
/// many servers gave no usable reply, with the failure of one of them.
///
/// # When servers are unreachable
///
/// A minority is not waited for. While a majority is missing, the acquire goes on as long as its [`wait`](AcquireQuorum::wait)
/// lasts, or without one for the longest [`outage_limit`](crate::ConnectOptions::outage_limit) of its clients. It fails at once
/// if so many servers refuse the request for good that the others are no majority.
///
/// # Cancel safety
///
/// Dropping the future at any point releases the lock on each server.
#[derive(Debug, Clone)]
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct AcquireQuorum {
    lock: QuorumLock,
    wait: Option<Duration>,
    lease: Option<Duration>,
}

impl AcquireQuorum {
    /// Waits at most this long. Zero: one attempt.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Holds the lock for this long and no longer: members are not renewed, and missing members are not acquired later.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = Some(length);
        self
    }

    /// Acquires from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`AcquireQuorum`].
    #[track_caller]
    pub fn block(self) -> Result<QuorumGuard, AcquireError> {
        self.into_future().block()
    }

    /// The same, until `interrupt` is triggered.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Interrupted`] if it was triggered before; nothing is left behind then. For the rest see [`AcquireQuorum`].
    #[track_caller]
    pub fn block_until(self, interrupt: &Interrupt) -> Result<QuorumGuard, AcquireError> {
        acquire_until(interrupt, self.into_future(), None)
    }

    async fn acquire(self) -> Result<QuorumGuard, AcquireError> {
        let Self { lock, wait, lease } = self;
        if lock.members.is_empty() {
            return Err(InvalidRequestError::NoMembers.into());
        }
        let begun = env::now();
        let deadline = wait.and_then(|wait| begun.checked_add(wait));
        // Waiters that failed together must not retry together, or none ever gets a majority.
        let back_off = BackOff::exponential(Duration::from_millis(10), Duration::from_millis(250));
        let mut failures = 0_u32;
        let limit = match wait {
            Some(_) => Limit::Wait { begun, deadline },
            None => Limit::OutageLimit(lock.outage_limit()),
        };
        let mut outage: Option<Outage> = None;
        loop {
            let round = env::now();
            let error = match Round::begin(&lock, lease).run().await {
                Ok(guard) => return Ok(guard),
                Err(error) => error.of_wait_since(begun),
            };
            if let AcquireError::Server { cause: ServerError::Unavailable(reason), subject } = &error
                && wait != Some(Duration::ZERO)
            {
                let outage = outage.get_or_insert_with(|| Outage::since(round, limit));
                let paused = outage.pause_after(reason.clone()).await;
                paused.map_err(|cause| AcquireError::Server { cause, subject: subject.clone() })?;
                continue;
            }
            outage = None;
            let again = env::now() + env::jittered(back_off.pause(failures) * 2);
            let is_over = deadline.is_some_and(|deadline| again >= deadline);
            if is_over || !error.is_contended() {
                return Err(error.about(&lock.subject()));
            }
            env::sleep_until(again).await;
            failures = failures.saturating_add(1);
        }
    }
}

runs_work!([] AcquireQuorum);

impl IntoFuture for AcquireQuorum {
    type Output = Result<QuorumGuard, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(self.acquire())
    }
}
