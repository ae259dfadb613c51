//! Marks by which records find their own end.
//!
//! A record sends its mark to the server. When the mark appears in the record, all earlier entries are there.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
};

const PREFIX: &str = "leasehold-testkit: so far ";

/// A text that no other record uses.
pub(super) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{PREFIX}{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether a line that a monitor recorded is only such a mark.
pub(super) fn is_in(line: &str) -> bool {
    line.contains(PREFIX)
}
