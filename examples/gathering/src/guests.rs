//! The table of guests: a stand-in for a database, where each access takes a moment.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a request to the table takes.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// The guests of each gathering. A read and a write are two requests: between them, others may write.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    rows: Mutex<HashMap<u32, Vec<String>>>,
}

impl Guests {
    pub(crate) async fn read(&self, id: u32) -> Vec<String> {
        let row = self.rows().get(&id).cloned().unwrap_or_default();
        tokio::time::sleep(ROUND_TRIP).await;
        row
    }

    pub(crate) async fn write(&self, id: u32, guests: Vec<String>) {
        tokio::time::sleep(ROUND_TRIP).await;
        self.rows().insert(id, guests);
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<u32, Vec<String>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
