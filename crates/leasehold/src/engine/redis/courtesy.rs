//! Letting others go first.

use std::time::Duration;

use crate::time::Instant;

/// How a client that has given a lock back, and has more who wait for it, lets those elsewhere come first.
///
/// Everybody hears the message that the lock is free at about the same time, and whoever is nearest would get it again and
/// again. So this client stays out for a moment, at every such message, until each of the others that listen can have had
/// one turn.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// Nobody here asks before that.
    until: Instant,
    pause: Duration,
    /// How many messages have come since, the one about our own release included …
    heard: usize,
    /// … and with how many it is over, once it is known how many listen.
    enough: Option<usize>,
}

/// The least that others need to be first, on the same machine …
const SHORTEST: Duration = Duration::from_millis(2);
/// … and the most that anybody gets.
const LONGEST: Duration = Duration::from_millis(50);

impl Courtesy {
    /// A release is on its way, and the answer tells whether anybody else cares.
    pub(super) fn until_answered(now: Instant) -> Self {
        Self { until: now + LONGEST, pause: LONGEST, heard: 0, enough: None }
    }

    /// So many listen, of whom `ours` are our own; and the answer took so long, as it may take others.
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

    /// One more message; false if it is over.
    pub(super) fn hear(&mut self, now: Instant) -> bool {
        self.heard += 1;
        self.until = now + self.pause;
        self.enough.is_none_or(|enough| self.heard < enough)
    }

    /// How long to stay out from now on.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}
