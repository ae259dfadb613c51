//! The simulated environment: hosts with their own clocks, and one executor that chooses the next task by a seed.
//!
//! While a [`Schedule`] polls a task, the [`Host`] of that task is set for its thread, and provides the environment of the
//! library. So one client can be stopped or have a clock that runs fast or slow, while others continue; and a seed determines
//! the whole run.

mod clock;
mod dice;
mod host;
mod schedule;
mod task;

use std::cell::RefCell;

pub use self::host::Host;
pub use self::schedule::{Schedule, Trace};
pub use self::task::Task;

thread_local! {
    /// The host whose task is being polled.
    static HERE: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// Calls `read` with the host whose task this thread polls; `None` outside of a simulation.
pub(crate) fn here<T>(read: impl FnOnce(&Host) -> T) -> Option<T> {
    // A thread that ends may drop guards after this was destroyed.
    let host = HERE.try_with(|host| host.borrow().clone()).ok()??;
    Some(read(&host))
}

/// This thread runs on behalf of a host, until this is dropped.
struct Entered(Option<Host>);

impl Entered {
    fn new(host: Host) -> Self {
        Self(HERE.replace(Some(host)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The previous value is dropped when nothing is borrowed any more.
        drop(HERE.replace(self.0.take()));
    }
}
