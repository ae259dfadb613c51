//! A caller that waits for the outcome of its request.

use tokio::sync::oneshot;

use super::store::{Done, LateNotice, StoreError};
use crate::engine::Reply;
use crate::error::ServerError;

/// The effect of an outcome on this client's state, and the caller that is notified afterwards.
///
/// The effect is applied where the outcome is read. The caller's future only returns its result.
pub(super) struct Caller<R, F> {
    effect: F,
    /// `None` once the caller was notified that the outcome is late.
    sender: Option<oneshot::Sender<Result<R, ServerError>>>,
    is_step: bool,
}

/// A request whose outcome goes to the caller that has the reply.
pub(super) fn caller<R, F>(effect: F) -> (Caller<R, F>, Reply<R>) {
    let (sender, reply) = oneshot::channel();
    (Caller { effect, sender: Some(sender), is_step: false }, Reply::Soon(reply))
}

/// The same for a step from one count of a hold to the next: when its caller is gone, its undo may be in flight.
pub(super) fn step<R, F>(effect: F) -> (Caller<R, F>, Reply<R>) {
    let (caller, reply) = caller(effect);
    (Caller { is_step: true, ..caller }, reply)
}

impl<R, F> Caller<R, F> {
    /// A step whose caller has the other end of `sender`.
    pub(super) fn step(effect: F, sender: oneshot::Sender<Result<R, ServerError>>) -> Self {
        Self { effect, sender: Some(sender), is_step: true }
    }

    /// The same, and afterwards `then`.
    pub(super) fn then<T>(
        self,
        then: impl FnOnce() + Send,
    ) -> Caller<R, impl FnOnce(Result<T, StoreError>) -> Result<R, ServerError> + Send>
    where
        F: FnOnce(Result<T, StoreError>) -> Result<R, ServerError> + Send,
    {
        let Self { effect, sender, is_step } = self;
        let effect = move |outcome| {
            let result = effect(outcome);
            then();
            result
        };
        Caller { effect, sender, is_step }
    }
}

impl<T, R, F> Done<T> for Caller<R, F>
where
    R: Send + 'static,
    F: FnOnce(Result<T, StoreError>) -> Result<R, ServerError> + Send + 'static,
{
    fn is_awaited(&self) -> bool {
        self.sender.as_ref().is_some_and(|caller| !caller.is_closed())
    }

    fn is_wanted(&self) -> bool {
        !self.is_step || self.is_awaited()
    }

    fn late(&mut self) -> Option<LateNotice> {
        let caller = self.sender.take()?;
        // The caller may be gone.
        Some(Box::new(|failure| drop(caller.send(Err(failure)))))
    }

    fn done(self, outcome: Result<T, StoreError>) {
        let result = (self.effect)(outcome);
        if let Some(caller) = self.sender {
            // The caller may be gone.
            let _ = caller.send(result);
        }
    }
}
