//! The keys that this client watches, all on one stream.
//!
//! A watch begins with the present, and not with the revision at which its key was read: etcd would put it aside then, and report
//! a deletion up to 100 ms late. So the key is read once more when the watch is there. A watch reports once.

use std::collections::BTreeMap;

use tokio::sync::mpsc::UnboundedSender;

use super::keys::Span;
use super::messages::{BeginWatch, EndWatch, Filter, WatchRequest, WatchStep};
use crate::engine::HoldKey;
use crate::mutex::Mutex;

/// What is watched, and for which owner.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    /// A waiter, or a holder.
    pub(super) hold_key: HoldKey,
    pub(super) span: Span,
    /// Of the keys in the span that were created no later than this …
    pub(super) created_until: i64,
    /// … there were so many.
    pub(super) found: usize,
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    state: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    last: i64,
    watched: BTreeMap<i64, Watched>,
}

impl Watches {
    /// A number that this client has not used before.
    pub(super) fn number(&self) -> i64 {
        let mut state = self.state.lock();
        state.last += 1;
        state.last
    }

    /// Begins a watch, and returns its id.
    pub(super) fn begin(&self, stream: &UnboundedSender<WatchRequest>, watched: Watched) -> i64 {
        let id = self.number();
        let mut state = self.state.lock();
        let Span { key, end } = watched.span.clone();
        state.watched.insert(id, watched);
        // The stream may have ended: then all watches begin anew.
        let _ = stream.send(step(WatchStep::Begin(BeginWatch {
            key,
            end,
            filters: vec![Filter::NoPut.into()],
            id,
        })));
        id
    }

    /// Ends a watch.
    pub(super) fn end(&self, stream: &UnboundedSender<WatchRequest>, id: i64) {
        if self.state.lock().watched.remove(&id).is_some() {
            let _ = stream.send(step(WatchStep::End(EndWatch { id })));
        }
    }

    pub(super) fn get(&self, id: i64) -> Option<Watched> {
        self.state.lock().watched.get(&id).cloned()
    }

    /// Forgets all of them: their stream has ended.
    pub(super) fn clear(&self) {
        self.state.lock().watched.clear();
    }
}

fn step(step: WatchStep) -> WatchRequest {
    WatchRequest { step: Some(step) }
}
