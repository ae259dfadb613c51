//! Work under a lock, from the acquire to the release.
//!
//! What the caller gets is decided in this order: the error of the acquire; the loss of the lock while the work runs, which drops
//! the work; the work's own error; a loss that only the release notices. A release without a reply does not make the work
//! fail, since the lock was held until the work was done.

use std::future::{Future, poll_fn};
use std::pin::pin;

use crate::error::{Error, LostError, ReleaseError};
use crate::hold_view::HoldView;
use crate::operation::Operation;

/// A guard that work can run under.
pub(crate) trait Guarded: Send {
    fn view(&self) -> HoldView;

    /// Releases it and returns the result.
    fn end(self) -> Operation<Result<(), ReleaseError>>;
}

/// Runs `work` under a guard, as long as that holds the lock.
pub(crate) async fn under<G, T, E, F>(guard: G, work: impl FnOnce(HoldView) -> F) -> Result<T, E>
where
    G: Guarded,
    F: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    let view = guard.view();
    let (work, of) = (work(view.clone()), view.clone());
    // The work is gone when this is done, and so before the lock is free.
    let work = async move {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _under = of.enter();
            work.as_mut().poll(context)
        })
        .await
    };
    let done = match view.during(work).await {
        Ok(done) => done,
        Err(error) => {
            // Of several locks the others are still held.
            let _ = guard.end().await;
            return Err(lost(error));
        }
    };
    note_loss(&view, &done);
    outcome(done, guard.end().await)
}

/// The same on a plain thread, where work cannot be ended from outside: a loss is reported after it.
#[track_caller]
pub(crate) fn under_blocking<G, T, E>(guard: G, work: impl FnOnce(HoldView) -> Result<T, E>) -> Result<T, E>
where
    G: Guarded,
    E: From<Error>,
{
    let view = guard.view();
    let done = {
        let _under = view.enter();
        work(view.clone())
    };
    note_loss(&view, &done);
    outcome(done, guard.end().block())
}

/// An error of the work is what the caller gets, so a loss beside it is only logged.
fn note_loss<T, E>(view: &HoldView, done: &Result<T, E>) {
    if let (Err(_), Err(error)) = (done, view.check()) {
        tracing::warn!(%error, "the work under the lock failed, and the lock was lost besides");
    }
}

fn outcome<T, E: From<Error>>(done: Result<T, E>, released: Result<(), ReleaseError>) -> Result<T, E> {
    let done = done?;
    match released {
        Ok(()) => Ok(done),
        Err(ReleaseError::NotHeld { loss, subject, .. }) => Err(lost(LostError { loss, subject })),
        Err(error @ ReleaseError::Unknown { .. }) => {
            tracing::warn!(%error, "the work under the lock is done, and its release had no usable reply");
            Ok(done)
        }
        Err(error) => Err(Error::from(error).into()),
    }
}

fn lost<E: From<Error>>(error: LostError) -> E {
    Error::from(error).into()
}

