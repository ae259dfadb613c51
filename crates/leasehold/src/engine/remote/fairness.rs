//! After a release, a pause in which other clients can acquire first.

use std::time::Duration;

use crate::env::Instant;

/// How long a client that has released a lock, and has more waiters for it, leaves it to the waiters of other clients.
///
/// The message that the lock is free reaches all clients at about the same time, and the nearest one would acquire it again
/// and again. So this client pauses after every such message, until each of the other listeners can have had one turn.
#[derive(Debug)]
pub(super) struct Fairness {
    /// No waiter of this client asks before that.
    until: Instant,
    pause: Duration,
    /// How many messages have come since, the one about our own release included …
    heard: usize,
    /// … and with how many it is over, once it is known how many clients listen.
    enough: Option<usize>,
}

/// The least that other clients need to be first, on the same machine …
const SHORTEST: Duration = Duration::from_millis(2);
/// … and the most that they get.
const LONGEST: Duration = Duration::from_millis(50);

impl Fairness {
    /// A release is on its way, and its reply tells whether other clients listen.
    pub(super) fn until_answered(now: Instant) -> Self {
        Self { until: now + LONGEST, pause: LONGEST, heard: 0, enough: None }
    }

    /// So many clients listen, of which `ours` are this one; and the reply took so long, as it may take others.
    pub(super) fn answered(
        mut self,
        listeners: usize,
        ours: usize,
        took: Duration,
        now: Instant,
    ) -> Option<Self> {
        self.pause = (took * 4).clamp(SHORTEST, LONGEST);
        self.until = now + self.pause;
        self.enough = Some(listeners);
        (listeners > ours && self.heard < listeners).then_some(self)
    }

    /// One more message; false if the pauses are over.
    pub(super) fn hear(&mut self, now: Instant) -> bool {
        self.heard += 1;
        self.until = now + self.pause;
        self.enough.is_none_or(|enough| self.heard < enough)
    }

    /// How long to pause from now on.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}
