//! The limits of local hand-over: how long, and to how many tasks of one client.

use std::time::Duration;

use crate::env::{self, Instant};

/// How long a hold may be handed over since the server granted it.
const LONGEST: Duration = Duration::from_millis(50);
/// How many more tasks may get it after the first, however few wait …
const FEWEST: u16 = 16;
/// … and however many. In between, as many as wait at its first hand-over.
const MOST: u16 = 256;

/// The hand-overs of one hold since the server granted it.
#[derive(Debug)]
pub(crate) struct Budget {
    begun: Instant,
    /// How many more tasks may get it; not set before the first hand-over.
    left: Option<u16>,
}

impl Budget {
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, left: None }
    }

    /// Whether the hold was not handed over yet.
    pub(crate) fn is_new(&self) -> bool {
        self.left.is_none()
    }

    pub(crate) fn end(&self) -> Instant {
        self.begun + LONGEST * if mutation!("endless-hand-over") { 100 } else { 1 }
    }

    /// Whether one more of `waiting` tasks may get it.
    pub(crate) fn one_more(&mut self, waiting: usize) -> bool {
        if waiting == 0 || env::now() >= self.end() {
            return false;
        }
        let waiting = u16::try_from(waiting).unwrap_or(MOST);
        let left = self.left.get_or_insert(waiting.clamp(FEWEST, MOST));
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}
