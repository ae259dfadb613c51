//! How a lock is asked for.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Shared;
use crate::engine::{Spot, Target};
use crate::error::{AcquireError, Invalid};
use crate::guard::Guard;
use crate::hold::{Entry, Hold};
use crate::lease::{self, Lease};
use crate::operation::Operation;
use crate::owner::Owner;
use crate::waiting::{Patience, wait_for};

/// What both ways of asking have in common.
#[derive(Debug, Clone)]
struct Request {
    shared: Arc<Shared>,
    target: Result<Target, Invalid>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    owner: Option<Owner>,
    steal: bool,
}

impl Request {
    /// Checks everything that can be checked here, before anything is sent.
    fn prepare(self) -> Result<(Arc<Hold>, Entry), Invalid> {
        let target = self.target?;
        let lease = match self.lease {
            Some(length) => Lease::Fixed(lease::checked("lease", length)?),
            None => Lease::Kept(self.shared.watchdog),
        };
        let max_hold = self.max_hold.map(|length| lease::checked("max_hold", length)).transpose()?;
        self.shared.check_open()?;
        let hold = match self.owner {
            Some(owner) => {
                let owner = self.shared.own(&owner)?;
                self.shared.named_hold(Spot { target, owner })
            }
            None => Arc::new(Hold::fresh(self.shared, target)),
        };
        Ok((hold, Entry { lease, max_hold, steal: self.steal }))
    }
}

/// A lock to be waited for: options first, then `.await` or [`block`](Acquire::block).
///
/// Without options it waits as long as it takes, and the lock is held as long as the guard lives.
///
/// # Errors
///
/// [`AcquireError::Timeout`] if the lock stayed busy for the whole [`wait`](Acquire::wait);
/// [`AcquireError::Failure`] if there was no server to ask; [`AcquireError::Invalid`] if an option or the name
/// cannot be, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind: no hold, no place in the line, and no wake-up that
/// somebody else should have had. A new call waits at the end of the line.
///
/// # When the server is unreachable
///
/// The first attempt fails at once. A waiter that has seen the lock busy rides through an outage until its wait
/// is over, or without one for the client's [`outage_limit`](crate::Connect::outage_limit).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use std::time::Duration;
///
/// // Redisson's tryLock(2, 5, SECONDS)
/// let guard = client.lock("seat:12A").acquire().wait(Duration::from_secs(2)).lease(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct Acquire {
    request: Request,
    wait: Option<Duration>,
}

impl Acquire {
    pub(crate) fn new(shared: Arc<Shared>, target: Result<Target, Invalid>) -> Self {
        let request = Request { shared, target, lease: None, max_hold: None, owner: None, steal: false };
        Self { request, wait: None }
    }

    /// Waits at most this long, then gives up with [`AcquireError::Timeout`]. Zero: one attempt.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Holds the lock for this long and no longer, however long the work takes: no renewal.
    pub fn lease(mut self, length: Duration) -> Self {
        self.request.lease = Some(length);
        self
    }

    /// Ends the hold after this long even if the guard still lives, for work that may hang.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.request.max_hold = Some(length);
        self
    }

    /// Acquires in the name of `owner`. If that owner holds the lock already, it is entered once more.
    pub fn as_owner(mut self, owner: &Owner) -> Self {
        self.request.owner = Some(owner.clone());
        self
    }

    /// Takes the lock over from whoever holds it, at once.
    ///
    /// The guards of the victim are lost with [`Loss::TakenOver`](crate::Loss::TakenOver). Its work may still be
    /// running: this is for an operator who knows better, not for code in a hurry.
    pub fn steal(mut self) -> Self {
        self.request.steal = true;
        self
    }

    /// Acquires from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`Acquire`].
    pub fn block(self) -> Result<Guard, AcquireError> {
        self.into_future().block()
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move {
            let (hold, entry) = self.request.prepare()?;
            wait_for(&hold, entry, Patience::from_wait(self.wait)).await
        })
    }
}

/// One attempt at a lock: options first, then `.await` or [`block`](TryAcquire::block).
///
/// Gives `None` if somebody else holds the lock or is next in line for it.
///
/// # Errors
///
/// [`AcquireError::Failure`] if there was no server to ask; [`AcquireError::Invalid`] if an option or the name
/// cannot be, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// if let Some(guard) = client.lock("nightly-report").try_acquire().await? {
///     // … this one writes the report …
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is acquired until this is awaited or `.block()` is called"]
pub struct TryAcquire {
    request: Request,
}

impl TryAcquire {
    pub(crate) fn new(shared: Arc<Shared>, target: Result<Target, Invalid>) -> Self {
        Self { request: Acquire::new(shared, target).request }
    }

    /// Holds the lock for this long and no longer, however long the work takes: no renewal.
    pub fn lease(mut self, length: Duration) -> Self {
        self.request.lease = Some(length);
        self
    }

    /// Ends the hold after this long even if the guard still lives, for work that may hang.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.request.max_hold = Some(length);
        self
    }

    /// Acquires in the name of `owner`. If that owner holds the lock already, it is entered once more.
    pub fn as_owner(mut self, owner: &Owner) -> Self {
        self.request.owner = Some(owner.clone());
        self
    }

    /// Tries from a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`TryAcquire`].
    pub fn block(self) -> Result<Option<Guard>, AcquireError> {
        self.into_future().block()
    }
}

impl IntoFuture for TryAcquire {
    type Output = Result<Option<Guard>, AcquireError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move {
            let (hold, entry) = self.request.prepare()?;
            match wait_for(&hold, entry, Patience::OneTry).await {
                Ok(guard) => Ok(Some(guard)),
                Err(AcquireError::Timeout { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}
