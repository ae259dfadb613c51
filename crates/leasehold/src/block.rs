//! Running a future to its end on a plain thread, without a runtime.

use std::cell::Cell;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

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
                let _ = THREAD_WAKER.try_with(|kept| kept.set(Some(thread_waker)));
                return output;
            }
            Poll::Pending => {
                let watch = watch.get_or_insert_with(|| Watch::begin(caller));
                thread_waker.wait(alarm.into_iter().chain(watch.at()).min());
                watch.check();
            }
        }
    }
}

thread_local! {
    /// The condition variable of this thread for blocking, kept for the next call.
    static THREAD_WAKER: Cell<Option<Arc<ThreadWaker>>> = const { Cell::new(None) };
    static ALARM: Cell<Alarm> = const { Cell::new(Alarm::NotBlocking) };
}

/// Whether this thread is polling a blocking future, and when a sleep inside it must be polled again.
#[derive(Clone, Copy)]
enum Alarm {
    NotBlocking,
    Unset,
    At(Instant),
}

/// Whether this thread blocks on the future that it polls.
pub(crate) fn is_blocking() -> bool {
    !matches!(ALARM.get(), Alarm::NotBlocking)
}

/// Makes the thread that is blocking here poll again at `at`.
pub(crate) fn set_alarm(at: Instant) {
    match ALARM.get() {
        Alarm::NotBlocking => {}
        Alarm::Unset => ALARM.set(Alarm::At(at)),
        Alarm::At(earlier) => ALARM.set(Alarm::At(earlier.min(at))),
    }
}

/// Runs `poll` and returns the alarm that was set in it. The outer alarm is restored, because blocking calls nest.
fn with_alarm<T>(poll: impl FnOnce() -> T) -> (T, Option<Instant>) {
    struct PutBack(Alarm);
    impl Drop for PutBack {
        fn drop(&mut self) {
            ALARM.set(self.0);
        }
    }
    let outer = PutBack(ALARM.replace(Alarm::Unset));
    let polled = poll();
    let alarm = match ALARM.get() {
        Alarm::At(at) => Some(at),
        Alarm::NotBlocking | Alarm::Unset => None,
    };
    drop(outer);
    (polled, alarm)
}

/// The condition variable of a blocked thread. Not thread parking, whose one token per thread belongs to the user.
#[derive(Default)]
struct ThreadWaker {
    // Invariant: true from a wake-up until the thread has seen it.
    woken: Mutex<bool>,
    changed: Condvar,
}

impl ThreadWaker {
    fn wait(&self, alarm: Option<Instant>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*woken {
            let Some(alarm) = alarm else {
                woken = self.changed.wait(woken).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = alarm.saturating_duration_since(env::now());
            if left.is_zero() {
                break;
            }
            woken = self.changed.wait_timeout(woken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *woken = false;
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
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
