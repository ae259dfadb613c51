//! Values that many threads change, kept apart from those that many threads read.

/// A value in its own cache lines. A thread that reads a neighbouring value does not wait for threads that change this one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
