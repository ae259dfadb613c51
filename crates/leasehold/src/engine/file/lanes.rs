//! Requests that may block, on threads that may: one after the other for each name, in the order in which they were issued.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use crate::mutex::Mutex;
use crate::name::{ByName, Name};

/// The requests that wait for the one before them.
#[derive(Default)]
pub(super) struct Lanes {
    // Invariant: a name is here as long as a thread carries out its requests. `count` is the number of names, which every
    // request reads without the mutex: mostly none.
    waiting: Mutex<HashMap<Name, VecDeque<Job>, ByName>>,
    count: AtomicUsize,
}

type Job = Box<dyn FnOnce() + Send>;

impl Lanes {
    /// Whether a request about this name, issued now, would have to wait for an earlier one.
    pub(super) fn is_busy(&self, name: &Name) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.waiting.lock().contains_key(name)
    }

    /// Carries out a request behind the earlier ones about the same name.
    pub(super) fn push(self: &Arc<Self>, io: &Handle, name: &Name, job: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting.lock();
        if let Some(lane) = waiting.get_mut(name) {
            lane.push_back(Box::new(job));
            return;
        }
        waiting.insert(name.clone(), VecDeque::new());
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        let (lanes, name) = (Arc::clone(self), name.clone());
        io.spawn_blocking(move || {
            let lane = Lane { lanes, name };
            job();
            while let Some(job) = lane.lanes.next(&lane.name) {
                job();
            }
        });
    }

    /// Drops all requests that have not begun.
    pub(super) fn clear(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        self.count.store(0, Ordering::SeqCst);
        drop(waiting);
    }

    fn next(&self, name: &Name) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        let job = waiting.get_mut(name)?.pop_front();
        if job.is_none() {
            waiting.remove(name);
            self.count.store(waiting.len(), Ordering::SeqCst);
        }
        job
    }
}

/// The requests about one name, while a thread carries them out. A panic ends all of them.
struct Lane {
    lanes: Arc<Lanes>,
    name: Name,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut waiting = self.lanes.waiting.lock();
        let left = waiting.remove(&self.name);
        self.lanes.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        drop(left);
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}
