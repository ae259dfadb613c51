//! When the next connection is opened, and how failed attempts are logged.

use std::fmt;
use std::time::{Duration, Instant};

use crate::env::jittered;
use crate::error::ServerError;

/// The pauses between connections to one address.
///
/// A connection that has lasted is replaced at once: its holds may be about to expire. One that ends soon is replaced after a
/// short pause. While no connection can be opened, the pauses grow.
#[derive(Debug, Default)]
pub(crate) struct Reconnect {
    pause: Duration,
    /// When the last connection was opened, if it was.
    opened: Option<Instant>,
    /// When a server last refused a write because it is a replica.
    demoted: Option<Instant>,
    /// The next connection has to wait for this.
    least: Duration,
    /// Why there is no connection.
    reason: Option<ServerError>,
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The least time between two connections that are replaced because of this.
const DEMOTION: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lasts this long counts as useful. So a server that accepts connections and closes them at once is not
/// retried without a pause.
const OF_USE: Duration = Duration::from_millis(100);

impl Reconnect {
    /// How long to wait before the next connection is opened.
    pub(crate) fn pause(&mut self) -> Duration {
        if let Some(opened) = self.opened.take() {
            self.pause = if opened.elapsed() >= OF_USE { Duration::ZERO } else { FIRST_PAUSE };
        }
        let pause = jittered(self.pause).max(std::mem::take(&mut self.least));
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        pause
    }

    /// The last connection was ended because its server accepts no writes any more. The next one may lead to the new primary;
    /// but a server that is one only by its own account is not tried again and again.
    pub(crate) fn demoted(&mut self) {
        let now = now();
        if let Some(before) = self.demoted.replace(now) {
            self.least = DEMOTION.saturating_sub(now - before);
        }
    }

    /// A connection was opened.
    pub(crate) fn opened(&mut self) {
        self.opened = Some(now());
        self.reason = None;
    }

    /// The connection for this `purpose` could not be opened. Each new reason is logged as a warning once.
    pub(crate) fn failed(&mut self, server: &impl fmt::Display, purpose: &str, failure: &ServerError) {
        if self.reason.as_ref() == Some(failure) {
            tracing::debug!(%server, error = %failure, "connecting for {purpose} failed again and is retried");
        } else {
            tracing::warn!(%server, error = %failure, "connecting for {purpose} failed and is retried");
            self.reason = Some(failure.clone());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "connections live by the real clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reconnection_is_immediate_and_later_reconnections_follow_growing_pauses() {
        let mut reconnect = Reconnect::default();
        assert_eq!(reconnect.pause(), Duration::ZERO);
        let mut longest = FIRST_PAUSE;
        for _ in 0..10 {
            let pause = reconnect.pause();
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
            longest = (longest * 2).min(LONGEST_PAUSE);
        }
        reconnect.opened();
        assert!((FIRST_PAUSE / 2..=FIRST_PAUSE).contains(&reconnect.pause()), "it did not last");
        reconnect.opened = now().checked_sub(OF_USE);
        assert_eq!(reconnect.pause(), Duration::ZERO, "it was of use");
        assert!(reconnect.pause() > Duration::ZERO);
    }

    #[test]
    fn a_connection_is_replaced_at_most_once_a_second_because_its_server_is_a_replica() {
        let mut reconnect = Reconnect::default();
        reconnect.demoted();
        assert_eq!(reconnect.pause(), Duration::ZERO, "the first at once");
        reconnect.opened = now().checked_sub(OF_USE);
        reconnect.demoted();
        assert!(reconnect.pause() > DEMOTION / 2);
        reconnect.opened = now().checked_sub(OF_USE);
        reconnect.demoted = now().checked_sub(DEMOTION);
        reconnect.demoted();
        assert_eq!(reconnect.pause(), Duration::ZERO, "it was long ago");
    }
}
