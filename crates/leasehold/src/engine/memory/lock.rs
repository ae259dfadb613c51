//! The plain lock in memory.

use std::sync::Arc;
use std::time::Duration;

use super::fair::Fair;
use super::held::Held;
use super::primitive::{Exclusive, Holdable, Waited};
use super::tokens::Tokens;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::Line;
use crate::engine::{Attempt, Busy, Claim, Holding, Kind, Released, Renewed, Spot, Target, Ticket};
use crate::env::{Instant, Now};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::{Owner, OwnerId};
use crate::term::Term;

#[derive(Debug, Default)]
pub(super) struct Lock {
    held: Option<Held>,
    line: Line,
    /// Set from the first fair attempt on.
    fair: Option<Box<Fair>>,
    tokens: Tokens,
}

impl Waited for Lock {
    fn is_used(&self) -> bool {
        self.held.is_some()
            || !self.line.is_empty()
            || self.fair.as_ref().is_some_and(|fair| !fair.is_empty())
    }

    fn is_idle(&self) -> bool {
        // Minted tokens are kept for good.
        !self.is_used() && self.token() == 0
    }

    fn line(&mut self, target: &Target) -> &mut Line {
        if target.kind == Kind::Fair { &mut self.fair().line } else { &mut self.line }
    }

    fn lines(&mut self) -> Vec<&mut Line> {
        self.fair.iter_mut().map(|fair| &mut fair.line).chain([&mut self.line]).collect()
    }

    fn listen(&mut self, spot: &Spot, ticket: Ticket) {
        match spot.target.kind {
            Kind::Fair => self.fair().join(spot, ticket),
            _ => self.line.join(ticket),
        }
    }

    fn join(&mut self, spot: &Spot, ticket: Ticket) -> bool {
        self.listen(spot, ticket);
        let is_as_told = match &self.held {
            Some(held) => held.expires.is_none(),
            // A waiter with a later ticket may have joined first and have been woken.
            None => self.line.is_reserved() && !self.line.is_front(ticket),
        };
        spot.target.kind == Kind::Fair || !is_as_told
    }

    fn leave(&mut self, spot: &Spot, ticket: Ticket) -> Aftermath {
        // The end that the next waiter saw, if it saw one, was that of an earlier hold.
        let tell_next = self.held.as_ref().is_some_and(|held| held.expires.is_some());
        match spot.target.kind {
            Kind::Fair => self.fair().leave(ticket, tell_next),
            _ => self.line.leave(ticket, tell_next),
        }
    }

    fn sweep(&mut self, target: &Target) -> Option<Aftermath> {
        if target.kind == Kind::Fair { self.fair.as_mut()?.sweep() } else { self.line.sweep() }
    }
}

impl Holdable for Lock {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let mut after = self.judge(now);
        let attempt = match &mut self.held {
            Some(held) if held.owner == claim.spot.owner && held.count == claim.held => {
                let before = held.expires;
                let until = held.reenter(claim, now);
                after = after.and(self.hint_if_sooner(before));
                Attempt::Granted(Some(until), self.tokens.mint(claim))
            }
            Some(held) if held.owner == claim.spot.owner => Attempt::Gone,
            _ if claim.held > 0 => Attempt::Gone,
            Some(held) if claim.steal => {
                let before = held.expires;
                after = after.and(held.lose(Loss::TakenOver));
                let granted = self.grant(claim, now);
                after = after.and(self.hint_if_sooner(before));
                granted
            }
            Some(held) => {
                let retry_in = held.expires.map(|at| at.saturating_duration_since(now.get()));
                let busy = Busy { retry_in, holder: Some(held.owner), position: None };
                self.busy(claim, turn, busy)
            }
            None if claim.steal || claim.spot.target.kind == Kind::Spin => self.grant(claim, now),
            None if claim.spot.target.kind == Kind::Fair => {
                if self.fair().may_take(turn) {
                    self.grant(claim, now)
                } else {
                    self.busy(claim, turn, Busy::default())
                }
            }
            None if self.line.may_take(turn) => self.grant(claim, now),
            None => Attempt::Busy(Busy::default()),
        };
        (attempt, after)
    }

    fn release(&mut self, spot: &Spot, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.judge(now);
        match &mut self.held {
            Some(held) if held.owner == spot.owner && held.count == from => {
                held.count -= 1;
                if held.count == 0 {
                    return (Released::Left(0, None), self.free(Loss::Gone));
                }
                (Released::Left(held.count, Some(held.extend(lease.length(), now))), after)
            }
            _ => (Released::NotHeld, after),
        }
    }

    fn renew(&mut self, spot: &Spot, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let freed = self.judge(now);
        let renewed = match &mut self.held {
            Some(held) if held.owner == spot.owner => Renewed::Until(held.extend(length, now)),
            _ => Renewed::Gone,
        };
        (renewed, freed)
    }

    fn abandon(&mut self, spot: &Spot, count: u32, now: &Now) -> Aftermath {
        let freed = self.judge(now);
        match &mut self.held {
            Some(held) if held.owner == spot.owner && held.count > count => {
                held.count = count;
                if count == 0 { self.free(Loss::Gone) } else { freed }
            }
            _ => freed,
        }
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.held.as_ref().filter(|held| held.owner == spot.owner).map(|held| Arc::clone(&held.term))
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let mut after = self.judge(now);
        match &mut self.held {
            Some(held) if held.owner.client == client => {
                let before = held.expires;
                held.retire(now);
                after = after.and(held.lose(Loss::Shutdown));
                (1, after.and(self.hint_if_sooner(before)))
            }
            _ => (0, after),
        }
    }
}

