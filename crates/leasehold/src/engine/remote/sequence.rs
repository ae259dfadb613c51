//! One step at a time, for stores that do not order requests, and for stores that know a client as one owner.
//!
//! A step is sent when the outcome of the step before it has taken effect. So an undo never overtakes what it undoes, and
//! of two owners of this client the second one asks when it is known whether the first one holds the lock.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Inner;
use super::store::{By, Store, Topic};
use crate::engine::Spot;

/// The steps that wait for the one before them.
#[derive(Default)]
pub(super) struct Sequence {
    // Invariant: a key is here as long as a step under it is not over. Steps begin when the mutex is free.
    waiting: Mutex<HashMap<Topic, Steps>>,
}

/// The steps behind the one that is not over.
#[derive(Default)]
struct Steps {
    waiting: VecDeque<Step>,
    /// The next step is just being begun …
    begins: bool,
    /// … and is over already. So a crowd of such steps is not a stack of them.
    is_over: bool,
}

type Step = Box<dyn FnOnce() + Send>;

impl Sequence {
    /// Begins the next step, if there is one, and those behind it that are over at once.
    fn go_on(&self, key: &Topic) {
        loop {
            let mut all = self.waiting();
            let Some(steps) = all.get_mut(key) else { return };
            if steps.begins {
                steps.is_over = true;
                return;
            }
            let Some(next) = steps.waiting.pop_front() else {
                all.remove(key);
                return;
            };
            steps.begins = true;
            drop(all);
            next();
            let mut all = self.waiting();
            let Some(steps) = all.get_mut(key) else { return };
            steps.begins = false;
            if !std::mem::take(&mut steps.is_over) {
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Topic, Steps>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step that is not over until this is dropped.
pub(super) struct Over<S: Store> {
    inner: Arc<Inner<S>>,
    key: Topic,
}

impl<S: Store> Drop for Over<S> {
    fn drop(&mut self) {
        self.inner.sequence.go_on(&self.key);
    }
}

impl<S: Store> Inner<S> {
    /// Whether steps are sent one at a time.
    pub(super) fn is_sequenced(&self) -> bool {
        let traits = self.store.traits();
        !traits.ordered || traits.owners == By::Client
    }

    /// Begins a step at this spot when those before it are over.
    pub(super) fn in_turn(self: &Arc<Self>, spot: &Spot, step: impl FnOnce(Over<S>) + Send + 'static) {
        let owner = (self.store.traits().owners == By::Server).then_some(spot.owner);
        let key = (spot.of_hold().target, owner);
        let over = Over { inner: Arc::clone(self), key: key.clone() };
        let mut waiting = self.sequence.waiting();
        if let Some(steps) = waiting.get_mut(&key) {
            steps.waiting.push_back(Box::new(move || step(over)));
            return;
        }
        waiting.insert(key, Steps::default());
        drop(waiting);
        step(over);
    }
}
