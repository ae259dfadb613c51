//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Which of the two futures was first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Polls both and drops the slower one; the left one is asked first.
pub(crate) async fn race<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let mut left = pin!(left);
    let mut right = pin!(right);
    poll_fn(|context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
