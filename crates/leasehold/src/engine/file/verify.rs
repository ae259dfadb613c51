//! The check whether this client still has what it holds.

use std::ffi::OsStr;
use std::time::Duration;

use super::lock_file::FileId;
use super::{CHECK, FileStore, Files, Place};
use crate::engine::HoldKey;
use crate::engine::remote::store::report;
use crate::loss::Loss;

/// The least pause between two checks.
const PAUSE: Duration = Duration::from_millis(2);

impl FileStore {
    /// Checks every second, and when a file was replaced, whether each hold is still one. Runs until it is dropped.
    pub(super) async fn keep_checking(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.0.suspicious.notified() => {}
                () = tokio::time::sleep(CHECK) => {}
            }
            // Many changes in a row are checked together.
            tokio::time::sleep(PAUSE).await;
            let files = std::sync::Arc::clone(&self.0);
            files.watcher.tidy();
            if files.places.lock().is_empty() {
                continue;
            }
            // It may have to read tables, and the file system may be slow.
            let _ = tokio::task::spawn_blocking(move || files.check()).await;
        }
    }
}

impl Files {
    /// Reports the loss of every hold that is gone.
    fn check(&self) {
        self.watcher.watch_directory(&self.directory.path);
        let held: Vec<_> = {
            let places = self.places.lock();
            let is_held = |place: &Place| !matches!(place, Place::Waiting(_));
            places
                .iter()
                .filter(|(_, place)| is_held(place))
                .map(|(key, place)| (key.clone(), place.clone()))
                .collect()
        };
        for (key, place) in held {
            if !self.is_held(&key, &place) {
                self.revoke(&key, &place);
            }
        }
    }

    /// Whether a hold is still one. An error that says nothing about the hold leaves it as it is.
    pub(super) fn is_held(&self, key: &HoldKey, place: &Place) -> bool {
        match place {
            Place::Held(_, id) => {
                FileId::of(&self.path(&key.resource, "lock")).map_or(true, |now| now == Some(*id))
            }
            _ => self.is_listed(key, place),
        }
    }

    fn revoke(&self, key: &HoldKey, place: &Place) {
        let mut places = self.places.lock();
        let is_same = match (places.get(key), place) {
            (Some(Place::Held(now, _)), Place::Held(before, _)) => std::sync::Arc::ptr_eq(now, before),
            (Some(Place::Counted(now)), Place::Counted(before))
            | (Some(Place::Listed(now)), Place::Listed(before)) => now == before,
            _ => false,
        };
        let gone = if is_same { places.remove(key) } else { None };
        drop(places);
        if let Some(gone) = gone {
            gone.end(key.owner, false);
            report(&self.events, |events| events.revoked_one(key, Loss::Gone));
        }
    }

    /// Whether a file of this name belongs to anything that is held.
    pub(super) fn concerns(&self, name: &OsStr) -> bool {
        let places = self.places.lock();
        let mut held = places.iter().filter(|(_, place)| !matches!(place, Place::Waiting(_)));
        held.any(|(key, _)| self.watched(&key.resource).0.file_name() == Some(name))
    }
}
