//! How a task polls a future.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::dice::Dice;

/// How a future is polled, and whether until it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polling {
    /// Whenever it is woken, until it completes.
    Whole,
    /// Dropped after so many polls.
    DropAfterPolls(u64),
    /// Dropped after a time.
    DropAfter(Duration),
    /// Polled once, then not for this time, and then until it completes.
    PollLate(Duration),
}

impl Polling {
    /// One of them, mostly until it completes.
    pub(super) fn any(dice: &mut Dice) -> Self {
        Self::within(dice, Duration::from_millis(30))
    }

    /// The same with times that are at most so long.
    pub(super) fn within(dice: &mut Dice, longest: Duration) -> Self {
        let moment = dice.between(Duration::ZERO, longest);
        match dice.roll(10) {
            0 => Self::DropAfterPolls(1 + dice.roll(6)),
            1 => Self::DropAfter(moment),
            2 => Self::PollLate(moment),
            _ => Self::Whole,
        }
    }

    /// The output of the future; none if it was dropped.
    pub(super) async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        match self {
            Self::Whole => Some(future.await),
            Self::DropAfterPolls(most) => {
                let mut polls = 0;
                poll_fn(|context| {
                    polls += 1;
                    match future.as_mut().poll(context) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending if polls >= most => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            }
            Self::DropAfter(time) => timeout(time, future).await.ok(),
            Self::PollLate(time) => {
                let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
                if let Poll::Ready(output) = first {
                    return Some(output);
                }
                sleep(time).await;
                Some(future.await)
            }
        }
    }
}
