//! The count-down latch.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::acquire::HandleOptions;
use crate::client::Shared;
use crate::counter::Counter;
use crate::engine::{Adjust, Busy, HoldKey, Resource, Ticket};
use crate::env;
use crate::error::{
    AcquireError, ChangeError, Classified as _, InvalidRequestError, QueryError, Subject, WaitError,
};
use crate::hold::Tried;
use crate::interrupt::Interrupt;
use crate::operation::Operation;
use crate::owner::OwnerId;
use crate::waiting::{Awaited, Patience, wait};

/// A count-down latch by name: waiters are released when its count is zero. Redisson's `RCountDownLatch`.
///
/// It is open when its count is zero, was never set, or was deleted; then waiters continue at once. It can be set again
/// after it was opened.
///
/// | Redisson | here |
/// |---|---|
/// | `trySetCount(n)` | `try_set_count(n)` |
/// | `countDown()`, `getCount()` | `count_down()`, `count()` |
/// | `await()`, `await(limit)` | `opened()`, `opened().wait(limit)` |
/// | `delete()` | `delete()`, which here releases the waiters |
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let parts = client.latch("parts of the report");
/// parts.try_set_count(2).await?;
/// for _ in 0..2 {
///     let parts = parts.clone();
///     tokio::spawn(async move { parts.count_down().await }); // from any machine
/// }
/// parts.opened().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RCountDownLatch")]
#[derive(Debug, Clone)]
pub struct Latch {
    counter: Counter,
}

impl Latch {
    pub(crate) fn new(shared: Arc<Shared>, resource: Result<Resource, InvalidRequestError>) -> Self {
        Self { counter: Counter { shared, resource } }
    }

    /// Sets the count; false if it is set already.
    ///
    /// A latch set to zero is open, and stays set until it is counted down once more, or deleted.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Unknown`] if there was no reply for the client's
    /// [`outage_limit`](crate::ConnectOptions::outage_limit); [`ChangeError::Server`] or [`ChangeError::Invalid`] if nothing
    /// was changed.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is executed even if the future is dropped, and never twice. The same holds for every change
    /// below.
    #[doc(alias = "trySetCount")]
    pub fn try_set_count(&self, count: u32) -> Operation<Result<bool, ChangeError>> {
        self.counter.change(Ok(Adjust::TrySet { count, ttl: None }), |set| set != 0)
    }

    /// Counts down by one, and returns the new count. At zero all waiters are released; it never goes below zero.
    ///
    /// # Errors
    ///
    /// As for [`try_set_count`](Latch::try_set_count).
    #[doc(alias = "countDown")]
    pub fn count_down(&self) -> Operation<Result<u64, ChangeError>> {
        self.counter.change(Ok(Adjust::CountDown), i64::unsigned_abs)
    }

    /// The count: zero when it is open.
    ///
    /// # Errors
    ///
    /// [`QueryError::Server`] if there was no usable reply; [`QueryError::Invalid`] if the name is invalid.
    ///
    /// # Cancel safety
    ///
    /// A query changes nothing.
    #[doc(alias = "getCount")]
    pub fn count(&self) -> Operation<Result<u64, QueryError>> {
        self.counter.query(Adjust::Count, |count| u64::try_from(count).unwrap_or(0))
    }

    /// Waits until it is open. See [`LatchOpened`].
    #[doc(alias = "await")]
    pub fn opened(&self) -> LatchOpened {
        LatchOpened { counter: self.counter.clone(), limit: None }
    }

    /// Removes the latch; false if there was none. All waiters of this library are released; waiters of Redisson are not.
    ///
    /// # Errors
    ///
    /// As for [`try_set_count`](Latch::try_set_count).
    pub fn delete(&self) -> Operation<Result<bool, ChangeError>> {
        self.counter.change(Ok(Adjust::Delete), |existed| existed != 0)
    }
}

