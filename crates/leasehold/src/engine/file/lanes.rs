//! Requests that may block, on threads that may: one after the other for each name, in the order in which they were issued.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::mutex::Mutex;
use crate::name::{ByName, Name};

/// The requests that wait for the one before them.
#[derive(Default)]
pub(super) struct Lanes {
    // Invariant: a name is here as long as a thread carries out its requests.
    waiting: Mutex<HashMap<Name, VecDeque<Job>, ByName>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Lanes {
    /// Carries out a request behind the earlier ones about the same name.
    pub(super) fn push(self: &Arc<Self>, io: &Handle, name: &Name, job: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting.lock();
        if let Some(lane) = waiting.get_mut(name) {
            lane.push_back(Box::new(job));
            return;
        }
        waiting.insert(name.clone(), VecDeque::new());
        drop(waiting);
        let (lanes, name) = (Arc::clone(self), name.clone());
        io.spawn_blocking(move || {
            job();
            while let Some(job) = lanes.next(&name) {
                job();
            }
        });
    }

    fn next(&self, name: &Name) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        let job = waiting.get_mut(name)?.pop_front();
        if job.is_none() {
            waiting.remove(name);
        }
        job
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}
