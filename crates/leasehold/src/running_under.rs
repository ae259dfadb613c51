//! Which locks this thread runs under: those whose release comes after the code that runs now, by the shape of the calls.

use std::cell::RefCell;
use std::sync::Arc;

use crate::client::Shared;
use crate::engine::{Kind, Resource};
use crate::error::{AcquireError, Classified as _, InvalidRequestError};
use crate::term::Term;

thread_local! {
    static UNDER: RefCell<Vec<Arc<Term>>> = const { RefCell::new(Vec::new()) };
}

/// The thread runs under some locks until this is dropped.
pub(crate) struct Under {
    before: usize,
}

impl Under {
    pub(crate) fn new(terms: impl IntoIterator<Item = Arc<Term>>) -> Self {
        let begin = |under: &RefCell<Vec<_>>| {
            let mut under = under.borrow_mut();
            let before = under.len();
            under.extend(terms);
            before
        };
        // None on a thread that is ending.
        Self { before: UNDER.try_with(begin).unwrap_or(0) }
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        let ended = UNDER.try_with(|under| under.borrow_mut().split_off(self.before));
        // Outside of the borrow: the last reference to a term may be among them.
        drop(ended);
    }
}

/// An error if a call that blocks this thread until it has this resource, as a new owner, would wait for itself: the thread runs
/// under a hold that excludes it and that does not end by itself.
pub(crate) fn check_waits_for_others(shared: &Arc<Shared>, resource: &Resource) -> Result<(), AcquireError> {
    let excludes = |term: &Arc<Term>| {
        let Some(hold) = term.hold() else { return false };
        let both_read = hold.key.resource.kind == Kind::Read && resource.kind == Kind::Read;
        Arc::ptr_eq(&hold.shared, shared)
            && hold.key.resource.overlaps(resource)
            && !both_read
            && term.is_endless()
    };
    // A thread that is ending runs under nothing.
    if UNDER.try_with(|under| under.borrow().iter().any(excludes)).unwrap_or(false) {
        let invalid = AcquireError::from(InvalidRequestError::WouldDeadlock);
        return Err(invalid.about(&shared.subject(resource)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Client, Error, Loss};

    #[test]
    fn a_hold_that_ends_by_itself_is_waited_for() {
        let lock = Client::connect("memory:").block().unwrap().lock("a");
        let waited = lock.acquire().lease(Duration::from_millis(50)).run_blocking(|hold| {
            let next = lock.acquire().block()?;
            assert!(next.is_held() && !hold.is_held());
            Ok::<_, Error>(())
        });
        assert!(matches!(waited, Err(Error::Lost(error)) if error.loss == Loss::Expired));
        assert!(lock.try_acquire().block().unwrap().is_some());
    }
}
