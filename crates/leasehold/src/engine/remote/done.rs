//! A caller that waits for the outcome of its request.

use tokio::sync::oneshot;

use super::store::{Done, StoreError, Tell};
use crate::engine::Reply;
use crate::error::Failure;

/// The effect of an outcome on this client's state, and the caller that is notified afterwards.
///
/// The effect is applied where the outcome is read. The caller's future only returns its result.
pub(super) struct Caller<R, F> {
    effect: F,
    /// `None` once the caller was notified that the outcome is late.
    tell: Option<oneshot::Sender<Result<R, Failure>>>,
    is_step: bool,
}

/// A request whose outcome goes to the caller that has the reply.
pub(super) fn caller<R, F>(effect: F) -> (Caller<R, F>, Reply<R>) {
    let (tell, reply) = oneshot::channel();
    (Caller { effect, tell: Some(tell), is_step: false }, Reply::Soon(reply))
}

/// The same for a step from one count of a hold to the next: when its caller is gone, its undo may be in flight.
pub(super) fn step<R, F>(effect: F) -> (Caller<R, F>, Reply<R>) {
    let (caller, reply) = caller(effect);
    (Caller { is_step: true, ..caller }, reply)
}

impl<R, F> Caller<R, F> {
    /// A step whose caller has the other end of `tell`.
    pub(super) fn step(effect: F, tell: oneshot::Sender<Result<R, Failure>>) -> Self {
        Self { effect, tell: Some(tell), is_step: true }
    }

    /// The same, and afterwards `then`.
    pub(super) fn then<T>(
        self,
        then: impl FnOnce() + Send,
    ) -> Caller<R, impl FnOnce(Result<T, StoreError>) -> Result<R, Failure> + Send>
    where
        F: FnOnce(Result<T, StoreError>) -> Result<R, Failure> + Send,
    {
        let Self { effect, tell, is_step } = self;
        let effect = move |outcome| {
            let told = effect(outcome);
            then();
            told
        };
        Caller { effect, tell, is_step }
    }
}

impl<T, R, F> Done<T> for Caller<R, F>
where
    R: Send + 'static,
    F: FnOnce(Result<T, StoreError>) -> Result<R, Failure> + Send + 'static,
{
    fn is_awaited(&self) -> bool {
        self.tell.as_ref().is_some_and(|caller| !caller.is_closed())
    }

    fn is_wanted(&self) -> bool {
        !self.is_step || self.is_awaited()
    }

    fn late(&mut self) -> Option<Tell> {
        let caller = self.tell.take()?;
        // The caller may be gone.
        Some(Box::new(|failure| drop(caller.send(Err(failure)))))
    }

    fn done(self, outcome: Result<T, StoreError>) {
        let told = (self.effect)(outcome);
        if let Some(caller) = self.tell {
            // The caller may be gone.
            let _ = caller.send(told);
        }
    }
}
