//! What a client has counted so far.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use crate::cache_padded::CachePadded;
use crate::loss::Loss;

/// What a client has counted since it was made: [`Client::stats`](crate::Client::stats).
///
/// An *acquire* is a call of `acquire` or `try_acquire` on a lock, a fair, spin or read-write lock or a semaphore, a re-entry, an
/// upgrade or a downgrade, from its first poll on; it ends in one of five ways, which are the first five numbers. A multi lock counts as
/// each of its locks: one acquire for each if they are granted, and one for that which was busy otherwise. Where they are acquired one by
/// one, those before the busy one count as granted, too: on `file:`, as an owner, and if they are not all plain locks of one client. A
/// quorum lock counts at each of its clients. A call that is refused before anything is attempted, such as one with an invalid name, is
/// none, and neither is a wait for a latch.
///
/// A *wait* begins with the first reply that the lock is busy, or that the server cannot be reached. An acquire that is granted at once
/// has waited for no time.
///
/// All numbers are of this client and all of its clones. They are read one after the other: while locks are acquired meanwhile, one may
/// be ahead of another.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let lock = client.lock("coupon:42");
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
///
/// let stats = client.stats();
/// assert_eq!((stats.granted, stats.busy, stats.held), (1, 1, 1));
/// println!("{} time-outs, {:.1} % of the waits", stats.timed_out, stats.timeout_share() * 100.0);
/// println!("a lock is acquired after {:?} on average", stats.mean_wait());
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Acquires that ended with the lock.
    pub granted: u64,
    /// Single tries, as of `try_acquire`, that found the lock busy.
    pub busy: u64,
    /// Acquires whose wait was over while the lock was still busy: the number of time-outs. A wait that ends in an outage has failed.
    pub timed_out: u64,
    /// Acquires that ended with another error, such as a server that cannot be reached, or a client that is shut down.
    pub failed: u64,
    /// Acquires that were dropped or interrupted before they ended.
    pub cancelled: u64,
    /// How many of those that were [`granted`](Self::granted) had to wait.
    pub granted_after_wait: u64,
    /// How long those have waited, all together.
    pub waited: Duration,
    /// How many acquires wait now.
    pub waiters: usize,
    /// How many guards there are now: one for each hold, and one for each re-entry. A guard whose lock is lost is among them until it is
    /// dropped, because the work under it may still go on.
    pub held: usize,
    /// How many holds were handed over to the next waiter of this client without a request.
    pub handovers: u64,
    /// How often the lease of a hold was renewed. Holds are renewed in batches, so it is not a number of requests.
    pub renewals: u64,
    /// How often the server was connected again after an outage.
    pub reconnects: u64,
    /// How many requests about locks were sent to the server, or made on files; none in memory. A batch of renewals is one. What
    /// connections need for themselves, such as subscriptions and heartbeats, is not counted.
    pub requests: u64,
    losses: [u64; Loss::ALL.len()],
}

impl Stats {
    /// How many holds were lost: each is counted once, when its loss is noticed. That is when it happens on a server, and in memory when
    /// its guard is next used, waited for, released or dropped. A hold that is found gone by its own release counts, too.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.iter().sum()
    }

    /// How many holds were lost for this cause.
    #[must_use]
    pub fn losses_by(&self, cause: Loss) -> u64 {
        self.losses[cause.number()]
    }

    /// The share of waits that timed out, from 0 to 1: of all acquires that ended with the lock or with a time-out, those that
    /// timed out. Zero if there was none.
    ///
    /// If it is high while [`mean_wait`](Self::mean_wait) is far below the usual `wait`, a few holds are too long: see
    /// [`warn_hold`](crate::ConnectOptions::warn_hold). If both are high, the lock is held for most of the time.
    #[must_use]
    pub fn timeout_share(&self) -> f64 {
        match self.granted + self.timed_out {
            0 => 0.0,
            #[expect(clippy::cast_precision_loss, reason = "a share of so many needs no more digits")]
            ended => self.timed_out as f64 / ended as f64,
        }
    }

    /// How long an acquire that ended with the lock has waited for it on average. Acquires that were granted at once count as
    /// zero; the mean of the others is [`waited`](Self::waited) by [`granted_after_wait`](Self::granted_after_wait).
    #[must_use]
    pub fn mean_wait(&self) -> Duration {
        let nanos = self.waited.as_nanos() / u128::from(self.granted.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// What every acquire and release change: in cache lines of their own, together, so that a thread fetches them once.
    pub(crate) hot: CachePadded<Hot>,
    pub(crate) busy: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    granted_after_wait: AtomicU64,
    /// In microseconds: a thousand waiters reach the end of 64 bits after five hundred years.
    waited: AtomicU64,
    pub(crate) waiters: AtomicUsize,
    pub(crate) handovers: AtomicU64,
    pub(crate) renewals: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) losses: [AtomicU64; Loss::ALL.len()],
}

#[derive(Debug, Default)]
pub(crate) struct Hot {
    pub(crate) guards: AtomicUsize,
    pub(crate) granted: AtomicU64,
}

impl Counters {
    pub(crate) fn granted_after(&self, waited: Duration) {
        self.granted_after_wait.fetch_add(1, Relaxed);
        self.waited.fetch_add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many guards there are.
    pub(crate) fn guards(&self) -> usize {
        self.hot.0.guards.load(SeqCst)
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            granted: self.hot.0.granted.load(Relaxed),
            busy: self.busy.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            failed: self.failed.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            granted_after_wait: self.granted_after_wait.load(Relaxed),
            waited: Duration::from_micros(self.waited.load(Relaxed)),
            waiters: self.waiters.load(Relaxed),
            held: self.guards(),
            handovers: self.handovers.load(Relaxed),
            renewals: self.renewals.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            requests: self.requests.load(Relaxed),
            losses: self.losses.each_ref().map(|count| count.load(Relaxed)),
        }
    }
}
