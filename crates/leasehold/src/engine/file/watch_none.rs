//! Without inotify, waiters poll.

use std::path::Path;

use super::change::Change;
use crate::engine::remote::store::Topic;

#[derive(Debug, Default)]
pub(super) struct Watcher;

impl Watcher {
    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn watch_directory(&self, _directory: &Path) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn is_watching(&self) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn watch(&self, _directory: &Path, _file: &Path, _closes: bool, _topic: &Topic) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn watch_again(&self, _file: &Path) {}

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn unwatch(&self, _file: &Path, _topic: &Topic) {}

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn tidy(&self) {}

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn was_just_closed(&self, _file: &Path) -> bool {
        false
    }

    pub(super) async fn begun(&self) {
        std::future::pending().await
    }

    pub(super) async fn run(&self, _has_callers: bool, _report: impl Fn(Change)) {
        std::future::pending().await
    }

    pub(super) fn readable(&self) -> Option<Readable> {
        None
    }

    #[expect(clippy::unused_self, reason = "as with inotify")]
    pub(super) fn read_for_callers(&self, readable: &Readable, _report: impl Fn(Change)) {
        match *readable {}
    }
}

/// There is none.
#[derive(Debug)]
pub(super) enum Readable {}

impl Readable {
    pub(super) async fn readable(&self) -> std::io::Result<()> {
        match *self {}
    }
}
