//! One step at a time, for stores that do not order requests, and for stores that treat a client as one owner.
//!
//! A step is sent when the outcome of the step before it has taken effect. So an undo never overtakes the step that it
//! undoes, and of two owners of this client the second one sends its request when it is known whether the first one holds
//! the lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Inner;
use super::attempt::{Grant, take};
use super::done::Caller;
use super::store::{By, Shard, Store, Topic};
use super::undo::BETWEEN_TRIES;
use crate::engine::{Attempt, Busy, Claim, HoldKey, Queueing, Reply, RwOptions, Ticket};
use crate::env::{self, Instant};
use crate::lease::Lease;
use crate::mutex::Mutex;
use crate::term::Term;

/// The steps that wait for the one before them.
#[derive(Default)]
pub(super) struct Sequence {
    // Invariant: a topic is here as long as a step under it is not over. Steps begin when the mutex is free.
    waiting: Mutex<HashMap<Topic, Steps>>,
}

/// The steps behind the one that is not over.
#[derive(Default)]
struct Steps {
    waiting: VecDeque<Step>,
    /// The next step is just being begun …
    begins: bool,
    /// … and is over already. So many such steps do not recurse.
    is_over: bool,
}

type Step = Box<dyn FnOnce() + Send>;

impl Sequence {
    /// Begins the next step, if there is one, and the following steps as long as each is over at once.
    fn go_on(&self, topic: &Topic) {
        loop {
            let mut all = self.waiting.lock();
            let Some(steps) = all.get_mut(topic) else { return };
            if steps.begins {
                steps.is_over = true;
                return;
            }
            let Some(next) = steps.waiting.pop_front() else {
                all.remove(topic);
                return;
            };
            steps.begins = true;
            drop(all);
            next();
            let mut all = self.waiting.lock();
            let Some(steps) = all.get_mut(topic) else { return };
            steps.begins = false;
            if !std::mem::take(&mut steps.is_over) {
                return;
            }
        }
    }
}

/// A step that is not over until this is dropped.
pub(super) struct Over<S: Store> {
    inner: Arc<Inner<S>>,
    topic: Topic,
}

impl<S: Store> Drop for Over<S> {
    fn drop(&mut self) {
        self.inner.sequence.go_on(&self.topic);
    }
}

impl<S: Store> Inner<S> {
    /// Begins a step of this hold key when the steps before it are over.
    pub(super) fn in_turn(self: &Arc<Self>, key: &HoldKey, step: impl FnOnce(Over<S>) + Send + 'static) {
        let topic = self.topic_of_steps(key);
        let over = Over { inner: Arc::clone(self), topic: topic.clone() };
        let mut waiting = self.sequence.waiting.lock();
        if let Some(steps) = waiting.get_mut(&topic) {
            steps.waiting.push_back(Box::new(move || step(over)));
            return;
        }
        waiting.insert(topic, Steps::default());
        drop(waiting);
        step(over);
    }

    /// Begins the first step of a new owner: the next steps of this hold key wait for it.
    pub(super) fn first_step(self: &Arc<Self>, key: &HoldKey) -> Over<S> {
        let topic = self.topic_of_steps(key);
        self.sequence.waiting.lock().entry(topic.clone()).or_default();
        Over { inner: Arc::clone(self), topic }
    }

    /// The steps of one topic follow each other.
    fn topic_of_steps(&self, key: &HoldKey) -> Topic {
        let owner = (self.store.traits().owners == By::Server).then_some(key.owner);
        (key.of_hold().resource, owner)
    }

    /// Tries to acquire when the steps before it are over.
    pub(super) fn attempt_in_turn(
        self: &Arc<Self>,
        claim: &Claim,
        turn: Option<Ticket>,
        shard: Shard,
    ) -> Reply<Attempt> {
        let (sender, reply) = oneshot::channel();
        let (inner, pending) = (Arc::clone(self), PendingClaim::new(claim));
        self.in_turn(claim.key, move |over: Over<S>| {
            if let Some(busy) = inner.in_the_way(&pending.key) {
                // The caller may be gone.
                let _ = sender.send(Ok(Attempt::Busy(busy)));
                return;
            }
            let claim = pending.claim();
            let grant = Grant::new(&claim, shard, env::now());
            let take = take(&claim, grant.length, turn);
            let effects = Arc::clone(&inner);
            let effect = move |taken| {
                let attempt = effects.taken(grant, false, false, taken);
                drop(over);
                attempt
            };
            inner.requesting().take(&take, Caller::step(effect, sender));
        });
        Reply::Soon(reply)
    }

    /// The reason not to send a claim although no waiter is before it: another owner of this client has the lock, which the
    /// server would not notice; or an earlier step may still have to be undone.
    fn in_the_way(&self, key: &HoldKey) -> Option<Busy> {
        let owners = self.store.traits().owners;
        if owners == By::Client
            && let Some(hold) = self.renewal.in_the_way(key)
        {
            let retry_in = hold.term.has_deadline().then(|| hold.term.remaining());
            return Some(Busy { retry_in, holder: Some(hold.key.owner), ..Busy::default() });
        }
        let is_unresolved = self.undos.concern(key, owners);
        is_unresolved.then(|| Busy { retry_in: Some(BETWEEN_TRIES), not_sent: true, ..Busy::default() })
    }
}

/// A claim that waits for its turn.
struct PendingClaim {
    key: HoldKey,
    lease: Lease,
    limit: Option<Instant>,
    steal: bool,
    fenced: bool,
    queue: Option<Queueing>,
    rw: RwOptions,
    term: Arc<Term>,
}

impl PendingClaim {
    fn new(claim: &Claim) -> Self {
        let Claim { key, lease, limit, steal, fenced, queue, rw, term, .. } = *claim;
        Self { key: key.clone(), lease, limit, steal, fenced, queue, rw, term: Arc::clone(term) }
    }

    fn claim(&self) -> Claim<'_> {
        let Self { key, lease, limit, steal, fenced, queue, rw, term } = self;
        let (lease, limit, steal, fenced, queue, rw) = (*lease, *limit, *steal, *fenced, *queue, *rw);
        Claim { key, held: 0, lease, limit, steal, fenced, queue, rw, fresh: false, term }
    }
}
