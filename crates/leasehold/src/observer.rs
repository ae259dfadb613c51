//! What a client counts, measures and reports of its locks. All of it is recorded above the engines.
//!
//! Nothing here waits. Events are reported, and lengths recorded, while no mutex of a queue, of the ledger or of the memory engine
//! is held: the task that receives events and a function of the user are foreign code.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use crate::client::Shared;
use crate::engine::HoldKey;
#[cfg(feature = "remote")]
use crate::env;
use crate::error::AcquireError;
use crate::events::{Event, EventLock, Events, Listeners};
use crate::guard::Guard;
use crate::loss::Loss;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::stats::{Counters, Stats};

/// How an acquire has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    /// A single try found the lock busy.
    Busy,
    TimedOut,
    Failed,
    /// Its future was dropped.
    Cancelled,
}

impl Outcome {
    pub(crate) fn of<T>(result: &Result<T, AcquireError>, one_try: bool) -> Self {
        match result {
            Ok(_) => Self::Granted,
            Err(AcquireError::Timeout { .. }) if one_try => Self::Busy,
            Err(AcquireError::Timeout { .. }) => Self::TimedOut,
            Err(_) => Self::Failed,
        }
    }
}

/// The observer of one client.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) counters: Counters,
    listeners: Listeners,
    #[cfg(feature = "metrics")]
    metrics: Metrics,
}

impl Observer {
    pub(crate) fn new(#[cfg(feature = "metrics")] metrics: Metrics) -> Self {
        Self {
            counters: Counters::default(),
            listeners: Listeners::default(),
            #[cfg(feature = "metrics")]
            metrics,
        }
    }

