//! The keys that this client watches, all on one stream.
//!
//! A watch begins with the present, and not with the revision at which its key was read: etcd would put it aside then, and report
//! a deletion up to 100 ms late. So the key is read once more when the watch is there. A watch reports once.

use std::collections::BTreeMap;

use tokio::sync::mpsc::UnboundedSender;

use super::keys::Span;
use super::messages::{BeginWatch, EndWatch, Filter, WatchRequest, WatchStep};
use crate::engine::{HoldKey, Resource};
use crate::mutex::Mutex;

/// What is watched, and for which owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    /// A waiter, or a holder.
    pub(super) hold_key: HoldKey,
    pub(super) span: Span,
    /// Of the keys in the span that were created no later than this …
    pub(super) created_until: i64,
    /// … there were so many.
    pub(super) found: usize,
}

impl Watched {
    /// One key, which was created at this revision.
    pub(super) fn only(hold_key: &HoldKey, key: Vec<u8>, created: i64) -> Self {
        Self { hold_key: hold_key.clone(), span: Span::only(key), created_until: created, found: 1 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    state: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    last: i64,
    watched: BTreeMap<i64, Watched>,
    /// The watches on the holders of names, for waiters that have no place in the queue.
    names: BTreeMap<Resource, i64>,
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
        begin(stream, BeginWatch { key, end, filters: vec![Filter::NoPut.into()], id });
        id
    }

    /// Ends a watch.
    pub(super) fn end(&self, stream: &UnboundedSender<WatchRequest>, id: i64) {
        if self.state.lock().watched.remove(&id).is_some() {
            end(stream, id);
        }
    }

    /// Begins the watch on the holder of a name, unless there is the same already.
    pub(super) fn begin_of_name(
        &self,
        stream: &UnboundedSender<WatchRequest>,
        resource: &Resource,
        watched: Watched,
    ) {
        let before = self.state.lock().names.get(resource).copied();
        let is_same =
            |is: Watched| (is.span, is.created_until) == (watched.span.clone(), watched.created_until);
        if before.and_then(|id| self.get(id)).is_some_and(is_same) {
            return;
        }
        self.end_of_name(stream, resource);
        let id = self.begin(stream, watched);
        self.state.lock().names.insert(resource.clone(), id);
    }

    /// Ends it, if there is one.
    pub(super) fn end_of_name(&self, stream: &UnboundedSender<WatchRequest>, resource: &Resource) {
        let before = self.state.lock().names.remove(resource);
        before.inspect(|id| self.end(stream, *id));
    }

    /// Whether this watch is the one on the holder of a name. From now on there is none.
    pub(super) fn is_of_name(&self, resource: &Resource, id: i64) -> bool {
        let mut state = self.state.lock();
        let is_it = state.names.get(resource) == Some(&id);
        if is_it {
            state.names.remove(resource);
        }
        is_it
    }

    pub(super) fn get(&self, id: i64) -> Option<Watched> {
        self.state.lock().watched.get(&id).cloned()
    }

    /// Forgets all of them: their stream has ended.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.watched.clear();
        state.names.clear();
    }
}

/// Requests a watch. If the stream has ended, all watches begin anew on the next one.
pub(super) fn begin(stream: &UnboundedSender<WatchRequest>, watch: BeginWatch) {
    let _ = stream.send(WatchRequest { step: Some(WatchStep::Begin(watch)) });
}

/// Ends a watch on this stream.
pub(super) fn end(stream: &UnboundedSender<WatchRequest>, id: i64) {
    let _ = stream.send(WatchRequest { step: Some(WatchStep::End(EndWatch { id })) });
}
