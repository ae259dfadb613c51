//! A mutex that a panic does not poison.

use std::sync::{MutexGuard, PoisonError};

/// A mutex whose state is consistent wherever foreign code, such as a waker, can panic. So one panic ends its own task, and
/// other callers continue.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self(std::sync::Mutex::new(state))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