impl Exclusive for Lock {
    fn force(&mut self, _target: &Target, now: &Now) -> (bool, Aftermath) {
        let after = self.judge(now);
        if self.held.is_none() { (false, after) } else { (true, self.free(Loss::ForceUnlocked)) }
    }

    fn query(
        &mut self,
        _target: &Target,
        _owner: Option<OwnerId>,
        now: &Now,
    ) -> (Option<Holding>, Aftermath) {
        let freed = self.judge(now);
        (self.held.as_ref().map(|held| held.holding(now)), freed)
    }

    fn token(&self) -> u64 {
        self.tokens.last()
    }

    fn queue(&self) -> Vec<Owner> {
        self.fair.as_ref().map_or_else(Vec::new, |fair| fair.queue())
    }

    #[cfg(feature = "test-util")]
    fn remove(&mut self, now: &Now) -> (bool, Aftermath) {
        let after = self.judge(now);
        if self.held.is_none() { (false, after) } else { (true, self.free(Loss::Gone)) }
    }
}

impl Lock {
    fn fair(&mut self) -> &mut Fair {
        self.fair.get_or_insert_default()
    }

    fn is_reserved(&self) -> bool {
        self.line.is_reserved() || self.fair.as_ref().is_some_and(|fair| fair.line.is_reserved())
    }

    fn busy(&mut self, claim: &Claim, turn: Option<Ticket>, busy: Busy) -> Attempt {
        match claim.spot.target.kind {
            Kind::Fair => Attempt::Busy(self.fair().busy(claim, turn, busy)),
            _ => Attempt::Busy(busy),
        }
    }

    fn grant(&mut self, claim: &Claim, now: &Now) -> Attempt {
        self.line.withdraw();
        if let Some(fair) = &mut self.fair {
            fair.line.withdraw();
        }
        let (held, until) = Held::new(claim, now);
        self.held = Some(held);
        Attempt::Granted(Some(until), self.tokens.mint(claim))
    }

    /// Wakes the front waiters if the hold that they saw as lasting until `before` ends sooner.
    fn hint_if_sooner(&mut self, before: Option<Instant>) -> Aftermath {
        let ends = self.held.as_ref().and_then(|held| held.expires);
        let fair = self.fair.as_mut().and_then(|fair| fair.line.hint_if_sooner(before, ends));
        Aftermath::waking(self.line.hint_if_sooner(before, ends)).also_waking(fair)
    }

    /// Removes an expired hold. There is no timer: the next request does it.
    fn judge(&mut self, now: &Now) -> Aftermath {
        match &self.held {
            Some(held) if held.expires.is_none_or(|at| now.get() < at) => Aftermath::default(),
            None if !self.is_used() || self.is_reserved() => Aftermath::default(),
            _ => self.free(Loss::Expired),
        }
    }

