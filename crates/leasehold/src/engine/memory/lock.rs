//! The plain lock in memory.

use std::sync::Arc;
use std::time::Duration;

use super::fair::Fair;
use super::held::Held;
use super::primitive::{Exclusive, Holdable, Waited};
use super::tokens::Tokens;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Attempt, Busy, Claim, HoldKey, Holding, Kind, Released, Renewed, Resource, Ticket};
use crate::env::{Instant, Now};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::{Owner, OwnerId};
use crate::term::Term;

#[derive(Debug, Default)]
pub(super) struct Lock {
    held: Option<Held>,
    wait_queue: WaitQueue,
    /// Set from the first fair attempt on.
    fair: Option<Box<Fair>>,
    tokens: Tokens,
}

impl Waited for Lock {
    fn is_used(&self) -> bool {
        self.held.is_some()
            || !self.wait_queue.is_empty()
            || self.fair.as_ref().is_some_and(|fair| !fair.is_empty())
    }

    fn is_idle(&self) -> bool {
        // Minted tokens are kept for good.
        !self.is_used() && self.token() == 0
    }

    fn wait_queue(&mut self, resource: &Resource) -> &mut WaitQueue {
        if resource.kind == Kind::Fair { &mut self.fair().wait_queue } else { &mut self.wait_queue }
    }

    fn wait_queues(&mut self) -> Vec<&mut WaitQueue> {
        self.fair.iter_mut().map(|fair| &mut fair.wait_queue).chain([&mut self.wait_queue]).collect()
    }

    fn enqueue(&mut self, key: &HoldKey, ticket: Ticket) {
        match key.resource.kind {
            Kind::Fair => self.fair().join(key, ticket),
            _ => self.wait_queue.join(ticket),
        }
    }

    fn join(&mut self, key: &HoldKey, ticket: Ticket) -> bool {
        self.enqueue(key, ticket);
        let is_unchanged = match &self.held {
            Some(held) => held.ends().is_none(),
            // A waiter with a later ticket may have joined first and have been woken.
            None => self.wait_queue.is_reserved() && !self.wait_queue.is_front(ticket),
        };
        key.resource.kind == Kind::Fair || !is_unchanged
    }

    fn leave(&mut self, key: &HoldKey, ticket: Ticket) -> Aftermath {
        // The end that the next waiter saw, if it saw one, was that of an earlier hold.
        let wake_next = self.held.as_ref().is_some_and(|held| held.ends().is_some());
        match key.resource.kind {
            Kind::Fair => self.fair().leave(ticket, wake_next),
            _ => self.wait_queue.leave(ticket, wake_next),
        }
    }

    fn sweep(&mut self, resource: &Resource) -> Option<Aftermath> {
        if resource.kind == Kind::Fair { self.fair.as_mut()?.sweep() } else { self.wait_queue.sweep() }
    }
}

