//! A view of a hold for the work under it.

use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Classified as _, LostError, Subject};
use crate::loss::Loss;
use crate::operation::Operation;
use crate::quorum_lock::Members;
use crate::race::{First, first, race};
use crate::running_under::Under;
use crate::term::Term;

/// What the work under a lock can ask about it, from [`run_with`](crate::Acquire::run_with): whether it is still held, for how
/// long, and when it is lost.
///
/// It is owned and cheap to clone, so tasks and threads that do a part of the work can have one each. It holds nothing: the lock
/// is released when the work is done, and from then on a view that is still there says that the lock is not held, unless the same
/// owner has entered it elsewhere. Zero permits count as held for ever.
#[derive(Clone)]
pub struct HoldView(View);

#[derive(Clone)]
enum View {
    One(Viewed),
    /// All of these locks.
    All(Arc<[Viewed]>),
    Majority(Arc<Members>),
    /// Zero permits, which cannot be lost.
    Nothing,
}

/// One hold.
#[derive(Clone)]
pub(crate) struct Viewed {
    pub(crate) term: Arc<Term>,
    pub(crate) token: Option<u64>,
    pub(crate) subject: Subject,
}

impl Viewed {
    fn check(&self) -> Result<(), LostError> {
        // Without a loss it was released.
        if self.term.is_held() {
            return Ok(());
        }
        self.term.log_loss();
        Err(self.error(self.term.loss().unwrap_or(Loss::Gone)))
    }

    fn error(&self, loss: Loss) -> LostError {
        LostError::from(loss).about(&self.subject)
    }
}

impl HoldView {
    pub(crate) fn one(viewed: Viewed) -> Self {
        Self(View::One(viewed))
    }

    pub(crate) fn all(viewed: impl IntoIterator<Item = Viewed>) -> Self {
        Self(View::All(viewed.into_iter().collect()))
    }

    pub(crate) fn majority(members: Arc<Members>) -> Self {
        Self(View::Majority(members))
    }

    pub(crate) fn nothing() -> Self {
        Self(View::Nothing)
    }

    /// Whether the lock is held now, by the clock. See [`Guard::is_held`](crate::Guard::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// An error if the lock is not held any more, for `hold.check()?` between two steps of the work.
    ///
    /// # Errors
    ///
    /// [`LostError`] with the cause; [`Loss::Gone`] once the lock was released.
    pub fn check(&self) -> Result<(), LostError> {
        match &self.0 {
            View::One(viewed) => viewed.check(),
            View::All(all) => all.iter().try_for_each(Viewed::check),
            View::Majority(members) => members.check(),
            View::Nothing => Ok(()),
        }
    }

    /// How long the lock is certainly held if nothing renews it from now on; zero once it is not held. See
    /// [`Guard::remaining`](crate::Guard::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match &self.0 {
            View::One(viewed) => viewed.term.remaining(),
            View::All(all) => all.iter().map(|viewed| viewed.term.remaining()).min().unwrap_or_default(),
            View::Majority(members) => members.remaining(),
            View::Nothing => Duration::MAX,
        }
    }

    /// The fencing token, if one was requested. A lock that consists of several has none.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        if let View::One(viewed) = &self.0 { viewed.token } else { None }
    }

    /// Reports that the work makes progress. See [`Guard::progress`](crate::Guard::progress).
    pub fn progress(&self) {
        if let View::One(viewed) = &self.0 {
            viewed.term.progress();
        }
    }

    /// Resolves with the cause when the lock is lost: at once if it was lost before, and never after a release.
    pub fn lost(&self) -> Operation<Loss> {
        match &self.0 {
            View::One(viewed) => Operation::new(Arc::clone(&viewed.term).lost()),
            View::All(all) => Operation::new(first(
                all.iter().map(|viewed| Box::pin(Arc::clone(&viewed.term).lost())).collect(),
            )),
            View::Majority(members) => Members::lost(Arc::clone(members)),
            View::Nothing => Operation::new(pending()),
        }
    }

    /// From now on this thread runs under the lock, until the result is dropped.
    pub(crate) fn enter(&self) -> Under {
        let all = match &self.0 {
            View::One(viewed) => std::slice::from_ref(viewed),
            View::All(all) => all,
            View::Majority(_) | View::Nothing => &[],
        };
        Under::new(all.iter().map(|viewed| Arc::clone(&viewed.term)))
    }

    /// Runs `work` as long as the lock is held, and drops it when the lock is lost.
    pub(crate) async fn during<F: Future>(&self, work: F) -> Result<F::Output, LostError> {
        match race(self.lost(), pin!(work)).await {
            First::Left(loss) => Err(self.check().err().unwrap_or_else(|| loss.into())),
            First::Right(output) => Ok(output),
        }
    }
}

impl fmt::Debug for HoldView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldView")
            .field("is_held", &self.is_held())
            .field("remaining", &self.remaining())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