    /// Ends the hold. Notifies its guards, if they are not notified yet.
    fn free(&mut self, loss: Loss) -> Aftermath {
        let announce = self.held.take().map(|held| held.end(loss));
        let fair = self.fair.as_mut().and_then(|fair| fair.line.reserve());
        Aftermath { announce, wake: self.line.reserve(), ..Aftermath::default() }.also_waking(fair)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::engine::memory::Memory;
    use crate::engine::{Engine, Queueing, RwOptions};
    use crate::name::Name;

    const SECOND: Duration = Duration::from_secs(1);

    fn spot(kind: Kind) -> Spot {
        let target = Target::new(kind, Name::new("", "a").unwrap());
        Spot { target, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 }
    }

    fn claim<'a>(spot: &'a Spot, lease: Lease, term: &'a Arc<Term>) -> Claim<'a> {
        Claim {
            spot,
            held: 0,
            lease,
            limit: None,
            steal: false,
            fenced: false,
            queue: None,
            rw: RwOptions::default(),
            fresh: false,
            term,
        }
    }

    fn taken(lease: Lease) -> (Lock, Spot) {
        let (mut lock, spot) = (Lock::default(), spot(Kind::Lock));
        let term = Term::new(Weak::new());
        let (attempt, _) = lock.attempt(&claim(&spot, lease, &term), None, &Now::default());
        assert!(matches!(attempt, Attempt::Granted(..)));
        (lock, spot)
    }

    #[test]
    fn a_waiter_that_joins_looks_once_more_unless_all_is_as_it_was_told() {
        assert!(Lock::default().join(&spot(Kind::Lock), 1), "free, and reserved for no waiter");
        let (mut lock, _) = taken(Lease::Kept(SECOND));
        assert!(!lock.join(&spot(Kind::Lock), 1));
        assert!(lock.join(&spot(Kind::Fair), 3), "its place is not known yet");
        let (mut lock, _) = taken(Lease::Fixed(SECOND));
        assert!(lock.join(&spot(Kind::Lock), 1), "when it ends is not known yet");
    }

    #[test]
    fn the_next_in_a_queue_hears_when_a_hold_ends_also_if_others_watch_the_queue() {
        let (mut lock, holder) = taken(Lease::Kept(SECOND));
        let (head, next, watcher) = (spot(Kind::Fair), spot(Kind::Fair), spot(Kind::Fair));
        let [awake_next, awake_watcher] = [0, 1].map(|_| Arc::new(Rung::default()));
        for (spot, ticket, watched) in [(&head, 1, false), (&next, 2, false), (&watcher, 3, true)] {
            lock.listen(spot, ticket);
            let queue = Some(Queueing { wait: SECOND, watched });
            lock.attempt(
                &Claim { queue, ..claim(spot, Lease::Fixed(SECOND), &Term::new(Weak::new())) },
                Some(ticket),
                &Now::default(),
            )
            .1
            .run();
        }
        let sleep = |lock: &mut Lock, spot: &Spot, ticket, rung: &Arc<Rung>| {
            let waker = Waker::from(Arc::clone(rung));
            let mut is_told = || {
                let (polled, after) = lock.poll_hint(spot, ticket, &mut Context::from_waker(&waker));
                after.run();
                polled.is_ready()
            };
            assert!(!is_told() || !is_told(), "a hint is there once");
            rung.0.store(false, Ordering::Relaxed);
        };
        sleep(&mut lock, &next, 2, &awake_next);
        sleep(&mut lock, &watcher, 3, &awake_watcher);
        lock.abandon(&holder, 0, &Now::default()).run();
        let term = Term::new(Weak::new());
        let (attempt, after) =
            lock.attempt(&claim(&head, Lease::Fixed(SECOND), &term), Some(1), &Now::default());
        assert!(matches!(attempt, Attempt::Granted(..)), "{attempt:?}");
        after.run();
        sleep(&mut lock, &watcher, 3, &awake_watcher);
        lock.leave(&head, 1).run();
        assert!(awake_watcher.0.load(Ordering::Relaxed), "the queue has moved");
        assert!(
            awake_next.0.load(Ordering::Relaxed),
            "it is the next now, and has to see when the hold ends"
        );
    }

    #[derive(Default)]
    struct Rung(AtomicBool);

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiter_that_joins_in_front_of_a_reservation_looks() {
        let (mut lock, holder) = taken(Lease::Kept(SECOND));
        assert!(!lock.join(&spot(Kind::Lock), 2));
        lock.abandon(&holder, 0, &Now::default()).run();
        assert!(!lock.join(&spot(Kind::Lock), 3));
        assert!(lock.join(&spot(Kind::Lock), 1), "the other waiter was woken, and may not retry");
    }

    #[test]
    fn a_waiter_that_finds_a_spin_lock_in_its_place_is_told_of_the_release() {
        let (engine, waiter) = (Memory::new(), spot(Kind::Lock));
        let [first, second] = [Kind::Lock, Kind::Spin].map(spot);
        let term = Term::new(Weak::new());
        let try_for = |spot: &Spot, turn| engine.try_for(&claim(spot, Lease::Kept(SECOND), &term), turn);
        assert!(matches!(try_for(&first, None), Attempt::Granted(..)));
        let ticket = engine.listen(&waiter, false);
        let is_called =
            || engine.poll_hint(&waiter, ticket, &mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_called());
        engine.give_up(&first, 0);
        assert!(is_called());
        assert!(matches!(try_for(&second, None), Attempt::Granted(..)), "a spin lock does not heed the line");
        assert!(matches!(try_for(&waiter, Some(ticket)), Attempt::Busy(_)));
        engine.give_up(&second, 0);
        assert!(is_called());
    }
}
