//! Holds that go from one guard to the next inside this client, without the server's hearing of it.
//!
//! On the server the hold stays where it is, under the same owner, and its lease goes on. So it may not go round here for
//! ever while others wait elsewhere: a [`Tenure`] ends after so many guards or so much time, and then the release is real.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::{Aftermath, Engine, Spot, Target, Ticket};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::term::Term;
use crate::time::{self, Instant};

/// How long a hold may go round since the server gave it.
const LONGEST: Duration = Duration::from_millis(50);
/// How many may have it after the first, however few wait …
const FEWEST: u16 = 16;
/// … and however many. In between, everybody who waits when it is first passed on.
const MOST: u16 = 256;

/// What one hold has been through since the server gave it.
#[derive(Debug)]
pub(crate) struct Tenure {
    begun: Instant,
    /// How many more may have it; not known before the first.
    left: Option<u16>,
}

impl Tenure {
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, left: None }
    }

    fn end(&self) -> Instant {
        self.begun + LONGEST
    }

    /// Whether one more may have it, of so many who wait.
    fn one_more(&mut self, waiting: usize) -> bool {
        if waiting == 0 || time::now() >= self.end() {
            return false;
        }
        let waiting = u16::try_from(waiting).unwrap_or(MOST);
        let left = self.left.get_or_insert(waiting.clamp(FEWEST, MOST));
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

/// Guards on their way from one to the next: each is for the head of the line of its target.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    passing: Mutex<HashMap<Target, Guard>>,
}

impl Relay {
    /// Gives a hold whose last guard is gone to the next in line of this client, if there is one that can have it as it
    /// is. The hold then goes on under the term that this returns.
    pub(crate) fn pass(&self, hold: &Arc<Hold>, tenure: &mut Tenure, term: &Term) -> Option<Arc<Term>> {
        let engine = &hold.shared.engine;
        let is_first = tenure.left.is_none();
        if hold.shared.check_open().is_err() || !tenure.one_more(engine.heirs(&hold.spot)) {
            return None;
        }
        let next = term.next();
        if !engine.entrust(&hold.spot, &next) {
            return None;
        }
        if is_first {
            recall_at(tenure.end(), hold);
        }
        let guard = Guard::new(Arc::clone(hold), Arc::clone(&next), None);
        let lost = self.passing().insert(hold.spot.target.clone(), guard);
        // Nobody came for it before it was lost. It is given back now that the mutex is free.
        drop(lost);
        engine.call_heir(&hold.spot);
        // Whoever was to have it may have left before it was there.
        self.settle(engine.as_ref(), &hold.spot);
        if time::now() >= tenure.end() {
            // The timer may have looked before the guard was there, and looks once: a waiter that is never polled again
            // would keep the hold for ever.
            self.recall(hold);
        }
        Some(next)
    }

    /// What was passed to the waiter of this ticket, if it is its turn. Only a waiter that gets it leaves the line: one
    /// that left and got nothing would wait where no wake-up comes.
    pub(crate) fn take(&self, engine: &dyn Engine, spot: &Spot, ticket: Ticket) -> Option<Guard> {
        let mut passing = self.passing();
        let is_held = passing.get(&spot.target).map(Guard::is_held)?;
        let inherits = if is_held { engine.inherits(spot, ticket) } else { None };
        let is_due = !is_held || inherits.is_some();
        let guard = if is_due { passing.remove(&spot.target) } else { None };
        drop(passing);
        // Both only now that the mutex is free: one that was lost on its way is given back by being dropped.
        inherits.into_iter().for_each(Aftermath::run);
        guard.filter(|_| is_held)
    }

    /// Gives back what was passed to somebody who has left, if nobody can have it now.
    pub(crate) fn settle(&self, engine: &dyn Engine, spot: &Spot) {
        let mut passing = self.passing();
        let stranded = passing.contains_key(&spot.target) && engine.heirs(spot) == 0;
        let guard = if stranded { passing.remove(&spot.target) } else { None };
        drop(passing);
        // Not while the lock is held: this may pass on something else.
        drop(guard);
    }

    /// Gives back what was passed of this hold and nobody has come for.
    fn recall(&self, hold: &Arc<Hold>) {
        let mut passing = self.passing();
        let is_here = passing.get(&hold.spot.target).is_some_and(|guard| guard.is_of(hold));
        let guard = if is_here { passing.remove(&hold.spot.target) } else { None };
        drop(passing);
        drop(guard);
    }

    fn passing(&self) -> MutexGuard<'_, HashMap<Target, Guard>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that nothing of this hold is on its way any more at that time, even if nobody who waits is ever polled again.
fn recall_at(end: Instant, hold: &Arc<Hold>) {
    let hold = Arc::downgrade(hold);
    time::spawn_apart(async move {
        time::sleep_until(end).await;
        if let Some(hold) = hold.upgrade() {
            hold.shared.relay.recall(&hold);
        }
    });
}
