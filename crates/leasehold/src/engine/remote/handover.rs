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
use crate::engine::{Aftermath, Handover, HoldKey, Resource, Ticket};
use crate::env::{self, Instant};
use crate::guard::Guard;
use crate::hold::{Budget, Hold};
use crate::mutex::Mutex;
use crate::term::Term;

/// Guards that are being handed over: each is for the front waiter of its resource.
#[derive(Debug)]
pub(super) struct LocalHandover {
    // Invariant: guards are dropped when the mutex is free again, because that may hand over another hold.
    in_transit: Mutex<HashMap<Resource, Guard>>,
    queues: Arc<Queues>,
    renewal: Arc<Renewal>,
    io: Io,
}

impl LocalHandover {
    pub(super) fn new(queues: Arc<Queues>, renewal: Arc<Renewal>, io: Io) -> Self {
        Self { in_transit: Mutex::default(), queues, renewal, io }
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
    fn hand_over(&self, hold: &Arc<Hold>, budget: &mut Budget, term: &Term) -> Option<Arc<Term>> {
        let is_first = budget.is_new();
        if hold.shared.check_open().is_err() || !budget.one_more(self.queues.local_waiters(&hold.key)) {
            return None;
        }
        let next = term.next();
        if !self.renewal.rebind(&hold.key, &next) {
            return None;
        }
        if is_first && !mutation!("hand-over-not-recalled") {
            self.recall_at(budget.end(), hold);
        }
        // Before a waiter can take it, whose grant is reported after that.
        hold.end(term);
        let guard = Guard::new(Arc::clone(hold), Arc::clone(&next), None, false);
        let lost = self.in_transit.lock().insert(hold.key.resource.clone(), guard);
        // No waiter took it before it was lost. It is released now that the mutex is free.
        drop(lost);
        self.queues.wake(&hold.key);
        // The waiter that should take it may have left before it was there.
        self.settle(&hold.key);
        if env::now() >= budget.end() {
            // The timer fires once, and may have fired before the guard was there: a waiter that is never polled again would
            // keep the hold for ever.
            self.recall(hold);
        }
        Some(next)
    }

    fn take(&self, key: &HoldKey, ticket: Ticket) -> Option<Guard> {
        let mut in_transit = self.in_transit.lock();
        // `Guard::is_held` would log the loss, by foreign code.
        let is_held = in_transit.get(&key.resource).map(|guard| guard.loss().is_none())?;
        let left_queue = if is_held { self.queues.take_turn(key, ticket) } else { None };
        let is_due = !is_held || left_queue.is_some();
        let guard = if is_due { in_transit.remove(&key.resource) } else { None };
        drop(in_transit);
        // Both only now that the mutex is free: dropping a guard that was lost during the hand-over releases it.
        left_queue.into_iter().for_each(Aftermath::run);
        // Until now no caller has had it, so that its end would not be reported.
        guard.filter(|_| is_held).inspect(Guard::taken)
    }

    fn settle(&self, key: &HoldKey) {
        let mut in_transit = self.in_transit.lock();
        let has_next = self.queues.local_waiters(key) > 0 || mutation!("stranded-hand-over");
        let stranded = in_transit.contains_key(&key.resource) && !has_next;
        let guard = if stranded { in_transit.remove(&key.resource) } else { None };
        drop(in_transit);
        drop(guard);
    }

    fn recall(&self, hold: &Arc<Hold>) {
        let mut in_transit = self.in_transit.lock();
        let is_here = in_transit.get(&hold.key.resource).is_some_and(|guard| guard.is_of(hold));
        let guard = if is_here { in_transit.remove(&hold.key.resource) } else { None };
        drop(in_transit);
        drop(guard);
    }
}
