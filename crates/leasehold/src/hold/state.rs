//! The step lock of a hold: its steps are made one at a time.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use super::{Access, Budget, Entry, Hold};
use crate::engine::{Family, HoldKey};
use crate::env::{self, Instant};
use crate::lease::{Expiry, Lease};
use crate::loss::Loss;
use crate::term::Term;

/// The state of a hold between two steps, protected by the step lock.
pub(super) struct HoldState {
    /// The engine's hold count for this owner.
    pub(super) count: u32,
    /// The term that is running, if the hold is entered.
    pub(super) term: Option<Arc<Term>>,
    /// A term that was not granted, for the next attempt.
    pub(super) unused: Option<Arc<Term>>,
    pub(super) lease: Lease,
    /// When the hold must end, however often it is renewed.
    pub(super) limit: Option<Instant>,
    /// Until when the lock stays taken, though its last guard may be gone before.
    pub(super) taken_until: Option<Instant>,
    /// Whether every entry has a token.
    pub(super) fenced: bool,
    /// Whether it may be re-entered, by the options of the last entry.
    pub(super) reentrant: bool,
    /// Whether a caller chose the owner, so that the client's registry has the hold.
    pub(super) named: bool,
    /// The limits of its local hand-over, if it may be handed over.
    budget: Option<Budget>,
    /// Until when an extension may keep the hold on the engine's side, whatever the result of the extension.
    extended: Option<Instant>,
}

impl HoldState {
    pub(super) fn new(lease: Lease, named: bool) -> Self {
        let (term, unused, limit, taken_until, budget, extended) = (None, None, None, None, None, None);
        let (fenced, reentrant) = (false, true);
        Self { count: 0, term, unused, lease, limit, taken_until, fenced, reentrant, named, budget, extended }
    }

    /// Records that the engine is about to get a request to keep the hold for this long from now.
    pub(super) fn extends(&mut self, length: Duration) {
        self.extended = self.extended.max(env::now().checked_add(length));
    }

    /// When the hold expires at the engine if a step with this lease is not undone.
    pub(super) fn expiry(&self, lease: Lease) -> Expiry {
        Expiry::new(lease, self.extended.filter(|_| !mutation!("undo-ends-with-first-lease")))
    }

    /// How long the lock is to stay taken, if its last guard is gone before that is over.
    pub(super) fn rest(&self) -> Option<Duration> {
        self.taken_for().filter(|_| self.count == 0 && !mutation!("min-hold-not-kept"))
    }

    /// How much longer the lock is to stay taken at least, if at all.
    pub(super) fn taken_for(&self) -> Option<Duration> {
        let left = self.taken_until?.saturating_duration_since(env::now());
        (!left.is_zero()).then_some(left)
    }

    /// Adds one count with these options. `begun` is set if a time is measured from it.
    pub(super) fn entered(
        &mut self,
        entry: &Entry,
        lease: Lease,
        begun: Option<Instant>,
        limit: Option<Instant>,
        term: &Arc<Term>,
    ) {
        self.budget = begun.filter(|_| entry.access == Access::HandOver && self.count == 0).map(Budget::new);
        self.limit = limit;
        // Counted from when the grant is known, which is no earlier than the grant.
        if self.count == 0 {
            self.taken_until = None;
        }
        if let Some(length) = entry.min_hold {
            self.taken_until = self.taken_until.max(env::now().checked_add(length));
        }
        self.count += 1;
        self.term = Some(Arc::clone(term));
        self.lease = lease;
        self.fenced = entry.fenced;
        self.reentrant = entry.access != Access::Once;
    }
}

/// The locked step lock: the right to make a step.
pub(super) struct StepGuard<'a> {
    pub(super) hold: &'a Hold,
    pub(super) state: Option<tokio::sync::MutexGuard<'a, HoldState>>,
}

