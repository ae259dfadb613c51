//! Values that many threads change, kept apart from those that many threads read.

/// A value in cache lines of its own. A thread that reads what would stand beside it does not wait for those that change it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);
