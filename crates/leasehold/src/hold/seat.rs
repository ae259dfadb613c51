//! The step lock of a hold: its steps are made one at a time.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use super::{Access, Budget, Entry, Hold};
use crate::engine::{Family, HoldKey};
use crate::env::{self, Instant};
use crate::lease::{Lapse, Lease};
use crate::loss::Loss;
use crate::term::Term;

/// The state of a hold between two steps, protected by the step lock.
pub(super) struct Seat {
    /// The engine's hold count for this owner.
    pub(super) count: u32,
    /// The term that is running, if the hold is entered.
    pub(super) term: Option<Arc<Term>>,
    /// A term that was not granted, for the next try.
    pub(super) unused: Option<Arc<Term>>,
    pub(super) lease: Lease,
    /// When the hold must end, however often it is renewed.
    pub(super) limit: Option<Instant>,
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

impl Seat {
    pub(super) fn new(lease: Lease, named: bool) -> Self {
        let (term, unused, limit, budget, extended) = (None, None, None, None, None);
        Self { count: 0, term, unused, lease, limit, fenced: false, reentrant: true, named, budget, extended }
    }

    /// Records that the engine is about to get a request to keep the hold for this long from now.
    pub(super) fn extends(&mut self, length: Duration) {
        self.extended = self.extended.max(env::now().checked_add(length));
    }

    /// When the hold expires at the engine if a step with this lease is not undone.
    pub(super) fn lapse(&self, lease: Lease) -> Lapse {
        Lapse::new(lease, self.extended.filter(|_| !mutation!("undo-ends-with-first-lease")))
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
        self.budget = begun.filter(|_| entry.access == Access::Relayed && self.count == 0).map(Budget::new);
        self.limit = limit;
        self.count += 1;
        self.term = Some(Arc::clone(term));
        self.lease = lease;
        self.fenced = entry.fenced;
        self.reentrant = entry.access != Access::Once;
    }
}

/// The locked step lock: the right to make a step.
pub(super) struct Seated<'a> {
    pub(super) hold: &'a Hold,
    pub(super) seat: Option<tokio::sync::MutexGuard<'a, Seat>>,
}

impl Seated<'_> {
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
            self.hold.abandon(0, self.lapse(self.lease));
            self.vacate();
        }
    }

    /// Hands the hold over to the next local waiter, if possible; then `term` has ended.
    pub(super) fn pass_on(&mut self, term: &Arc<Term>) -> bool {
        // A caller that has the owner may still act in its name, and must not affect another task's hold.
        if self.count != 1 || !term.is_held() || self.hold.is_owner_told() {
            return false;
        }
        let (Some(budget), Some(hold)) = (&mut self.budget, term.hold()) else { return false };
        let Some(handover) = hold.shared.engine.handover() else { return false };
        let Some(next) = handover.pass(&hold, budget, term) else { return false };
        self.term = Some(next);
        term.release();
        !mutation!("double-hand-over")
    }

    pub(super) fn vacate(&mut self) {
        self.term = None;
        self.count = 0;
        self.extended = None;
    }

    pub(super) fn give_back(&mut self, term: &Arc<Term>) {
        if !self.term.as_ref().is_some_and(|current| Arc::ptr_eq(current, term)) {
            return;
        }
        if self.pass_on(term) {
            return;
        }
        self.count -= 1;
        if self.count == 0 {
            self.term = None;
            term.release();
        }
        self.hold.abandon(self.count, self.lapse(self.lease));
        if self.count == 0 {
            self.extended = None;
        }
    }
}

impl Deref for Seated<'_> {
    type Target = Seat;

    fn deref(&self) -> &Seat {
        self.seat.as_ref().expect("seated until dropped")
    }
}

impl DerefMut for Seated<'_> {
    fn deref_mut(&mut self) -> &mut Seat {
        self.seat.as_mut().expect("seated until dropped")
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        self.seat = None;
        self.hold.settle();
    }
}

/// Rolls back a step whose reply was not received.
pub(super) struct Undo<'a> {
    pub(super) hold: &'a Hold,
    pub(super) count: u32,
    pub(super) lapse: Lapse,
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
            // Before it is abandoned: a grant that arrives from now on finds its term ended, and is not kept.
            term.release();
        }
        if !mutation!("dropped-step-not-undone") {
            self.hold.abandon(self.count, self.lapse);
        }
    }
}
