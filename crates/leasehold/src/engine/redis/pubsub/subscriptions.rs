//! Which channels have waiters, and which are subscribed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::Notify;

use super::super::keys;
use crate::engine::Kind;
use crate::engine::remote::store::{Topic, Watch};
use crate::mutex::Mutex;

/// The map capacity that is kept when few or no channels are needed.
const SPARE: usize = 64;

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    state: Mutex<State>,
    /// Notifies the subscriber when a channel has its first waiter, or has lost its last one.
    pub(super) changed: Notify,
}

/// Invariant: every channel whose subscription may differ from what is wanted is in `touched`.
#[derive(Debug, Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    touched: HashSet<Arc<str>>,
    /// No messages can arrive: the connection is broken.
    is_down: bool,
}

/// The topics of one channel: several kinds of one name may share theirs.
#[derive(Debug, Default)]
struct Channel {
    topics: Vec<Topic>,
    subscribed: bool,
}

impl Subscriptions {
    /// Adds a topic whose messages are wanted.
    pub(crate) fn add(&self, topic: &Topic) -> Watch {
        let name: Arc<str> = keys::waiting_channel(topic).into();
        let mut state = self.state.lock();
        let channel = state.channels.entry(Arc::clone(&name)).or_default();
        channel.topics.push(topic.clone());
        if channel.subscribed {
            return Watch::Active;
        }
        let watch = if state.is_down { Watch::Unavailable } else { Watch::Pending };
        state.touched.insert(name);
        drop(state);
        self.changed.notify_one();
        watch
    }

    /// Removes a topic whose messages are not wanted any more.
    pub(crate) fn remove(&self, topic: &Topic) {
        let name: Arc<str> = keys::waiting_channel(topic).into();
        let mut state = self.state.lock();
        let State { channels, touched, .. } = &mut *state;
        let Entry::Occupied(mut channel) = channels.entry(name) else { return };
        channel.get_mut().topics.retain(|other| other != topic);
        if !channel.get().topics.is_empty() {
            return;
        }
        let (name, Channel { subscribed, .. }) = channel.remove_entry();
        // A subscription in flight finds that it is not wanted, and is touched then.
        if subscribed {
            touched.insert(name);
        } else {
            touched.remove(&name);
        }
        if channels.is_empty() {
            // Many waiters may have arrived and left within a moment; the capacity for them is not kept.
            channels.shrink_to(SPARE);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The topics that a message is about.
    pub(super) fn topics(&self, channel: &str, payload: &[u8]) -> Vec<Topic> {
        let state = self.state.lock();
        let Some(channel) = state.channels.get(channel) else { return Vec::new() };
        channel
            .topics
            .iter()
            .filter(|(resource, _)| means_something(resource.kind, payload))
            .cloned()
            .collect()
    }

    /// The channels to subscribe and those to unsubscribe. Empties the list.
    pub(super) fn take_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut state = self.state.lock();
        let mut touched = std::mem::take(&mut state.touched);
        touched.retain(|name| state.channels.get(name).is_none_or(|channel| !channel.subscribed));
        touched.into_iter().partition(|name| state.channels.contains_key(name))
    }

    /// Marks these as subscribed. Returns the topics whose messages arrive from now on.
    pub(super) fn subscribed(&self, names: &[Arc<str>]) -> Vec<Topic> {
        let mut state = self.state.lock();
        let mut topics = Vec::new();
        for name in names {
            match state.channels.get_mut(name) {
                Some(channel) => {
                    channel.subscribed = true;
                    topics.extend(channel.topics.iter().cloned());
                }
                // It is not wanted any more.
                None => drop(state.touched.insert(Arc::clone(name))),
            }
        }
        topics
    }

    /// There is a connection. Nothing is subscribed on it yet.
    pub(super) fn link_up(&self) {
        let mut state = self.state.lock();
        let State { channels, touched, is_down } = &mut *state;
        *is_down = false;
        touched.clear();
        touched.extend(channels.keys().cloned());
        for channel in channels.values_mut() {
            channel.subscribed = false;
        }
    }

    pub(super) fn link_down(&self) {
        let mut state = self.state.lock();
        state.is_down = true;
        for channel in state.channels.values_mut() {
            channel.subscribed = false;
        }
    }

    /// Whether no message is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().channels.is_empty()
    }
}

/// Whether a message can be one of Redisson's. Any other is ignored.
fn means_something(kind: Kind, payload: &[u8]) -> bool {
    match kind {
        // The number of permits.
        Kind::Semaphore | Kind::LeasedSemaphore => std::str::from_utf8(payload)
            .is_ok_and(|payload| payload.parse::<i64>().is_ok_and(|permits| permits >= 1)),
        // 0 frees a lock, 1 frees it for many; 0 opens a latch, 1 sets or deletes it.
        _ => matches!(payload, b"0" | b"1"),
    }
}
