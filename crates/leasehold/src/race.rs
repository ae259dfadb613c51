//! Waiting for the first of some futures, or for all of them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Which of the two futures was first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Polls both and drops the slower one; the left one is polled first.
///
/// The caller pins futures that need it, and keeps them in its own future: moved into this one, they would be stored twice.
pub(crate) fn race<A, B>(
    mut left: A,
    mut right: B,
) -> impl Future<Output = First<A::Output, B::Output>> + Unpin
where
    A: Future + Unpin,
    B: Future + Unpin,
{
    poll_fn(move |context| {
        if let Poll::Ready(output) = Pin::new(&mut left).poll(context) {
            return Poll::Ready(First::Left(output));
        }
        Pin::new(&mut right).poll(context).map(First::Right)
    })
}

/// The output of the future that is done first.
pub(crate) async fn first<F: Future + Unpin>(mut futures: Vec<F>) -> F::Output {
    poll_fn(|context| {
        let ready = futures.iter_mut().find_map(|future| match Pin::new(future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The outputs of all, in order, when the last is done.
pub(crate) async fn all<F: Future + Unpin>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F::Output: Unpin,
{
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut futures {
            if let Some(Poll::Ready(done)) = future.as_mut().map(|future| Pin::new(future).poll(context)) {
                (*future, *output) = (None, Some(done));
            }
        }
        if futures.iter().any(|(future, _)| future.is_some()) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}
