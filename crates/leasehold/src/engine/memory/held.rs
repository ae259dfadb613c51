//! One hold in memory: its owner, count and lease.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::aftermath::Aftermath;
use crate::engine::{Claim, Holding};
use crate::env::{Instant, Now};
use crate::lease::{Bounds, Lease};
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::term::{Term, Until};

/// One hold.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) owner: OwnerId,
    pub(super) count: u32,
    pub(super) bounds: Bounds,
    expires: Option<Instant>,
    pub(super) term: Arc<Term>,
}

impl Held {
    pub(super) fn new(claim: &Claim, now: &Now) -> (Self, Until) {
        let mut held = Self {
            owner: claim.key.owner,
            count: 1,
            bounds: Bounds { lease: claim.lease, limit: claim.limit },
            expires: None,
            term: Arc::clone(claim.term),
        };
        let until = held.prolong(now);
        (held, until)
    }

    pub(super) fn reenter(&mut self, claim: &Claim, now: &Now) -> Until {
        self.count += 1;
        self.bounds = Bounds { lease: claim.lease, limit: claim.limit };
        self.term = Arc::clone(claim.term);
        self.prolong(now)
    }

    /// Begins the lease anew.
    fn prolong(&mut self, now: &Now) -> Until {
        let lease_ends = match self.bounds.lease {
            Lease::Kept(_) => None,
            Lease::Fixed(length) => Some(now.get() + length),
        };
        self.expires = [lease_ends, self.bounds.limit].into_iter().flatten().min();
        self.until(now)
    }

    pub(super) fn extend(&mut self, length: Duration, now: &Now) -> Until {
        if let Some(expires) = self.expires {
            let wanted = expires.max(now.get() + length);
            self.expires = Some(self.bounds.limit.map_or(wanted, |limit| wanted.min(limit)));
        }
        self.until(now)
    }

    /// When it ends if nothing happens.
    pub(super) fn ends(&self) -> Option<Instant> {
        match self.term.stalls_at() {
            None => self.expires,
            Some(stalls) => Some(self.expires.map_or(stalls, |expires| expires.min(stalls))),
        }
    }

    /// Stops renewing it: it expires as on a server after the last renewal.
    pub(super) fn retire(&mut self, now: &Now) {
        if let Lease::Kept(length) = self.bounds.lease {
            self.bounds.lease = Lease::Fixed(length);
            self.prolong(now);
        }
    }

    /// Leaves it without a guard, to expire after `rest`.
    pub(super) fn abandon(&mut self, rest: Duration, now: &Now) {
        self.bounds = Bounds { lease: Lease::Fixed(rest), limit: None };
        // No guard is left, and the work under it reports no progress any more.
        self.term = Term::new(Weak::new());
        self.term.release();
        self.prolong(now);
    }

    /// Its public state.
    pub(super) fn holding(&self, now: &Now) -> Holding {
        let remaining =
            self.expires.map_or(self.bounds.lease.length(), |at| at.saturating_duration_since(now.get()));
        Holding { owner: Some(self.owner), count: self.count, remaining }
    }

    fn until(&self, now: &Now) -> Until {
        let Some(expires) = self.expires else { return Until::Kept(self.bounds.lease.length()) };
        self.bounds.until_end(expires, now.get())
    }

    /// Notifies the guards; tasks that wait for the loss are woken by the aftermath.
    pub(super) fn lose(&self, loss: Loss) -> Aftermath {
        Aftermath::losing([Arc::clone(&self.term)], loss)
    }

    /// The same when the hold itself is over; tasks that wait for the term are woken afterwards.
    pub(super) fn end(self, loss: Loss) -> Arc<Term> {
        self.term.mark_lost(loss);
        self.term
    }
}
