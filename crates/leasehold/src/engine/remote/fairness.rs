//! The fairness pause: after a release, other clients can acquire first.

use std::time::Duration;

use crate::env::Instant;

/// How long a client that has released a lock, and has more waiters for it, leaves it to the waiters of other clients.
///
/// The message that the lock is free reaches all clients at about the same time, and the nearest one would acquire it again
/// and again. So this client pauses after every such message, until each of the other subscribers can have had one turn.
#[derive(Debug)]
pub(super) struct Fairness {
    /// No waiter of this client sends a request before that.
    until: Instant,
    pause: Duration,
    /// How many messages have arrived since, the one about our own release included …
    messages: usize,
    /// … and after how many the pauses are over, once the number of subscribed clients is known.
    enough: Option<usize>,
}

/// The least time that other clients get to acquire first, on the same machine …
const SHORTEST: Duration = Duration::from_millis(2);
/// … and the most.
const LONGEST: Duration = Duration::from_millis(50);

impl Fairness {
    /// A release is in flight, and its reply contains whether other clients are subscribed.
    pub(super) fn until_reply(now: Instant) -> Self {
        Self { until: now + LONGEST, pause: LONGEST, messages: 0, enough: None }
    }

    /// The reply: so many clients are subscribed, of which `ours` are this one. It took so long, as it may for other clients.
    pub(super) fn replied(
        mut self,
        subscribers: usize,
        ours: usize,
        took: Duration,
        now: Instant,
    ) -> Option<Self> {
        self.pause = (took * 4).clamp(SHORTEST, LONGEST);
        self.until = now + self.pause;
        self.enough = Some(subscribers);
        (subscribers > ours && self.messages < subscribers).then_some(self)
    }

    /// One more message; false if the pauses are over.
    pub(super) fn on_message(&mut self, now: Instant) -> bool {
        self.messages += 1;
        self.until = now + self.pause;
        self.enough.is_none_or(|enough| self.messages < enough)
    }

    /// How long to pause from now on.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}
