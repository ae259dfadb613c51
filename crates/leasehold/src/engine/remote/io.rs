//! The thread that owns the sockets and timers of one client.
//!
//! Callers issue requests from any thread and are notified when the outcome has been read. So a client works from any
//! runtime and from none, outlives the runtime it was made on, and keeps renewing while the user's runtime is blocked.

use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use tokio::runtime::{Builder, Runtime};

use crate::env::{self, Tasks};
use crate::error::ServerError;

/// The I/O thread of one client, before it runs.
pub(super) struct IoThread {
    runtime: Runtime,
    io: Io,
}

/// Spawns tasks on the I/O thread.
#[derive(Debug, Clone)]
pub(super) struct Io {
    tasks: Tasks,
    /// Set once it runs.
    thread: Arc<OnceLock<ThreadId>>,
}

impl Io {
    /// Beside the caller, on its host or runtime if it has one.
    #[cfg(feature = "test-util")]
    pub(super) fn here() -> Self {
        Self { tasks: Tasks::here(), thread: Arc::default() }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Whether this is the I/O thread.
    pub(super) fn is_here(&self) -> bool {
        self.thread.get().is_some_and(|thread| *thread == std::thread::current().id())
    }
}

impl IoThread {
    pub(super) fn new() -> Result<Self, ServerError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ServerError::Unavailable(format!("no event loop: {error}")))?;
        let io = Io { tasks: Tasks::Runtime(runtime.handle().clone()), thread: Arc::default() };
        Ok(Self { runtime, io })
    }

    pub(super) fn io(&self) -> Io {
        self.io.clone()
    }

    /// Runs until `work` is done. All other tasks on it end then.
    pub(super) fn start(self, work: impl Future<Output = ()> + Send + 'static) -> Result<(), ServerError> {
        let run = move || {
            self.io.thread.get_or_init(|| std::thread::current().id());
            self.runtime.block_on(work);
        };
        env::start_thread("leasehold-io", run)
            .map_err(|error| ServerError::Unavailable(format!("no thread: {error}")))
    }
}
