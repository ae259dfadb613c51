//! The engines behind `memory:NAME`, shared by all clients of the process that use the same name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use super::{Memory, PROFILE};
use crate::engine::Engine;
use crate::engine::schemes::Scheme;
use crate::mutex::Mutex;
use crate::url::UrlError;

pub(crate) const SCHEME: Scheme = Scheme {
    names: &["memory"],
    usage: "`memory:` (an engine inside this process, for one client), \
            `memory:NAME` (the same, shared by all clients of this process that use NAME)",
    profile: &PROFILE,
    server: |_| None,
    open: |url, _| {
        let name = url.split_once(':').map_or("", |(_, name)| name).to_owned();
        if name.starts_with('/') {
            let text = "a memory engine has no host and no path: write `memory:` or `memory:NAME`";
            return Err(UrlError::Malformed(text.to_owned()));
        }
        Ok(Box::pin(async move {
            let engine = if name.is_empty() { Memory::new() } else { shared(&name) };
            Ok(engine as Arc<dyn Engine>)
        }))
    },
};

/// The engine of this name, made for the first client and dropped with the last.
pub(crate) fn shared(name: &str) -> Arc<Memory> {
    // Invariant: at most one living engine for each name.
    static ENGINES: LazyLock<Mutex<HashMap<String, Weak<Memory>>>> = LazyLock::new(Mutex::default);
    let mut engines = ENGINES.lock();
    if let Some(engine) = engines.get(name).and_then(Weak::upgrade) {
        return engine;
    }
    // Names whose engine is gone are removed when the next engine is made.
    engines.retain(|_, engine| engine.strong_count() > 0);
    let engine = Memory::new();
    engines.insert(name.to_owned(), Arc::downgrade(&engine));
    engine
}
