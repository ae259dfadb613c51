//! What has to happen after a change, once no mutex is held.

use std::sync::Arc;
use std::task::Waker;

use crate::term::Term;

/// Wakers to call and to drop, and losses to announce.
///
/// All three run code that is not ours: a waker can drop a whole task, and with it a guard of the very same lock.
#[derive(Debug, Default)]
#[must_use = "somebody waits for it"]
pub(crate) struct Aftermath {
    pub(crate) wake: Option<Waker>,
    pub(crate) also_wake: Vec<Waker>,
    pub(crate) discard: Option<Waker>,
    pub(crate) announce: Option<Arc<Term>>,
    pub(crate) announce_all: Vec<Arc<Term>>,
    /// Two of them, where one change has many effects.
    pub(crate) both: Option<Box<(Self, Self)>>,
}

impl Aftermath {
    pub(crate) fn run(self) {
        // As after most changes.
        if self.is_empty() {
            return;
        }
        for term in self.announce.into_iter().chain(self.announce_all) {
            term.announce();
        }
        for waker in self.wake.into_iter().chain(self.also_wake) {
            waker.wake();
        }
        drop(self.discard);
        if let Some(both) = self.both {
            both.0.run();
            both.1.run();
        }
    }

    /// This, and then the other.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Self { both: Some(Box::new((self, other))), ..Self::default() },
        }
    }

    fn is_empty(&self) -> bool {
        self.wake.is_none()
            && self.also_wake.is_empty()
            && self.discard.is_none()
            && self.announce.is_none()
            && self.announce_all.is_empty()
            && self.both.is_none()
    }
}
