//! Timers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use super::{BORROWED_TIMER, Instant, after, now};
use crate::block;

/// Sleeps until `at`.
pub(crate) fn sleep_until(at: Instant) -> Sleep {
    sleep_until_or_forever(Some(at))
}

/// Sleeps until `at`, or for ever when there is no such time.
pub(crate) fn sleep_until_or_forever(at: Option<Instant>) -> Sleep {
    Sleep { end: at.map_or(End::Never, End::At), timer: None }
}

/// Sleeps so long from the first poll on, without reading the clock before it.
pub(crate) fn sleep_for(length: Duration) -> Sleep {
    Sleep { end: End::After(length), timer: None }
}

/// The future of [`sleep_until`].
pub(crate) struct Sleep {
    pub(super) end: End,
    /// Created at the first poll that is not a blocking one: only then is the executor known.
    pub(super) timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// When a sleep is over.
#[derive(Clone, Copy)]
pub(super) enum End {
    At(Instant),
    After(Duration),
    Never,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        in_simulation!(|host| host.poll_sleep(&mut self, context));
        let left = match self.end {
            End::At(at) => at.saturating_duration_since(now()),
            End::After(length) => length,
            End::Never => return Poll::Pending,
        };
        if left.is_zero() {
            return Poll::Ready(());
        }
        if block::is_blocking() {
            let at = if let End::At(at) = self.end { Some(at) } else { after(left) };
            self.end = at.map_or(End::Never, End::At);
            if let Some(at) = at {
                block::set_alarm(at);
            }
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| {
            let borrowed = Handle::try_current().is_err().then(|| BORROWED_TIMER.enter());
            let timer = Box::pin(tokio::time::sleep(left));
            drop(borrowed);
            timer
        });
        timer.as_mut().poll(context)
    }
}
