//! Effects of a change that have to run once no mutex is held.

use std::sync::Arc;
use std::task::Waker;

use crate::loss::Loss;
use crate::term::Term;

/// Wakers to call and to drop, and losses to announce.
///
/// All three run foreign code: a waker can drop a whole task, and with it a guard of the very same lock.
#[derive(Debug, Default)]
#[must_use = "waiters are woken when it runs"]
pub(crate) struct Aftermath {
    pub(crate) wake: Option<Waker>,
    pub(crate) discard: Option<Waker>,
    pub(crate) announce: Option<Arc<Term>>,
    /// Boxed because most changes have at most one effect of each kind.
    pub(super) more: Option<Box<More>>,
}

/// Of each kind all but the first.
#[derive(Debug, Default)]
pub(super) struct More {
    wake: Vec<Waker>,
    discard: Vec<Waker>,
    announce: Vec<Arc<Term>>,
}

impl Aftermath {
    pub(crate) fn waking(wakers: impl IntoIterator<Item = Waker>) -> Self {
        let one = |waker| Self { wake: Some(waker), ..Self::default() };
        wakers.into_iter().map(one).fold(Self::default(), Self::and)
    }

    /// Ends these terms at once; tasks that wait for them are woken afterwards.
    pub(crate) fn losing(terms: impl IntoIterator<Item = Arc<Term>>, loss: Loss) -> Self {
        let one = |term: Arc<Term>| {
            term.mark_lost(loss);
            Self { announce: Some(term), ..Self::default() }
        };
        terms.into_iter().map(one).fold(Self::default(), Self::and)
    }

    /// Wakes these, too, and leaves `wake` as it is.
    pub(crate) fn also_waking(mut self, wakers: impl IntoIterator<Item = Waker>) -> Self {
        self.also_wake(wakers);
        self
    }

    /// The same.
    pub(crate) fn also_wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        let mut wakers = wakers.into_iter().peekable();
        if wakers.peek().is_some() {
            self.more.get_or_insert_default().wake.extend(wakers);
        }
    }

    pub(crate) fn run(self) {
        // As after most changes.
        if self.is_empty() {
            return;
        }
        let More { wake, discard, announce } = self.more.map_or_else(More::default, |more| *more);
        for term in self.announce.into_iter().chain(announce) {
            term.announce();
        }
        for waker in self.wake.into_iter().chain(wake) {
            waker.wake();
        }
        drop((self.discard, discard));
    }

    /// This, and the other.
    pub(crate) fn and(mut self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if !other.is_empty() {
            let More { wake, discard, announce } = other.more.map_or_else(More::default, |more| *more);
            let more = self.more.get_or_insert_default();
            more.wake.extend(other.wake.into_iter().chain(wake));
            more.discard.extend(other.discard.into_iter().chain(discard));
            more.announce.extend(other.announce.into_iter().chain(announce));
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.wake.is_none() && self.discard.is_none() && self.announce.is_none() && self.more.is_none()
    }
}
