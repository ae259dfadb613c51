//! How far a hold may go from task to task of one client.

use std::time::Duration;

use crate::env::{self, Instant};

/// How long a hold may go round since the server gave it.
const LONGEST: Duration = Duration::from_millis(50);
/// How many tasks may have it after the first, however few wait …
const FEWEST: u16 = 16;
/// … and however many. In between, as many as wait when it is first passed on.
const MOST: u16 = 256;

/// What one hold has been through since the server gave it.
#[derive(Debug)]
pub(crate) struct Budget {
    begun: Instant,
    /// How many more tasks may have it; not known before the first.
    left: Option<u16>,
}

impl Budget {
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, left: None }
    }

    /// Whether the hold was not passed on yet.
    pub(crate) fn is_new(&self) -> bool {
        self.left.is_none()
    }

    pub(crate) fn end(&self) -> Instant {
        self.begun + LONGEST * if mutation!("endless-hand-over") { 100 } else { 1 }
    }

    /// Whether one more task may have it, of so many that wait.
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
