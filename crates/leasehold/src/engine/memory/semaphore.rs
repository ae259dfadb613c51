//! The counting semaphore in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::slot::Machine;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::{Line, MayTake};
use crate::engine::{Adjust, Attempt, Busy, Claim, Holding, Released, Renewed, Spot, Target, Ticket};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::term::{Term, Until};
use crate::time::{Instant, Now};

#[derive(Debug, Default)]
pub(super) struct Semaphore {
    /// None until somebody sets or gives some.
    free: Option<i64>,
    /// When the count is forgotten by itself.
    ends: Option<Instant>,
    holds: HashMap<OwnerId, Held>,
    line: Line,
}

/// Permits in the hands of a guard.
#[derive(Debug)]
struct Held {
    amount: u32,
    term: Arc<Term>,
}

impl Machine for Semaphore {
    fn is_used(&self) -> bool {
        !self.holds.is_empty() || !self.line.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.is_used() && self.free.is_none()
    }

    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let after = self.judge(now);
        let Spot { owner, amount, .. } = *claim.spot;
        let busy = |retry_in| Attempt::Busy(Busy { retry_in, ..Busy::default() });
        if self.holds.contains_key(&owner) {
            return (Attempt::Gone, after);
        }
        if self.free.unwrap_or(0) < i64::from(amount) {
            // A head that finds too little has had its turn: nobody else may take what it waits for.
            if turn.is_some_and(|ticket| self.line.is_head(ticket)) {
                self.line.withdraw();
            }
            return (busy(None), after);
        }
        match self.line.may_take(turn, now) {
            // A head that sleeps is not late: it knows when to look.
            MayTake::In(wait) if self.line.is_promised() => return (busy(Some(wait)), after),
            MayTake::In(_) | MayTake::WhenHinted => return (busy(None), after),
            MayTake::Yes => {}
        }
        let after = after.and(Aftermath::waking(self.line.taken(turn)));
        self.free = self.free.map(|free| free - i64::from(amount));
        self.holds.insert(owner, Held { amount, term: Arc::clone(claim.term) });
        (Attempt::Granted(Some(Until::Kept(claim.lease.length())), None), after)
    }

    fn release(&mut self, spot: &Spot, _from: u32, _lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.judge(now);
        match self.holds.remove(&spot.owner) {
            Some(held) => (Released::Left(0, None), after.and(self.add(held.amount.into(), now))),
            None => (Released::NotHeld, after),
        }
    }

    fn force(&mut self, _target: &Target, _now: &Now) -> (bool, Aftermath) {
        unreachable!("there is no one holder")
    }

    fn renew(&mut self, spot: &Spot, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let after = self.judge(now);
        let held = self.holds.contains_key(&spot.owner);
        (if held { Renewed::Until(Until::Kept(length)) } else { Renewed::Gone }, after)
    }

    fn abandon(&mut self, spot: &Spot, _count: u32, now: &Now) -> Aftermath {
        self.release(spot, 1, Lease::Kept(Duration::ZERO), now).1
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.holds.get(&spot.owner).map(|held| Arc::clone(&held.term))
    }

    fn query(
        &mut self,
        _target: &Target,
        _owner: Option<OwnerId>,
        _now: &Now,
    ) -> (Option<Holding>, Aftermath) {
        unreachable!("there is no one holder")
    }

    fn adjust(&mut self, adjust: &Adjust, now: &Now) -> (i64, Aftermath) {
        let before = self.judge(now);
        let (free, nothing) = (self.free, Aftermath::default());
        let (told, after) = match *adjust {
            Adjust::TrySet { .. } if free.is_some() => (0, nothing),
            Adjust::TrySet { count, ttl } => {
                let after = self.add(count.into(), now);
                self.ends = ttl.map(|ttl| now.get() + ttl);
                (1, after)
            }
            Adjust::Add(permits) => {
                let after = self.add(permits.into(), now);
                self.ends = None;
                (self.free.unwrap_or(0), after)
            }
            Adjust::Give { create: false, .. } if free.is_none() => (0, nothing),
            Adjust::Give { count, .. } => (1, self.add(count.into(), now)),
            Adjust::Drain => {
                self.free = free.map(|_| 0);
                self.ends = None;
                (free.unwrap_or(0), nothing)
            }
            Adjust::Delete => (free.is_some().into(), self.delete()),
            Adjust::Count => (free.unwrap_or(0), nothing),
            _ => unreachable!("that is not for permits that are only counted"),
        };
        (told, before.and(after))
    }

    fn let_go(&mut self, spot: &Spot, _now: &Now) -> Aftermath {
        self.holds.remove(&spot.owner);
        Aftermath::default()
    }

    fn line(&mut self, _target: &Target) -> &mut Line {
        &mut self.line
    }

    fn lines(&mut self) -> Vec<&mut Line> {
        vec![&mut self.line]
    }

    fn leave(&mut self, _spot: &Spot, ticket: Ticket, now: &Now) -> Aftermath {
        let was_head = self.line.is_head(ticket);
        let mut after = self.line.leave(ticket, now);
        // One after the other, as long as there is something to take.
        if was_head && after.wake.is_none() {
            after.wake = self.promise(now);
        }
        after
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let after = self.judge(now);
        let ours = self.holds.iter().filter(|(owner, held)| owner.client == client && held.term.is_held());
        let terms: Vec<_> = ours.map(|(_, held)| Arc::clone(&held.term)).collect();
        for term in &terms {
            term.condemn(Loss::Shutdown);
        }
        (terms.len(), after.and(Aftermath::announcing(terms)))
    }

    #[cfg(feature = "test-util")]
    fn remove(&mut self, now: &Now) -> (bool, Aftermath) {
        let after = self.judge(now);
        (self.free.is_some(), after.and(self.delete()))
    }
}

impl Semaphore {
    /// Forgets a count whose time is over. Permits of it are none of the next one of that name.
    fn judge(&mut self, now: &Now) -> Aftermath {
        let is_over = self.ends.is_some_and(|at| at <= now.get());
        if is_over { self.delete() } else { Aftermath::default() }
    }

    fn add(&mut self, permits: i64, now: &Now) -> Aftermath {
        self.free = Some(self.free.unwrap_or(0).saturating_add(permits));
        Aftermath::waking(self.promise(now))
    }

    /// If there is something to take, it is the head's turn.
    fn promise(&mut self, now: &Now) -> Option<std::task::Waker> {
        if self.free.is_some_and(|free| free > 0) { self.line.promise(now) } else { None }
    }

    fn delete(&mut self) -> Aftermath {
        (self.free, self.ends) = (None, None);
        let terms: Vec<_> = self.holds.drain().map(|(_, held)| held.term).collect();
        for term in &terms {
            term.condemn(Loss::Gone);
        }
        Aftermath::announcing(terms)
    }
}
