//! The simulated surroundings: hosts with clocks of their own, and one executor that chooses by a seed whose task is next.
//!
//! While a [`Schedule`] polls a task, its thread knows the [`Host`] of that task, and everything that the library takes from
//! its surroundings comes from there. So one client can be stopped or have a clock that runs wrong, while others go on; and a
//! seed fixes everything that happens.

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

/// Asks the host whose task this thread polls; nothing outside of a simulation.
pub(crate) fn here<T>(ask: impl FnOnce(&Host) -> T) -> Option<T> {
    // A thread that ends may drop guards when this is gone already.
    let host = HERE.try_with(|host| host.borrow().clone()).ok()??;
    Some(ask(&host))
}

/// This thread does something for a host, until this is dropped.
struct Entered(Option<Host>);

impl Entered {
    fn new(host: Host) -> Self {
        Self(HERE.replace(Some(host)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // What was there is dropped when nothing is borrowed any more.
        drop(HERE.replace(self.0.take()));
    }
}
