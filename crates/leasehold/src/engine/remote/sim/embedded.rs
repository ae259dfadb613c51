//! The handle of an engine inside the process in a test: its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::memory::{self, Memory};
use crate::engine::{Kind, Resource};
use crate::name::Name;

/// The engine behind a URL `memory:NAME` of its own.
///
/// It is the same engine as without this handle, which only inspects it. Names are full ones, namespace included.
#[derive(Debug)]
pub struct Embedded {
    url: String,
    memory: Arc<Memory>,
}

impl Embedded {
    /// An engine of its own.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasehold-test-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { url: format!("memory:{name}"), memory: memory::shared(&name) }
    }

    /// The URL by which clients join this engine, as long as this handle or a client of it lives.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Removes a lock without a release by its holder, which gets [`Loss::Gone`](crate::Loss::Gone); false if it is free.
    #[expect(clippy::must_use_candidate, reason = "the effect is the point")]
    pub fn lose_hold(&self, name: &str) -> bool {
        resources(name).filter(|resource| self.memory.remove(resource)).count() > 0
    }

    /// How many acquires wait for a lock.
    #[must_use]
    pub fn waiters(&self, name: &str) -> usize {
        resources(name).map(|resource| self.memory.waiters(&resource)).sum()
    }

    /// How many names are held or waited for: zero when nothing is left behind.
    #[must_use]
    pub fn names(&self) -> usize {
        self.memory.names()
    }
}

/// The locks that can have this name.
pub(super) fn resources(name: &str) -> impl Iterator<Item = Resource> {
    let name = Name::new("", name).ok();
    let kinds = [Kind::Lock, Kind::SetNx, Kind::Write, Kind::Group].into_iter();
    kinds.filter_map(move |kind| Some(Resource::new(kind, name.clone()?)))
}
