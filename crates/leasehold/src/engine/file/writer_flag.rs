//! The flag of a waiting writer, which keeps new readers out: until when, and whose it is.

use std::fs;
use std::path::Path;

use super::{Milliseconds, milliseconds, now};
use crate::engine::WRITER_PREFERENCE;
use crate::owner::OwnerId;

/// A writer waits. A flag that cannot be written keeps no reader out, and does no harm.
pub(super) fn set(path: &Path, owner: OwnerId) {
    let until = now().saturating_add(milliseconds(WRITER_PREFERENCE));
    let _ = fs::write(path, format!("{until:020} {owner}\n"));
}

/// It does not wait any more. The flag of another writer stays.
pub(super) fn clear(path: &Path, owner: OwnerId) {
    let is_own = |(_, whose): (Milliseconds, String)| whose == owner.to_string();
    if read(path).is_some_and(is_own) {
        let _ = fs::write(path, "");
    }
}

/// How long readers are kept out from now on, if they are.
pub(super) fn left(path: &Path) -> Option<Milliseconds> {
    let (until, _) = read(path)?;
    // A flag from further ahead was written before the clock was set.
    until.checked_sub(now()).filter(|left| (1..=milliseconds(WRITER_PREFERENCE)).contains(left))
}

fn read(path: &Path) -> Option<(Milliseconds, String)> {
    let text = fs::read_to_string(path).ok()?;
    let (until, owner) = text.trim_end().split_once(' ')?;
    Some((until.parse().ok()?, owner.to_owned()))
}
