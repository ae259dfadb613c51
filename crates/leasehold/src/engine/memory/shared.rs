//! The engines behind `memory:NAME`, shared by all clients of the process that say the same name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::{Memory, PROFILE};
use crate::engine::Engine;
use crate::engine::schemes::Scheme;
use crate::url::UrlError;

pub(crate) const SCHEME: Scheme = Scheme {
    names: &["memory"],
    usage: "`memory:` (an engine inside this process, for one client), \
            `memory:NAME` (the same, shared by all clients of this process that say NAME)",
    profile: &PROFILE,
    open: |url, _| {
        let name = url.trim_start_matches("memory:").to_owned();
        if name.starts_with('/') {
            return Err(UrlError::MemoryPath);
        }
        Ok(Box::pin(async move { Ok(if name.is_empty() { Memory::new() } else { shared(&name) }) }))
    },
};

static ENGINES: LazyLock<Mutex<HashMap<String, Weak<dyn Engine>>>> = LazyLock::new(Mutex::default);

/// The engine of this name, made when the first client asks for it and gone with the last.
fn shared(name: &str) -> Arc<dyn Engine> {
    let mut engines = engines();
    if let Some(engine) = engines.get(name).and_then(Weak::upgrade) {
        return engine;
    }
    let engine: Arc<dyn Engine> = Memory::new();
    insert(&mut engines, name, &engine);
    engine
}

/// Puts an engine under a name of its own.
#[cfg(feature = "test-util")]
pub(crate) fn register(name: &str, engine: &Arc<dyn Engine>) {
    insert(&mut engines(), name, engine);
}

fn insert(engines: &mut HashMap<String, Weak<dyn Engine>>, name: &str, engine: &Arc<dyn Engine>) {
    // Names whose engine is gone leave with the next one that comes.
    engines.retain(|_, engine| engine.strong_count() > 0);
    engines.insert(name.to_owned(), Arc::downgrade(engine));
}

fn engines() -> MutexGuard<'static, HashMap<String, Weak<dyn Engine>>> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}
