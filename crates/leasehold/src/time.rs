//! The clock and the timer that everything here sleeps on.
//!
//! Inside a tokio runtime both are tokio's, so a paused test clock moves leases and waits. A thread that
//! blocks sleeps on its own parking; a future on any other executor borrows the timer of one small thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::block;

pub(crate) type Instant = tokio::time::Instant;

/// The time now, by the clock of the runtime we are in, or by the system's.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps until `at`.
pub(crate) fn sleep_until(at: Instant) -> Sleep {
    Sleep { at, timer: None }
}

/// Sleeps until `at`, or for ever when there is no such time.
pub(crate) async fn sleep_until_or_forever(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// `length` shortened at random by up to a half, so that waiters that failed together do not come back together.
pub(crate) fn jittered(length: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0);
    let part = (random % 512) as u32;
    length / 2 + length * part / 1024
}

/// The future of [`sleep_until`].
pub(crate) struct Sleep {
    at: Instant,
    /// Made at the first poll that is not a blocking one: only then is it known who polls.
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.at {
            return Poll::Ready(());
        }
        if block::set_alarm(self.at) {
            return Poll::Pending;
        }
        let at = self.at;
        let timer = self.timer.get_or_insert_with(|| {
            let borrowed = Handle::try_current().is_err().then(|| BORROWED_TIMER.enter());
            let timer = Box::pin(tokio::time::sleep_until(at));
            drop(borrowed);
            timer
        });
        timer.as_mut().poll(context)
    }
}

/// The timer of a thread of our own, for futures polled by an executor that is not tokio's.
static BORROWED_TIMER: LazyLock<Handle> = LazyLock::new(|| {
    let runtime =
        Builder::new_current_thread().enable_time().build().expect("a timer takes no system resource");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("leasehold-timer".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the system can start one more thread");
    handle
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_takes_away_at_most_half() {
        let second = Duration::from_secs(1);
        let drawn: Vec<_> = (0..1000).map(|_| jittered(second)).collect();
        assert!(drawn.iter().all(|length| (second / 2..second).contains(length)));
        assert!(drawn.iter().any(|length| *length != drawn[0]));
        assert!(jittered(Duration::MAX / 2048) > Duration::ZERO);
    }
}
