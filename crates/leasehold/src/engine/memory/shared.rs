//! The engines behind `memory:NAME`, shared by all clients of the process that say the same name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::Memory;
use crate::engine::Engine;

static ENGINES: LazyLock<Mutex<HashMap<String, Weak<dyn Engine>>>> = LazyLock::new(Mutex::default);

/// The engine of this name, made when the first client asks for it and gone with the last.
pub(crate) fn shared(name: &str) -> Arc<dyn Engine> {
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
