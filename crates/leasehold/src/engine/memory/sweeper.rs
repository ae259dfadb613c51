//! The sweeper: a task that skips front waiters whose futures are not polled.

use std::collections::BTreeSet;
use std::sync::Weak;

use super::Memory;
use crate::engine::Resource;
use crate::engine::aftermath::Aftermath;
use crate::engine::wait_queue;
use crate::env;
use crate::mutex::Mutex;

/// The sweep of all wait queues of one engine that have waiters.
#[derive(Debug)]
pub(super) struct Sweeper {
    engine: Weak<Memory>,
    queues: Mutex<SweptQueues>,
}

// Invariant: a queue with waiters is marked as swept from when its first waiter joins, and is in `resources`, or is about to
// be put there by that waiter or put back by the pass in progress. While `resources` is not empty, there is a task.
#[derive(Debug, Default)]
struct SweptQueues {
    resources: BTreeSet<Resource>,
    has_task: bool,
}

impl Sweeper {
    pub(super) fn new(engine: &Weak<Memory>) -> Self {
        Self { engine: Weak::clone(engine), queues: Mutex::default() }
    }

    /// Begins to sweep the wait queue of a resource.
    pub(super) fn add(&self, resource: &Resource) {
        let mut queues = self.queues.lock();
        queues.resources.insert(resource.clone());
        if !std::mem::replace(&mut queues.has_task, true) {
            drop(queues);
            Task::spawn(&self.engine);
        }
    }

    /// One pass over every wait queue. False if no queue is left.
    fn sweep(&self, engine: &Memory) -> bool {
        let mut resources = std::mem::take(&mut self.queues.lock().resources);
        let mut after = Aftermath::default();
        resources.retain(|resource| {
            let swept =
                engine.with(resource, |slot, _| (slot.waited().sweep(resource), Aftermath::default()));
            let has_waiters = swept.is_some();
            after = std::mem::take(&mut after).and(swept.unwrap_or_default());
            has_waiters
        });
        let mut queues = self.queues.lock();
        queues.resources.extend(resources);
        queues.has_task = !queues.resources.is_empty();
        let goes_on = queues.has_task;
        drop(queues);
        // Last, when all state is consistent again: a waker is the caller's code, and may panic.
        after.run();
        goes_on
    }
}

/// The task that repeats the pass until no queue is left.
struct Task {
    engine: Weak<Memory>,
    over: bool,
}

impl Task {
    fn spawn(engine: &Weak<Memory>) {
        let task = Self { engine: Weak::clone(engine), over: false };
        // Not on the runtime of a waiter: a runtime that is not driven any more would not drive the sweep either.
        env::spawn_detached(task.run());
    }

    async fn run(mut self) {
        let mut pause = wait_queue::pause_after(std::time::Duration::ZERO);
        while !self.over {
            env::sleep_for(pause).await;
            let begun = env::now();
            let Some(engine) = self.engine.upgrade() else {
                self.over = true;
                return;
            };
            self.over = !engine.sweeper.sweep(&engine);
            pause = wait_queue::pause_after(env::now().saturating_duration_since(begun));
        }
    }
}

impl Drop for Task {
    /// A waker that panics does not end the sweep.
    fn drop(&mut self) {
        if !self.over {
            Self::spawn(&self.engine);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::{Engine, HoldKey, Kind, Ticket};
    use crate::name::Name;
    use crate::owner::OwnerId;

    /// An engine, and the hold key of a waiter.
    fn engine(kind: Kind) -> (Arc<Memory>, HoldKey) {
        let resource = Resource::new(kind, Name::new("", "a").unwrap());
        (Memory::new(), HoldKey { resource, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 })
    }

    fn join(engine: &Memory, key: &HoldKey) -> Ticket {
        engine.join(key, false, &mut Context::from_waker(Waker::noop())).0
    }

    #[test]
    fn a_queue_with_waiters_is_swept_and_an_empty_queue_is_not() {
        for kind in [Kind::Lock, Kind::Fair, Kind::Read, Kind::Group, Kind::LeasedSemaphore, Kind::Latch] {
            for join in [join, |engine: &Memory, key: &HoldKey| engine.enqueue(key, false)] {
                let (engine, key) = engine(kind);
                assert!(!engine.sweeper.sweep(&engine), "{kind:?}: no waiter");
                let first = join(&engine, &key);
                assert!(engine.sweeper.sweep(&engine));
                let second = join(&engine, &key);
                engine.leave(&key, first);
                assert!(engine.sweeper.sweep(&engine));
                engine.leave(&key, second);
                let third = join(&engine, &key);
                assert!(engine.sweeper.sweep(&engine), "{kind:?}: its queue was left and is a new one");
                engine.leave(&key, third);
                assert!(!engine.sweeper.sweep(&engine));
                let fourth = join(&engine, &key);
                assert!(engine.sweeper.sweep(&engine), "{kind:?}: it begins anew");
                engine.leave(&key, fourth);
                assert!(!engine.sweeper.sweep(&engine));
                assert!(engine.shards.iter().all(|shard| shard.lock().is_empty()), "{kind:?}");
            }
        }
    }
}