    /// Whether more than [`Stats`] wants to know.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        cfg!(feature = "metrics") || self.listeners.are_there()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.stats()
    }

    pub(crate) fn events(&self) -> Events {
        self.listeners.listen()
    }

    /// Reports an event, if a receiver is there.
    pub(crate) fn report(&self, event: impl FnOnce() -> Event) {
        if self.listeners.are_there() {
            self.listeners.tell(&event());
        }
    }

    /// The client is gone.
    pub(crate) fn close(&self) {
        self.listeners.close();
    }

    /// An acquire was granted, after this wait unless it was granted at once.
    #[inline]
    pub(crate) fn granted(&self, key: &HoldKey, waited: Option<Duration>, is_reentry: bool) {
        self.counters.hot.0.granted.fetch_add(1, Relaxed);
        if let Some(waited) = waited {
            self.counters.granted_after(waited);
        }
        if self.is_watched() {
            self.tell_grant(key, waited.unwrap_or_default(), is_reentry);
        }
    }

    #[cold]
    fn tell_grant(&self, key: &HoldKey, waited: Duration, is_reentry: bool) {
        #[cfg(feature = "metrics")]
        self.metrics.acquired(&key.resource, Outcome::Granted, waited);
        if !is_reentry {
            self.report(|| Event::Granted { lock: EventLock::of(key), waited });
        }
    }

    /// An acquire has ended without the lock.
    #[cold]
    pub(crate) fn not_granted(&self, key: &HoldKey, outcome: Outcome, waited: Duration) {
        match outcome {
            Outcome::Granted => return,
            Outcome::Busy => &self.counters.busy,
            Outcome::TimedOut => &self.counters.timed_out,
            Outcome::Failed => &self.counters.failed,
            Outcome::Cancelled => &self.counters.cancelled,
        }
        .fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.metrics.acquired(&key.resource, outcome, waited);
        if outcome == Outcome::TimedOut {
            self.report(|| Event::TimedOut { lock: EventLock::of(key), waited });
        }
    }

    pub(crate) fn wait_begins(&self) {
        self.counters.waiters.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.metrics.waiters.increment(1);
    }

    pub(crate) fn wait_ends(&self) {
        self.counters.waiters.fetch_sub(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.metrics.waiters.decrement(1);
    }

    /// A hold has ended by a release.
    #[cold]
    pub(crate) fn released(&self, key: &HoldKey, held_for: Option<Duration>) {
        #[cfg(feature = "metrics")]
        self.metrics.held(&key.resource, held_for);
        self.report(|| Event::Released { lock: EventLock::of(key), held_for });
    }

    /// A hold is lost.
    #[cold]
    pub(crate) fn lost(&self, key: &HoldKey, cause: Loss, held_for: Option<Duration>) {
        self.counters.losses[cause.number()].fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        {
            self.metrics.lost(&key.resource, cause);
            self.metrics.held(&key.resource, held_for);
        }
        self.report(|| Event::Lost { lock: EventLock::of(key), cause, held_for });
    }

    /// A hold was handed over to the next waiter of this client.
    pub(crate) fn handed_over(&self) {
        self.counters.handovers.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.metrics.handovers.increment(1);
    }

    /// A request is sent.
    #[cfg(feature = "remote")]
    pub(crate) fn requests(&self) {
        self.counters.requests.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.metrics.requests.increment(1);
    }

    /// The lease of a hold was renewed. `left`: how long it would have lasted without.
    #[cfg(feature = "remote")]
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "only a histogram has a place for it")
    )]
    pub(crate) fn renewed(&self, left: impl FnOnce() -> Duration) {
        self.counters.renewals.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.metrics.renewal_margin.record(left());
    }

    /// There is a reply to a renewal that was sent at `begun`.
    #[cfg(feature = "remote")]
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, clippy::unused_self, reason = "only a histogram has a place for it")
    )]
    pub(crate) fn renewal_replied(&self, begun: env::Instant) {
        #[cfg(feature = "metrics")]
        self.metrics.renewal.record(env::now().saturating_duration_since(begun));
    }

    /// The server is connected: again after an outage of this length, or for the first time.
    #[cfg(feature = "remote")]
    pub(crate) fn connected(&self, server: &str, after: Option<Duration>) {
        if after.is_some() {
            self.counters.reconnects.fetch_add(1, Relaxed);
            #[cfg(feature = "metrics")]
            self.metrics.reconnects.increment(1);
        }
        self.report(|| Event::Connected { server: server.into(), after });
    }

    pub(crate) fn guard_made(&self) {
        self.counters.hot.0.guards.fetch_add(1, SeqCst);
        #[cfg(feature = "metrics")]
        self.metrics.held.increment(1);
    }

    /// True if it was the last one.
    pub(crate) fn guard_gone(&self) -> bool {
        #[cfg(feature = "metrics")]
        self.metrics.held.decrement(1);
        self.counters.hot.0.guards.fetch_sub(1, SeqCst) == 1
    }
}

/// An acquire that makes no use of the waiting loop, or several. It is cancelled if it is dropped before it has ended.
pub(crate) struct Acquiring {
    shared: Arc<Shared>,
    key: HoldKey,
    is_over: bool,
}

impl Acquiring {
    pub(crate) fn new(shared: &Arc<Shared>, key: &HoldKey) -> Self {
        Self { shared: Arc::clone(shared), key: key.clone(), is_over: false }
    }

    /// It has ended with these guards, after this wait unless they were granted at once.
    pub(crate) fn granted(mut self, guards: &[Guard], waited: Option<Duration>) {
        self.is_over = true;
        for guard in guards {
            guard.count(waited);
        }
    }

    /// It has ended without a guard, because of this hold.
    pub(crate) fn not_granted(mut self, key: &HoldKey, outcome: Outcome, waited: Option<Duration>) {
        self.is_over = true;
        self.shared.observer.not_granted(key, outcome, waited.unwrap_or_default());
    }

    /// Others count in its place.
    pub(crate) fn forget(mut self) {
        self.is_over = true;
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.observer.not_granted(&self.key, Outcome::Cancelled, Duration::ZERO);
        }
    }
}
