//! One simulated machine.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Entered;
use super::schedule::{HostId, Schedule};
use super::task::Task;
use crate::env::Instant;
use crate::env::sleep::{End, Sleep};

/// One machine of a [`Schedule`]. Its tasks can be stopped, and its clock can run fast or slow, while other hosts continue.
///
/// A client that is connected by a task of a host runs on that host, with all its background work. Use it only in tasks of
/// the same host: its guards are checked by the clock of the host whose task calls them.
///
/// Only the library follows the clock of a host. Tokio's clock and timers, which the tasks themselves may use, show the
/// time of the simulation.
#[derive(Clone)]
pub struct Host {
    pub(super) schedule: Schedule,
    pub(super) id: HostId,
}

impl Host {
    /// Starts a task on this host. It continues if its handle is dropped.
    ///
    /// A panic in it is one of [`Schedule::run`].
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Task<T> {
        Task::spawn(self, work)
    }

    /// Runs `work` like a task of this host: the library uses the clock and the random numbers of this host.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = Entered::new(self.clone());
        work()
    }

    /// Stops the host: none of its tasks runs. Messages that were sent still arrive, its clock runs on, and its timers expire.
    ///
    /// A task of the host itself that calls this runs until it next waits.
    pub fn stop(&self) {
        self.schedule.set_stopped(self.id, true);
    }

    /// Resumes after a [`stop`](Self::stop).
    pub fn resume(&self) {
        self.schedule.set_stopped(self.id, false);
    }

    /// Makes the clock of this host run at `rate` seconds per second of the simulation from now on: 1.1 is fast, 0.9 slow.
    ///
    /// # Panics
    ///
    /// If `rate` is not a positive number.
    pub fn clock_rate(&self, rate: f64) {
        assert!(rate.is_finite() && rate > 0.0, "a clock cannot run at {rate}");
        self.schedule.set_clock_rate(self.id, rate);
    }

    /// The schedule that this host belongs to.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        self.schedule.clone()
    }

    pub(crate) fn now(&self) -> Instant {
        self.schedule.on(self.id, |machine| machine.clock.now())
    }

    pub(crate) fn random(&self) -> u64 {
        self.schedule.on(self.id, |machine| machine.dice.next())
    }

    pub(crate) fn random_bytes(&self) -> [u8; 16] {
        let both = u128::from(self.random()) << 64 | u128::from(self.random());
        both.to_be_bytes()
    }

    pub(crate) fn unique_numbers(&self, numbers: u32) -> u64 {
        self.schedule.unique_numbers(numbers)
    }

    /// Polls a sleep by the clock of this host.
    pub(in crate::env) fn poll_sleep(&self, sleep: &mut Sleep, context: &mut Context<'_>) -> Poll<()> {
        let end = match sleep.end {
            End::At(at) => Some(at),
            End::After(length) => self.now().checked_add(length),
            End::Never => None,
        };
        sleep.end = end.map_or(End::Never, End::At);
        let Some(end) = end else { return Poll::Pending };
        while self.now() < end {
            // Computed each time: the rate of the clock may have changed.
            let Some(at) = self.schedule.on(self.id, |machine| machine.clock.shows_at(end)) else {
                return Poll::Pending;
            };
            let timer = sleep.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            if timer.deadline() != at {
                Pin::as_mut(timer).reset(at);
            }
            ready!(Pin::as_mut(timer).poll(context));
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.id).finish()
    }
}
