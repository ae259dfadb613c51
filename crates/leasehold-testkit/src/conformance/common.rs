//! Shared by many cases: lengths of time, and other waiters for the same lock.

use std::future::{Future, IntoFuture, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::{AcquireError, Client, ConnectOptions, Guard, Lock, Operation, ReleaseError};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::{Failed, Outcome};

/// Long enough for pending work to happen, short against every lease.
pub(super) const MOMENT: Duration = Duration::from_millis(50);
/// A lease that expires in the course of a case.
pub(super) const LEASE: Duration = Duration::from_millis(500);
/// A lease that does not.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(60);
/// A watchdog time-out that expires in the course of a case without renewal.
pub(super) const WATCHDOG: Duration = Duration::from_secs(1);
/// Not a speed limit: after this time an event counts as never. It is shorter than the time after which a waiter polls by itself,
/// so a missing wake-up counts as never, too.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The option of a client whose locks expire soon after they are not renewed any more.
pub(super) fn short_watchdog(connect: ConnectOptions) -> ConnectOptions {
    connect.watchdog(WATCHDOG)
}

/// Whether `left` is what a machine that is not very slow leaves of `all`.
pub(super) fn is_nearly(left: Duration, all: Duration) -> bool {
    left <= all && left + Duration::from_secs(5) > all
}

/// The output of `work`, which has to end.
#[track_caller]
pub(super) fn soon<F: IntoFuture>(work: F) -> impl Future<Output = F::Output> {
    let at = Location::caller();
    async move {
        let done = timeout(PATIENCE, work).await;
        done.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: what is awaited at {at}"))
    }
}

/// Whether `work` stays pending for this long.
pub(super) async fn is_pending_for<F: Future>(length: Duration, work: F) -> bool {
    timeout(length, work).await.is_err()
}

/// Polls `work` so many times, each time when it was woken, and drops it; whether it was still pending by then.
pub(super) async fn is_pending_after(polls: usize, work: impl Future) -> bool {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(true);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(false),
            // Dropped at once after its last poll, and not when it is woken for another.
            Poll::Pending if left == 0 => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Acquires a lock that is free.
pub(super) async fn taken(lock: &Lock) -> Result<Guard, AcquireError> {
    Ok(lock.try_acquire().await?.expect("the lock is free"))
}

/// Whether a lock can be acquired at once. It is released again.
pub(super) async fn is_free_for(lock: &Lock) -> Result<bool, Failed> {
    let Some(guard) = lock.try_acquire().await? else { return Ok(false) };
    guard.release().await?;
    Ok(true)
}

/// Runs `work` on a plain thread outside of the runtime, which thus uses the system's clock.
pub(super) async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // A blocking task also keeps a paused clock from advancing meanwhile.
    let joined = tokio::task::spawn_blocking(|| std::thread::spawn(work).join());
    joined.await.expect("joining does not panic").expect("the thread does not panic")
}

/// Returns when so many acquires of a client wait.
pub(super) async fn until_waiting(client: &Client, waiters: usize) {
    let waiting = async {
        while client.stats().waiters != waiters {
            sleep(Duration::from_millis(1)).await;
        }
    };
    soon(waiting).await;
}

/// Waits for every task to succeed. Each may take its time, but not all of them together.
pub(super) async fn all_done(mut tasks: JoinSet<Outcome>) -> Outcome {
    while let Some(done) = soon(tasks.join_next()).await {
        done??;
    }
    Ok(())
}

/// A waiter for a lock in a task of its own.
#[derive(Debug)]
pub(super) struct Waiter<G = Guard>(JoinHandle<Result<G, AcquireError>>);

impl<G: Send + 'static> Waiter<G> {
    /// Begins to wait, with a moment to be queued.
    pub(super) async fn begin(
        acquire: impl IntoFuture<Output = Result<G, AcquireError>, IntoFuture: Send + 'static>,
    ) -> Self {
        let waiter = Self(tokio::spawn(acquire.into_future()));
        sleep(MOMENT).await;
        waiter
    }

    /// Whether it waits now.
    pub(super) fn waits(&self) -> bool {
        !self.0.is_finished()
    }

    /// Its outcome, which has to arrive at some time.
    pub(super) async fn outcome(self) -> Result<G, AcquireError> {
        soon(self.0).await.expect("a waiter does not panic")
    }

    /// Cancels it in the middle of its wait, at once.
    pub(super) fn cancel(&self) {
        self.0.abort();
    }

    /// Waits until it has ended.
    pub(super) async fn gone(self) -> Result<Result<G, AcquireError>, JoinError> {
        soon(self.0).await
    }
}

/// A thousand times: two permits are released while the waiters for one and for both of them are cancelled.
pub(super) async fn release_and_cancel<G: Send + 'static>(
    hold_both: impl Fn() -> Operation<Result<G, AcquireError>>,
    wait_for: impl Fn(u32) -> Operation<Result<G, AcquireError>>,
    release: impl Fn(G) -> Operation<Result<(), ReleaseError>>,
) -> Outcome {
    for round in 0..1000_u64 {
        let held = hold_both().await?;
        let waiters = [1, 2].map(|permits| tokio::spawn(wait_for(permits)));
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        let released = tokio::spawn(release(held));
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        for waiter in &waiters {
            waiter.abort();
        }
        soon(released).await??;
        for waiter in waiters {
            drop(soon(waiter).await);
        }
    }
    Ok(())
}