impl Holdable for Lock {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let mut after = self.expire(now);
        let attempt = match &mut self.held {
            Some(held) if held.owner == claim.key.owner && held.count == claim.held => {
                let before = held.ends();
                let until = held.reenter(claim, now);
                after = after.and(self.wake_if_sooner(before));
                Attempt::Granted(Some(until), self.tokens.mint(claim))
            }
            Some(held) if held.owner == claim.key.owner => Attempt::Gone,
            _ if claim.held > 0 => Attempt::Gone,
            Some(held) if claim.steal => {
                let before = held.ends();
                after = after.and(held.lose(Loss::TakenOver));
                let granted = self.grant(claim, now);
                after = after.and(self.wake_if_sooner(before));
                granted
            }
            Some(held) => {
                let retry_in = held.ends().map(|at| at.saturating_duration_since(now.get()));
                let busy = Busy { retry_in, holder: Some(held.owner), ..Busy::default() };
                self.busy(claim, turn, busy)
            }
            None if claim.steal || claim.key.resource.kind == Kind::Spin => self.grant(claim, now),
            None if claim.key.resource.kind == Kind::Fair => {
                if self.fair().may_take(turn) {
                    self.grant(claim, now)
                } else {
                    self.busy(claim, turn, Busy::default())
                }
            }
            None if self.wait_queue.may_take(turn) => self.grant(claim, now),
            None => Attempt::Busy(Busy::default()),
        };
        (attempt, after)
    }

    fn release(&mut self, key: &HoldKey, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.expire(now);
        match &mut self.held {
            Some(held) if held.owner == key.owner && held.count == from => {
                held.count -= 1;
                if held.count == 0 {
                    return (Released::Left(0, None), self.free(Loss::Gone));
                }
                (Released::Left(held.count, Some(held.extend(lease.length(), now))), after)
            }
            _ => (Released::NotHeld, after),
        }
    }

    fn renew(&mut self, key: &HoldKey, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let freed = self.expire(now);
        let renewed = match &mut self.held {
            Some(held) if held.owner == key.owner => Renewed::Until(held.extend(length, now)),
            _ => Renewed::Gone,
        };
        (renewed, freed)
    }

    fn lower(&mut self, key: &HoldKey, count: u32, now: &Now) -> Aftermath {
        let freed = self.expire(now);
        match &mut self.held {
            Some(held) if held.owner == key.owner && held.count > count => {
                held.count = count;
                if count == 0 { self.free(Loss::Gone) } else { freed }
            }
            _ => freed,
        }
    }

    fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        self.held.as_ref().filter(|held| held.owner == key.owner).map(|held| Arc::clone(&held.term))
    }

    fn abandon(&mut self, key: &HoldKey, rest: Duration, now: &Now) -> (bool, Aftermath) {
        let after = self.expire(now);
        match &mut self.held {
            Some(held) if held.owner == key.owner => {
                let before = held.ends();
                held.abandon(rest, now);
                (true, after.and(self.wake_if_sooner(before)))
            }
            _ => (false, after),
        }
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let mut after = self.expire(now);
        match &mut self.held {
            Some(held) if held.owner.client == client && held.term.is_held() => {
                let before = held.ends();
                held.retire(now);
                after = after.and(held.lose(Loss::Shutdown));
                (1, after.and(self.wake_if_sooner(before)))
            }
            _ => (0, after),
        }
    }
}

impl Exclusive for Lock {
    fn force(&mut self, _resource: &Resource, now: &Now) -> (bool, Aftermath) {
        let after = self.expire(now);
        if self.held.is_none() { (false, after) } else { (true, self.free(Loss::ForceUnlocked)) }
    }

    fn query(
        &mut self,
        _resource: &Resource,
        _owner: Option<OwnerId>,
        now: &Now,
    ) -> (Option<Holding>, Aftermath) {
        let freed = self.expire(now);
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
        let after = self.expire(now);
        if self.held.is_none() { (false, after) } else { (true, self.free(Loss::Gone)) }
    }
}

impl Lock {
    fn fair(&mut self) -> &mut Fair {
        self.fair.get_or_insert_default()
    }

    fn is_reserved(&self) -> bool {
        self.wait_queue.is_reserved() || self.fair.as_ref().is_some_and(|fair| fair.wait_queue.is_reserved())
    }

    fn busy(&mut self, claim: &Claim, turn: Option<Ticket>, busy: Busy) -> Attempt {
        match claim.key.resource.kind {
            Kind::Fair => Attempt::Busy(self.fair().busy(claim, turn, busy)),
            _ => Attempt::Busy(busy),
        }
    }

    fn grant(&mut self, claim: &Claim, now: &Now) -> Attempt {
        self.wait_queue.withdraw();
        if let Some(fair) = &mut self.fair {
            fair.wait_queue.withdraw();
        }
        let (held, until) = Held::new(claim, now);
        self.held = Some(held);
        Attempt::Granted(Some(until), self.tokens.mint(claim))
    }

    /// Wakes the front waiters if the hold that they saw as lasting until `before` ends sooner.
    fn wake_if_sooner(&mut self, before: Option<Instant>) -> Aftermath {
        let ends = self.held.as_ref().and_then(Held::ends);
        let fair = self.fair.as_mut().and_then(|fair| fair.wait_queue.notify_front_if_sooner(before, ends));
        Aftermath::waking(self.wait_queue.notify_front_if_sooner(before, ends)).also_waking(fair)
    }

    /// Removes an expired hold. There is no timer: the next request does it.
    fn expire(&mut self, now: &Now) -> Aftermath {
        match &self.held {
            Some(held) if held.ends().is_none_or(|at| now.get() < at) => Aftermath::default(),
            None if !self.is_used() || self.is_reserved() => Aftermath::default(),
            _ => self.free(Loss::Expired),
        }
    }

