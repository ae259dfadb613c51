//! An outage of the server, as one wait sees it.

use std::time::Duration;

use crate::env::{self, Instant};
use crate::error::{Rounded, ServerError};

/// The time in which the attempts of one wait have got no usable reply.
#[derive(Debug)]
pub(crate) struct Outage {
    since: Instant,
    /// When the last attempt failed.
    failed: Instant,
    limit: Limit,
    /// The next pause.
    pause: Duration,
    /// Why the last attempt failed.
    reason: String,
}

/// How long a wait goes on in an outage.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// As long as without the outage; no deadline is one that no clock can count, and never comes.
    Wait { begun: Instant, deadline: Option<Instant> },
    /// For this long, because the wait has no limit of its own.
    OutageLimit(Duration),
}

/// The pauses between two attempts during an outage grow from here …
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// … to here.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Outage {
    /// An outage that began then.
    pub(crate) fn since(since: Instant, limit: Limit) -> Self {
        Self { since, failed: since, limit, pause: FIRST_PAUSE, reason: String::new() }
    }

    /// An attempt has failed, for this reason. Returns how long to wait before the next.
    pub(crate) fn failed(&mut self, reason: String) -> Duration {
        (self.reason, self.failed) = (reason, env::now());
        self.next_pause()
    }

    /// How long to wait before the next attempt.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = env::jittered(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Whether it goes on, if the server last replied then.
    pub(crate) fn outlasts(&self, heard: Option<Instant>) -> bool {
        heard.is_none_or(|heard| heard <= self.failed)
    }

    /// The same, and waits for so long; an error if the wait is over then.
    pub(crate) async fn pause_after(&mut self, reason: String) -> Result<(), ServerError> {
        let again = env::now() + self.failed(reason);
        env::sleep_until(self.end().map_or(again, |end| end.min(again))).await;
        if self.end().is_some_and(|end| env::now() >= end) { Err(self.ended_wait()) } else { Ok(()) }
    }

    /// When the wait is over.
    pub(crate) fn end(&self) -> Option<Instant> {
        match self.limit {
            Limit::Wait { deadline, .. } => deadline,
            Limit::OutageLimit(length) => self.since.checked_add(length),
        }
    }

    /// The error of a wait that is over.
    pub(crate) fn ended_wait(&self) -> ServerError {
        let reason = &self.reason;
        ServerError::Unavailable(match self.limit {
            Limit::Wait { begun, .. } => {
                let waited = Rounded(env::now().saturating_duration_since(begun));
                format!("{reason}; the wait of {waited} ended in this outage")
            }
            Limit::OutageLimit(length) => {
                let length = Rounded(length);
                format!("{reason}; without a limit of its own the wait ended after {length} of this outage")
            }
        })
    }
}
