//! A future that is dropped at every point where it can be dropped.
//!
//! Every case runs repeatedly, cancelled one poll later each time, until it completes: once right after the poll that
//! returned pending, and once in place of the next poll, when it has just been woken.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Where the future is dropped.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Right after this poll of it.
    After(usize),
    /// In place of this poll, when it has just been woken.
    InPlaceOf(usize),
    /// So long after its first poll.
    At(Duration),
}

/// Polls a future until it is done or cut off.
#[derive(Debug)]
pub struct CutOff<F> {
    future: Pin<Box<F>>,
    cut: Cut,
    polls: usize,
    moment: Option<Pin<Box<Sleep>>>,
}

/// Runs a future until it is done or cut off.
pub fn cut_off<F: Future>(cut: Cut, future: F) -> CutOff<F> {
    CutOff { future: Box::pin(future), cut, polls: 0, moment: None }
}

/// How a future ended.
#[derive(Debug, PartialEq)]
pub enum Ended<T> {
    /// With this output.
    Done(T),
    /// It was dropped before.
    Cut,
}

impl<F: Future> Future for CutOff<F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls += 1;
        if matches!(self.cut, Cut::InPlaceOf(poll) if poll == self.polls) {
            return Poll::Ready(Ended::Cut);
        }
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ended::Done(output));
        }
        if matches!(self.cut, Cut::After(poll) if poll == self.polls) {
            return Poll::Ready(Ended::Cut);
        }
        if let Cut::At(moment) = self.cut {
            let moment = self.moment.get_or_insert_with(|| Box::pin(sleep(moment)));
            return moment.as_mut().poll(context).map(|()| Ended::Cut);
        }
        Poll::Pending
    }
}

/// Runs `case` under each of these circumstances and for every place to cut, until the cut is too late. The case returns
/// whether it was cut.
///
/// # Panics
///
/// When a case is cut off again and again, so that it never ends.
pub async fn everywhere<W, C, F>(circumstances: &[W], case: C)
where
    W: Copy + Debug,
    C: Fn(W, Cut) -> F,
    F: Future<Output = bool>,
{
    for under in circumstances {
        for kind in [Cut::After, Cut::InPlaceOf] {
            let mut polls = 1;
            while case(*under, kind(polls)).await {
                polls += 1;
                assert!(polls < 1000, "{under:?}: it is always cut, so it never ends");
            }
        }
    }
}