    /// Ends the hold. Notifies its guards, if they are not notified yet.
    fn free(&mut self, loss: Loss) -> Aftermath {
        let announce = self.held.take().map(|held| held.end(loss));
        let fair = self.fair.as_mut().and_then(|fair| fair.wait_queue.reserve());
        Aftermath { announce, wake: self.wait_queue.reserve(), ..Aftermath::default() }.also_waking(fair)
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

    fn key(kind: Kind) -> HoldKey {
        let resource = Resource::new(kind, Name::new("", "a").unwrap());
        HoldKey { resource, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 }
    }

    fn claim<'a>(key: &'a HoldKey, lease: Lease, term: &'a Arc<Term>) -> Claim<'a> {
        Claim {
            key,
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

    fn taken(lease: Lease) -> (Lock, HoldKey) {
        let (mut lock, key) = (Lock::default(), key(Kind::Lock));
        let term = Term::new(Weak::new());
        let (attempt, _) = lock.attempt(&claim(&key, lease, &term), None, &Now::default());
        assert!(matches!(attempt, Attempt::Granted(..)));
        (lock, key)
    }

    #[test]
    fn a_joining_waiter_retries_when_the_lock_is_free_or_its_end_or_position_is_unknown() {
        assert!(Lock::default().join(&key(Kind::Lock), 1), "free, and reserved for no waiter");
        let (mut lock, _) = taken(Lease::Kept(SECOND));
        assert!(!lock.join(&key(Kind::Lock), 1));
        assert!(lock.join(&key(Kind::Fair), 3), "its place is not known yet");
        let (mut lock, _) = taken(Lease::Fixed(SECOND));
        assert!(lock.join(&key(Kind::Lock), 1), "when it ends is not known yet");
    }

    #[test]
    fn the_next_waiter_is_woken_when_the_front_leaves_though_another_waiter_watches_the_queue() {
        let (mut lock, holder) = taken(Lease::Kept(SECOND));
        let (head, next, watcher) = (key(Kind::Fair), key(Kind::Fair), key(Kind::Fair));
        let [awake_next, awake_watcher] = [0, 1].map(|_| Arc::new(WokenFlag::default()));
        for (key, ticket, watched) in [(&head, 1, false), (&next, 2, false), (&watcher, 3, true)] {
            lock.enqueue(key, ticket);
            let queue = Some(Queueing { wait: SECOND, watched });
            lock.attempt(
                &Claim { queue, ..claim(key, Lease::Fixed(SECOND), &Term::new(Weak::new())) },
                Some(ticket),
                &Now::default(),
            )
            .1
            .run();
        }
        let sleep = |lock: &mut Lock, key: &HoldKey, ticket, flag: &Arc<WokenFlag>| {
            let waker = Waker::from(Arc::clone(flag));
            let mut is_woken = || {
                let (polled, after) = lock.poll_wake_up(key, ticket, &mut Context::from_waker(&waker));
                after.run();
                polled.is_ready()
            };
            assert!(!is_woken() || !is_woken(), "a wake-up is there once");
            flag.0.store(false, Ordering::Relaxed);
        };
        sleep(&mut lock, &next, 2, &awake_next);
        sleep(&mut lock, &watcher, 3, &awake_watcher);
        lock.lower(&holder, 0, &Now::default()).run();
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
    struct WokenFlag(AtomicBool);

    impl Wake for WokenFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiter_that_joins_in_front_of_a_reservation_retries() {
        let (mut lock, holder) = taken(Lease::Kept(SECOND));
        assert!(!lock.join(&key(Kind::Lock), 2));
        lock.lower(&holder, 0, &Now::default()).run();
        assert!(!lock.join(&key(Kind::Lock), 3));
        assert!(lock.join(&key(Kind::Lock), 1), "the other waiter was woken, and may not retry");
    }

    #[test]
    fn a_waiter_overtaken_by_a_spin_lock_is_woken_by_the_release_of_the_spin_lock() {
        let (engine, waiter) = (Memory::new(), key(Kind::Lock));
        let [first, second] = [Kind::Lock, Kind::Spin].map(key);
        let term = Term::new(Weak::new());
        let try_for = |key: &HoldKey, turn| engine.try_for(&claim(key, Lease::Kept(SECOND), &term), turn);
        assert!(matches!(try_for(&first, None), Attempt::Granted(..)));
        let ticket = engine.enqueue(&waiter, false);
        let is_woken =
            || engine.poll_wake_up(&waiter, ticket, &mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_woken());
        engine.lower(&first, 0);
        assert!(is_woken());
        assert!(
            matches!(try_for(&second, None), Attempt::Granted(..)),
            "a spin lock does not heed the wait queue"
        );
        assert!(matches!(try_for(&waiter, Some(ticket)), Attempt::Busy(_)));
        engine.lower(&second, 0);
        assert!(is_woken());
    }
}
