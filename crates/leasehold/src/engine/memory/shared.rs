//! The engines behind `memory:NAME`, shared by all clients of the process that say the same name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::Memory;

/// The engine of this name, made when the first client asks for it and gone with the last.
pub(crate) fn shared(name: &str) -> Arc<Memory> {
    static ENGINES: LazyLock<Mutex<HashMap<String, Weak<Memory>>>> = LazyLock::new(Mutex::default);
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = engines.get(name).and_then(Weak::upgrade) {
        return engine;
    }
    // Names whose engine is gone leave with the next one that comes.
    engines.retain(|_, engine| engine.strong_count() > 0);
    let engine = Memory::new();
    engines.insert(name.to_owned(), Arc::downgrade(&engine));
    engine
}
