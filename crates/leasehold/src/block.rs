//! Running a future to its end on a plain thread, without a runtime.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::env::{self, Instant};
use crate::runtime_thread::Watch;

/// Blocks the calling thread until `future` is done.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    // The thread's own, unless an outer call uses it or the thread is ending. An old waker may still wake it: then
    // the future is polled once more than needed.
    let thread_waker = THREAD_WAKER.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let waker = Waker::from(Arc::clone(&thread_waker));
    let mut context = Context::from_waker(&waker);
    // Inside a tokio task, the budget of that task would run out, and never be renewed while the thread blocks.
    let mut future = pin!(tokio::task::unconstrained(future));
    let (caller, mut watch) = (Location::caller(), None);
    loop {
        let (polled, alarm) = with_alarm(|| future.as_mut().poll(&mut context));
        match polled {
            Poll::Ready(output) => {
                drop(alarm.take_reader());
                let _ = THREAD_WAKER.try_with(|kept| kept.set(Some(thread_waker)));
                return output;
            }
            Poll::Pending => {
                let watch = watch.get_or_insert_with(|| Watch::begin(caller));
                let at = alarm.at.into_iter().chain(watch.at()).min();
                match alarm.take_reader() {
                    Some(reader) => thread_waker.wait_reading(&reader, at),
                    None => thread_waker.wait(at),
                }
                watch.check();
            }
        }
    }
}

thread_local! {
    /// The condition variable of this thread for blocking, kept for the next call.
    static THREAD_WAKER: Cell<Option<Arc<ThreadWaker>>> = const { Cell::new(None) };
    static ALARM: Cell<Alarm> = const { Cell::new(Alarm::NOT_BLOCKING) };
    static READER: RefCell<Option<Arc<dyn EventReader>>> = const { RefCell::new(None) };
}

/// Whether this thread is polling a blocking future, and how it sleeps after that.
#[derive(Clone, Copy)]
struct Alarm {
    is_blocking: bool,
    /// When a sleep inside the future must be polled again.
    at: Option<Instant>,
    /// It waits for `READER`.
    has_reader: bool,
}

impl Alarm {
    const NOT_BLOCKING: Self = Self { is_blocking: false, at: None, has_reader: false };
    const UNSET: Self = Self { is_blocking: true, ..Self::NOT_BLOCKING };

    /// The reader of this alarm. It is mostly not there, and is not looked for then.
    fn take_reader(self) -> Option<Arc<dyn EventReader>> {
        if self.has_reader { READER.try_with(RefCell::take).ok().flatten() } else { None }
    }
}

/// Whether this thread blocks on the future that it polls.
pub(crate) fn is_blocking() -> bool {
    ALARM.get().is_blocking
}

/// Makes the thread that is blocking here poll again at `at`.
pub(crate) fn set_alarm(at: Instant) {
    let alarm = ALARM.get();
    if alarm.is_blocking {
        let at = alarm.at.map_or(at, |earlier| earlier.min(at));
        ALARM.set(Alarm { at: Some(at), ..alarm });
    }
}

/// Reads what a blocked thread is to be woken by on that thread, so that no other thread has to be woken first, only to wake this one.
pub(crate) trait EventReader: Send + Sync {
    /// Blocks until there is something to read, and returns true; or until it is interrupted, or the time is over.
    fn wait(&self, limit: Option<Duration>) -> bool;

    /// Reads what is there, which may wake this and other waiters.
    fn read(&self);

    /// Ends [`wait`](Self::wait), from another thread.
    fn interrupt(&self);
}

/// Makes the thread that is blocking here wait for what this reads, until the next poll.
#[cfg(all(feature = "file", any(target_os = "linux", target_os = "android")))]
pub(crate) fn read_by(reader: Arc<dyn EventReader>) {
    // Not while the thread ends: then another thread reads.
    if READER.try_with(|kept| kept.replace(Some(reader))).is_ok() {
        ALARM.set(Alarm { has_reader: true, ..ALARM.get() });
    }
}

/// Runs `poll` and returns the alarm that was set in it. The outer one is restored, because blocking calls nest: its reader is
/// given up, and the thread takes another one at its next poll.
fn with_alarm<T>(poll: impl FnOnce() -> T) -> (T, Alarm) {
    struct PutBack(Alarm);
    impl Drop for PutBack {
        fn drop(&mut self) {
            let inner = ALARM.replace(self.0);
            if std::thread::panicking() {
                drop(inner.take_reader());
            }
        }
    }
    let outer = ALARM.replace(Alarm::UNSET);
    drop(outer.take_reader());
    let outer = PutBack(Alarm { has_reader: false, ..outer });
    let polled = poll();
    let alarm = ALARM.get();
    drop(outer);
    (polled, alarm)
}

/// How a blocked thread is woken. Not thread parking, whose one token per thread belongs to the user.
#[derive(Default)]
struct ThreadWaker {
    state: Mutex<Woken>,
    changed: Condvar,
}

#[derive(Default)]
struct Woken {
    // Invariant: true from a wake-up until the thread has seen it.
    woken: bool,
    /// What the thread waits for, if not for the condition variable.
    reader: Option<Arc<dyn EventReader>>,
}

impl ThreadWaker {
    fn state(&self) -> MutexGuard<'_, Woken> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, alarm: Option<Instant>) {
        let mut state = self.state();
        while !state.woken {
            let Some(alarm) = alarm else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = alarm.saturating_duration_since(env::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.woken = false;
    }

    /// The same in a reader.
    fn wait_reading(&self, reader: &Arc<dyn EventReader>, alarm: Option<Instant>) {
        loop {
            let left = alarm.map(|alarm| alarm.saturating_duration_since(env::now()));
            {
                let mut state = self.state();
                if state.woken || left.is_some_and(|left| left.is_zero()) {
                    state.woken = false;
                    return;
                }
                state.reader = Some(Arc::clone(reader));
            }
            let is_readable = reader.wait(left);
            // What it reads may wake this thread, which needs no interrupt for that.
            self.state().reader = None;
            if is_readable {
                reader.read();
            }
        }
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        let mut state = self.state();
        state.woken = true;
        match &state.reader {
            Some(reader) => reader.interrupt(),
            None => self.changed.notify_one(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wake_up_from_another_thread_and_a_timer_both_end_a_blocking_call() {
        let (send, receive) = tokio::sync::oneshot::channel();
        let sender = std::thread::spawn(move || send.send(7).unwrap());
        assert_eq!(block_on(receive).unwrap(), 7);
        sender.join().unwrap();

        let start = env::now();
        block_on(env::sleep_until(start + Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn blocking_calls_can_be_nested() {
        let inner_end = env::now() + Duration::from_millis(5);
        let outer_end = env::now() + Duration::from_millis(10);
        block_on(async {
            env::sleep_until(inner_end).await;
            block_on(env::sleep_until(inner_end + Duration::from_millis(2)));
            env::sleep_until(outer_end).await;
        });
        assert!(env::now() >= outer_end);
        assert!(!is_blocking());
    }
}
