//! The thread that owns the sockets and timers of one client.
//!
//! Callers issue requests from any thread and are told when the outcome has been read. So a client works from any runtime and
//! from none, outlives the runtime it was made on, and keeps renewing while the user's runtime is blocked.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::Failure;

/// The I/O thread of one client, before it runs.
pub(super) struct IoThread(Runtime);

/// Where the tasks of the I/O thread are started.
#[derive(Debug, Clone)]
pub(super) struct Io(Handle);

impl Io {
    /// Beside the caller, on its runtime if it has one.
    #[cfg(feature = "test-util")]
    pub(super) fn here() -> Self {
        Self(crate::time::handle())
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}

impl IoThread {
    pub(super) fn new() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.map(Self).map_err(|error| Failure::Unavailable(format!("no event loop: {error}")))
    }

    pub(super) fn io(&self) -> Io {
        Io(self.0.handle().clone())
    }

    /// Runs until `work` is done. What else was started on it ends then.
    pub(super) fn start(self, work: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
        std::thread::Builder::new()
            .name("leasehold-io".into())
            .spawn(move || self.0.block_on(work))
            .map(drop)
            .map_err(|error| Failure::Unavailable(format!("no thread: {error}")))
    }
}
