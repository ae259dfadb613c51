//! Holds that are handed over from one guard to the next inside this client, without a request.
//!
//! On the server the hold stays as it is, under the same owner, and its lease continues. So it may not be handed over here for
//! ever while waiters of other clients wait: a [`Budget`] ends after so many guards or so much time, and then the release is
//! sent.

use std::collections::HashMap;
use std::sync::Arc;

use super::io::Io;
use super::queues::Queues;
use super::renewal::Renewal;
use crate::engine::{Aftermath, Handover, Spot, Target, Ticket};
use crate::env::{self, Instant};
use crate::guard::Guard;
use crate::hold::{Budget, Hold};
use crate::mutex::Mutex;
use crate::term::Term;

/// Guards that are being handed over: each is for the front waiter of its target.
#[derive(Debug)]
pub(super) struct LocalHandover {
    // Invariant: guards are dropped when the mutex is free again, because that may hand over another hold.
    passing: Mutex<HashMap<Target, Guard>>,
    queues: Arc<Queues>,
    renewal: Arc<Renewal>,
    io: Io,
}

impl LocalHandover {
    pub(super) fn new(queues: Arc<Queues>, renewal: Arc<Renewal>, io: Io) -> Self {
        Self { passing: Mutex::default(), queues, renewal, io }
    }

    /// Ends the hand-over of this hold at that time, even if no waiter is ever polled again.
    fn recall_at(&self, end: Instant, hold: &Arc<Hold>) {
        let hold = Arc::downgrade(hold);
        self.io.spawn(async move {
            env::sleep_until(end).await;
            if let Some(hold) = hold.upgrade()
                && let Some(handover) = hold.shared.engine.handover()
            {
                handover.recall(&hold);
            }
        });
    }
}

impl Handover for LocalHandover {
    fn pass(&self, hold: &Arc<Hold>, budget: &mut Budget, term: &Term) -> Option<Arc<Term>> {
        let is_first = budget.is_new();
        if hold.shared.check_open().is_err() || !budget.one_more(self.queues.heirs(&hold.spot)) {
            return None;
        }
        let next = term.next();
        if !self.renewal.rebind(&hold.spot, &next) {
            return None;
        }
        if is_first && !mutation!("hand-over-not-recalled") {
            self.recall_at(budget.end(), hold);
        }
        let guard = Guard::new(Arc::clone(hold), Arc::clone(&next), None);
        let lost = self.passing.lock().insert(hold.spot.target.clone(), guard);
        // No waiter took it before it was lost. It is released now that the mutex is free.
        drop(lost);
        self.queues.wake(&hold.spot);
        // The waiter that should take it may have left before it was there.
        self.settle(&hold.spot);
        if env::now() >= budget.end() {
            // The timer fires once, and may have fired before the guard was there: a waiter that is never polled again would
            // keep the hold for ever.
            self.recall(hold);
        }
        Some(next)
    }

    fn take(&self, spot: &Spot, ticket: Ticket) -> Option<Guard> {
        let mut passing = self.passing.lock();
        let is_held = passing.get(&spot.target).map(Guard::is_held)?;
        let inherits = if is_held { self.queues.inherits(spot, ticket) } else { None };
        let is_due = !is_held || inherits.is_some();
        let guard = if is_due { passing.remove(&spot.target) } else { None };
        drop(passing);
        // Both only now that the mutex is free: dropping a guard that was lost during the hand-over releases it.
        inherits.into_iter().for_each(Aftermath::run);
        guard.filter(|_| is_held)
    }

    fn settle(&self, spot: &Spot) {
        let mut passing = self.passing.lock();
        let has_heir = self.queues.heirs(spot) > 0 || mutation!("stranded-hand-over");
        let stranded = passing.contains_key(&spot.target) && !has_heir;
        let guard = if stranded { passing.remove(&spot.target) } else { None };
        drop(passing);
        drop(guard);
    }

    fn recall(&self, hold: &Arc<Hold>) {
        let mut passing = self.passing.lock();
        let is_here = passing.get(&hold.spot.target).is_some_and(|guard| guard.is_of(hold));
        let guard = if is_here { passing.remove(&hold.spot.target) } else { None };
        drop(passing);
        drop(guard);
    }
}