/// Gives a request for a lock, whose future resolves to a guard, the methods that run work under it.
macro_rules! runs_work {
    ([$($generics:tt)*] $request:ty) => {
        #[allow(private_bounds, reason = "which guards there are is not for others to add to")]
        impl<$($generics)*> $request {
            /// Acquires the lock, runs `work` while it is held, and releases it.
            ///
            /// The work is not begun before the lock is held, and is dropped where it is when the lock is lost: it should not
            /// leave half of a change behind at an `.await`. **Threads that the work has started are not ended by that**, so
            /// blocking work such as `spawn_blocking` would go on without the lock: use
            /// [`run_blocking`](Self::run_blocking) inside it.
            ///
            /// # Errors
            ///
            /// In this order:
            ///
            /// - [`Error::Acquire`](crate::Error::Acquire) if the lock was not acquired; the work is dropped and was never polled;
            /// - [`Error::Lost`](crate::Error::Lost) if the lock was lost while the work ran;
            /// - the work's own error, unchanged, whatever becomes of the lock (a loss beside it is logged as a warning);
            /// - `Error::Lost` if the work was done and the release finds that the lock had been gone before.
            ///
            /// If the work was done while the lock was held, and only the release had no usable reply, the result is that of the
            /// work, and a warning is logged: the release continues in the background.
            ///
            /// The error type of the work has to implement `From<leasehold::Error>`: `anyhow::Error` does, `leasehold::Error`
            /// itself, and an enum with `#[from] leasehold::Error`.
            ///
            /// # Panics
            ///
            /// If the work does: then the lock is released.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future at any point drops the work, and leaves neither a hold nor a position in the wait queue.
            pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
            where
                F: std::future::Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                self.run_with(|_| work).await
            }

            /// The same for work that asks about the lock: it gets a [`HoldView`](crate::HoldView).
            ///
            /// # Errors
            ///
            /// As for [`run`](Self::run).
            ///
            /// # Panics
            ///
            /// As for [`run`](Self::run).
            ///
            /// # Cancel safety
            ///
            /// As for [`run`](Self::run).
            pub async fn run_with<T, E, F>(self, work: impl FnOnce($crate::HoldView) -> F) -> Result<T, E>
            where
                F: std::future::Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                let guard = std::future::IntoFuture::into_future(self).await;
                $crate::run::under(guard.map_err($crate::Error::from)?, work).await
            }

            /// The same on a plain thread, or inside `spawn_blocking`: it blocks until the work is done and the lock is released.
            ///
            /// Such work cannot be ended from outside. It goes on after a loss, which is reported after it: long work should
            /// call [`check`](crate::HoldView::check) between its steps.
            ///
            /// # Errors
            ///
            /// As for [`run`](Self::run).
            ///
            /// # Panics
            ///
            /// As for [`run`](Self::run).
            #[track_caller]
            pub fn run_blocking<T, E>(
                self,
                work: impl FnOnce($crate::HoldView) -> Result<T, E>,
            ) -> Result<T, E>
            where
                E: From<$crate::Error>,
            {
                $crate::run::under_blocking(self.block().map_err($crate::Error::from)?, work)
            }
        }
    };
}

/// The same for a single attempt, whose future resolves to a guard or to none.
macro_rules! runs_work_if_free {
    ([$($generics:tt)*] $request:ty) => {
        #[allow(private_bounds, reason = "which guards there are is not for others to add to")]
        impl<$($generics)*> $request {
            /// Runs `work` under the lock if it is free: `None` if it is not, and the work was never polled then. For the rest see
            /// [`Acquire::run`](crate::Acquire::run).
            ///
            /// # Errors
            ///
            /// As for [`Acquire::run`](crate::Acquire::run).
            ///
            /// # Panics
            ///
            /// If the work does: then the lock is released.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future at any point drops the work and leaves nothing behind.
            pub async fn run<T, E, F>(self, work: F) -> Result<Option<T>, E>
            where
                F: std::future::Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                self.run_with(|_| work).await
            }

            /// The same for work that asks about the lock: it gets a [`HoldView`](crate::HoldView).
            ///
            /// # Errors
            ///
            /// As for [`Acquire::run`](crate::Acquire::run).
            ///
            /// # Panics
            ///
            /// If the work does: then the lock is released.
            ///
            /// # Cancel safety
            ///
            /// As for [`run`](Self::run).
            pub async fn run_with<T, E, F>(
                self,
                work: impl FnOnce($crate::HoldView) -> F,
            ) -> Result<Option<T>, E>
            where
                F: std::future::Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                match std::future::IntoFuture::into_future(self).await.map_err($crate::Error::from)? {
                    Some(guard) => $crate::run::under(guard, work).await.map(Some),
                    None => Ok(None),
                }
            }

            /// The same on a plain thread, or inside `spawn_blocking`. For the rest see
            /// [`Acquire::run_blocking`](crate::Acquire::run_blocking).
            ///
            /// # Errors
            ///
            /// As for [`Acquire::run`](crate::Acquire::run).
            ///
            /// # Panics
            ///
            /// If the work does: then the lock is released.
            #[track_caller]
            pub fn run_blocking<T, E>(
                self,
                work: impl FnOnce($crate::HoldView) -> Result<T, E>,
            ) -> Result<Option<T>, E>
            where
                E: From<$crate::Error>,
            {
                match self.block().map_err($crate::Error::from)? {
                    Some(guard) => $crate::run::under_blocking(guard, work).map(Some),
                    None => Ok(None),
                }
            }
        }
    };
}

pub(crate) use runs_work;
pub(crate) use runs_work_if_free;