/// A wait for a latch: options first, then `.await` or [`block`](LatchOpened::block).
///
/// # Errors
///
/// [`WaitError::Timeout`] if it was still closed at the end of the [`wait`](LatchOpened::wait); [`WaitError::Server`] if the
/// server gave no usable reply; [`WaitError::Invalid`] if the name is invalid, or the client is shut down.
///
/// # Cancel safety
///
/// Dropping the future at any point leaves nothing behind.
///
/// # When the server is unreachable
///
/// It waits through the outage, as [`Acquire`](crate::Acquire) does.
#[derive(Debug, Clone)]
#[must_use = "nothing is waited for until this is awaited or `.block()` is called"]
pub struct LatchOpened {
    counter: Counter,
    limit: Option<Duration>,
}

impl LatchOpened {
    /// Waits at most this long, then gives up with [`WaitError::Timeout`]. Zero: one check.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Waits on a plain thread.
    ///
    /// # Errors
    ///
    /// As for `.await`, see [`LatchOpened`].
    #[track_caller]
    pub fn block(self) -> Result<(), WaitError> {
        self.into_future().block()
    }

    /// The same, until `interrupt` is triggered.
    ///
    /// # Errors
    ///
    /// [`WaitError::Interrupted`] if it was triggered before; nothing is left behind then. For the rest see [`LatchOpened`].
    #[track_caller]
    pub fn block_until(self, interrupt: &Interrupt) -> Result<(), WaitError> {
        let Counter { shared, resource } = &self.counter;
        let subject = resource.as_ref().map(|resource| shared.subject(resource)).unwrap_or_default();
        let begun = env::now();
        self.into_future().block_until(interrupt).unwrap_or_else(|| {
            Err(WaitError::Interrupted { waited: env::now().saturating_duration_since(begun), subject })
        })
    }
}

impl IntoFuture for LatchOpened {
    type Output = Result<(), WaitError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move {
            let Counter { shared, resource } = &self.counter;
            let (resource, owner) = (resource.clone()?, OwnerId::fresh(shared.id, 1));
            let key = HoldKey { resource, owner, amount: 1 };
            let opening = Opening { counter: &self.counter, key, left: AtomicU64::new(0) };
            let opened = wait(&opening, Patience::from_wait(self.limit), &HandleOptions::DEFAULT).await;
            opened.map_err(|error| opening.failed(error).about(&shared.subject(&opening.key.resource)))
        })
    }
}

/// The opening of a latch.
struct Opening<'a> {
    counter: &'a Counter,
    key: HoldKey,
    /// The count at the last attempt; zero if none had a reply.
    left: AtomicU64,
}

impl Opening<'_> {
    fn failed(&self, error: AcquireError) -> WaitError {
        let subject = Subject::default();
        match error {
            AcquireError::Timeout { waited, .. } => {
                let left = Some(self.left.load(Ordering::Relaxed)).filter(|left| *left > 0);
                WaitError::Timeout { waited, left, subject }
            }
            AcquireError::Server { cause, .. } => WaitError::Server { cause, subject },
            AcquireError::Invalid { cause, .. } => WaitError::Invalid { cause, subject },
            AcquireError::Interrupted { waited, .. } => WaitError::Interrupted { waited, subject },
            AcquireError::Lost { .. }
            | AcquireError::OtherReaders { .. }
            | AcquireError::NoPermitsSet { .. } => {
                unreachable!("a latch is not held")
            }
        }
    }
}

impl Awaited for Opening<'_> {
    type Got = ();

    fn shared(&self) -> &Shared {
        &self.counter.shared
    }

    fn key(&self) -> &HoldKey {
        &self.key
    }

    async fn attempt(&self, _turn: Option<Ticket>) -> Result<Tried<()>, AcquireError> {
        match self.counter.query(Adjust::Count, |count| u64::try_from(count).unwrap_or(0)).await {
            Ok(0) => Ok(Tried::Granted(())),
            Ok(left) => {
                self.left.store(left, Ordering::Relaxed);
                Ok(Tried::Busy(Busy::default()))
            }
            Err(QueryError::Server { cause, .. }) => Err(cause.into()),
            Err(QueryError::Invalid { cause, .. }) => Err(cause.into()),
        }
    }
}
