//! What a watch of files reports.

use std::ffi::OsString;

use crate::engine::remote::store::Topic;

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    expect(dead_code, reason = "only inotify reports any")
)]
pub(super) enum Change {
    /// These may be free.
    Freed(Vec<Topic>),
    /// A file of this name was replaced or removed.
    Replaced(OsString, Vec<Topic>),
    /// Anything may have changed: events were lost, or the directory was replaced.
    Unknown,
}
