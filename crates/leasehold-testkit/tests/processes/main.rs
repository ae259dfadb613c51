//! Tests that need several processes, real servers, or many repetitions.
//!
//! Some tests run a part of themselves in a process of its own, which is this binary once more. Such parts are
//! tests; run without their parent, they do nothing.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

mod exclusion;
mod fairness;
mod holes;
mod leaks;
mod outcomes;
mod several;
mod support;
mod threads;