impl StepGuard<'_> {
    /// Why a guard of `term` does not hold the lock, if it does not.
    pub(super) fn loss_of(&self, term: &Arc<Term>) -> Option<Loss> {
        let current = self.term.as_ref().is_some_and(|current| Arc::ptr_eq(current, term));
        term.loss().or_else(|| (!current).then_some(Loss::Gone))
    }

    /// The lease of the whole hold when it is entered with `lease`.
    ///
    /// The lease of a plain lock is replaced. Those of a read-write lock and a group are never shortened: the longer one stays.
    pub(super) fn lease_with(&self, lease: Lease, key: &HoldKey) -> Lease {
        let keeps = matches!(key.resource.kind.family(), Family::Rw | Family::Group);
        let Some(term) = self.term.as_ref().filter(|_| keeps) else {
            return lease;
        };
        match (self.lease, lease) {
            (kept @ Lease::Kept(_), _) | (_, kept @ Lease::Kept(_)) => kept,
            (Lease::Fixed(_), Lease::Fixed(length)) => Lease::Fixed(length.max(term.remaining())),
        }
    }

    /// Ends a term that is lost. The engine may still count it for a moment, and must not when the owner enters again.
    pub(super) fn leave_lost_term(&mut self) {
        if self.term.as_ref().is_some_and(|term| term.loss().is_some()) {
            self.hold.undo(0, self.expiry(self.lease));
            self.clear();
        }
    }

    /// Hands the hold over to the next local waiter, if possible; then `term` has ended.
    pub(super) fn hand_over(&mut self, term: &Arc<Term>) -> bool {
        // A caller that has the owner may still act in its name, and must not affect another task's hold.
        if self.count != 1 || !term.is_held() || self.hold.is_owner_known() {
            return false;
        }
        let (Some(budget), Some(hold)) = (&mut self.budget, term.hold()) else { return false };
        let Some(handover) = hold.shared.engine.handover() else { return false };
        let Some(next) = handover.hand_over(&hold, budget, term) else { return false };
        self.term = Some(next);
        self.hold.shared.observer.handed_over();
        !mutation!("double-hand-over")
    }

    pub(super) fn clear(&mut self) {
        self.term = None;
        self.count = 0;
        self.extended = None;
    }

    pub(super) fn give_back(&mut self, term: &Arc<Term>) {
        if !self.term.as_ref().is_some_and(|current| Arc::ptr_eq(current, term)) {
            return;
        }
        if self.hand_over(term) {
            return;
        }
        self.count -= 1;
        if self.count == 0 {
            self.term = None;
            self.hold.end(term);
        }
        // A hold that is lost leaves nothing.
        match self.rest().filter(|_| term.loss().is_none()) {
            // It is sent at once, and no one waits for the reply.
            Some(rest) => drop(self.hold.leave_taken(rest)),
            None => self.hold.undo(self.count, self.expiry(self.lease)),
        }
        if self.count == 0 {
            self.extended = None;
        }
    }
}

impl Deref for StepGuard<'_> {
    type Target = HoldState;

    fn deref(&self) -> &HoldState {
        self.state.as_ref().expect("locked until dropped")
    }
}

impl DerefMut for StepGuard<'_> {
    fn deref_mut(&mut self) -> &mut HoldState {
        self.state.as_mut().expect("locked until dropped")
    }
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        self.state = None;
        self.hold.settle();
    }
}

/// Rolls back a step whose reply was not received.
pub(super) struct Undo<'a> {
    pub(super) hold: &'a Hold,
    pub(super) count: u32,
    pub(super) expiry: Expiry,
    /// The term that the step would begin, if it is the first.
    pub(super) begins: Option<&'a Term>,
}

impl Undo<'_> {
    pub(super) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(term) = self.begins {
            // Before the undo: a grant that arrives from now on finds its term ended, and is not kept.
            term.release();
        }
        if !mutation!("dropped-step-not-undone") {
            self.hold.undo(self.count, self.expiry);
        }
    }
}
