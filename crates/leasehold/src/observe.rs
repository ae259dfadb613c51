//! What is logged of waits and holds.

use std::time::Duration;

use tracing::Span;

use crate::client::Shared;
use crate::engine::{HoldKey, Kind};
use crate::env::{self, Instant};
use crate::error::{AcquireError, Rounded};
use crate::owner::{Owner, OwnerId};

/// From which length on there is a warning, if there is to be one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Warn {
    pub(crate) wait: Option<Duration>,
    pub(crate) hold: Option<Duration>,
}

/// A wait since the first reply that the lock is busy, or that there was none. An acquire that is granted at once is none.
pub(crate) struct ObservedWait<'a> {
    shared: &'a Shared,
    key: &'a HoldKey,
    begun: Instant,
    /// When to warn that it is long; `None` if that was done, or is not wanted.
    warn_at: Option<Instant>,
    /// From here to the end of the wait.
    span: Span,
    is_over: bool,
}

impl<'a> ObservedWait<'a> {
    pub(crate) fn begin(shared: &'a Shared, key: &'a HoldKey) -> Self {
        let HoldKey { resource, owner, .. } = key;
        let span = tracing::debug_span!("wait", lock = %resource, %owner);
        let begun = env::now();
        let warn_at = shared.warn.wait.and_then(|length| begun.checked_add(length));
        if is_counted(key) {
            shared.observer.wait_begins();
        }
        tracing::debug!(parent: &span, lock = %resource, %owner, "a wait begins");
        Self { shared, key, begun, warn_at, span, is_over: false }
    }

    /// How long the waiter may sleep until there is something to log.
    pub(crate) fn longest_sleep(&self) -> Option<Duration> {
        self.warn_at.map(|at| at.saturating_duration_since(env::now()))
    }

    /// Logs that the wait is long, if it is, once.
    pub(crate) fn check(&mut self, holder: Option<OwnerId>) {
        let Some(_) = self.warn_at.take_if(|at| env::now() >= *at) else { return };
        let HoldKey { resource, owner, .. } = self.key;
        let holder = holder.map(|holder| tracing::field::display(Owner::from(holder)));
        let waited = tracing::field::display(Rounded(self.waited()));
        let (label, server) = (&self.shared.label, self.shared.server());
        tracing::warn!(
            parent: &self.span, lock = %resource, %owner, label, server, waited, holder, "a wait is long"
        );
    }

    /// The wait is over, with this outcome. Returns how long it was.
    pub(crate) fn end<T>(&mut self, outcome: &Result<T, AcquireError>) -> Duration {
        self.is_over = true;
        let length = self.waited();
        let (HoldKey { resource, owner, .. }, waited) = (self.key, Rounded(length));
        match outcome {
            Ok(_) => {
                tracing::debug!(parent: &self.span, lock = %resource, %owner, %waited, "a wait ends with the lock");
            }
            Err(error) => {
                tracing::debug!(parent: &self.span, lock = %resource, %owner, %waited, %error, "a wait ends without the lock");
            }
        }
        length
    }

    fn waited(&self) -> Duration {
        env::now().saturating_duration_since(self.begun)
    }
}

/// Whether the waiters are counted. A latch is not acquired.
fn is_counted(key: &HoldKey) -> bool {
    key.resource.kind != Kind::Latch
}

impl Drop for ObservedWait<'_> {
    fn drop(&mut self) {
        if is_counted(self.key) {
            self.shared.observer.wait_ends();
        }
        if !self.is_over {
            let (HoldKey { resource, owner, .. }, waited) = (self.key, Rounded(self.waited()));
            tracing::debug!(parent: &self.span, lock = %resource, %owner, %waited, "a wait is cancelled");
        }
    }
}
