//! One task of a simulation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use tokio::sync::oneshot;

use super::host::Host;
use super::schedule::{Schedule, TaskId};

/// A task of a [`Schedule`], which is also the future of its output.
#[must_use = "drop it if the output is not needed: the task continues"]
pub struct Task<T> {
    schedule: Schedule,
    id: TaskId,
    output: oneshot::Receiver<T>,
}

impl<T: Send + 'static> Task<T> {
    pub(super) fn spawn(host: &Host, work: impl Future<Output = T> + Send + 'static) -> Self {
        let (done, output) = oneshot::channel();
        let id = host.schedule.add(host.id, async move {
            // The handle may be gone.
            let _ = done.send(work.await);
        });
        Self { schedule: host.schedule.clone(), id, output }
    }
}

impl<T> Task<T> {
    /// Ends the task: its future is dropped, on its host, if it is not done.
    pub fn cancel(self) {
        self.schedule.cancel(self.id);
    }

    /// Whether the task is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.schedule.has(self.id)
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let output = Pin::new(&mut self.output).poll(context);
        output.map(|output| output.expect("nothing but the end of the run ends a task whose handle is there"))
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.id).finish()
    }
}

/// Makes a task ready.
pub(super) struct Wakes {
    pub(super) schedule: Schedule,
    pub(super) task: TaskId,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.schedule.wake(self.task);
    }
}
