//! A mutex that a panic does not poison.

use std::sync::{MutexGuard, PoisonError};

/// A mutex whose state is whole whenever it is free: the library calls no foreign code while it holds one. So a panic elsewhere
/// says nothing about the state, and callers of other threads go on.
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
