//! Which channels are wanted, and which are subscribed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::Notify;

use super::super::keys;
use crate::engine::Kind;
use crate::engine::remote::store::{Topic, Watch};
use crate::mutex::Mutex;

/// How many channels there is room for when few or none are needed.
const SPARE: usize = 64;

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    state: Mutex<State>,
    /// Rings when a channel is wanted that was not, or is not any more.
    pub(super) changed: Notify,
}

/// Invariant: every channel whose subscription may differ from what is wanted is in `touched`.
#[derive(Debug, Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    touched: HashSet<Arc<str>>,
    /// No messages can come: the connection is broken.
    is_down: bool,
}

/// What is announced on one channel: several kinds of one name may share theirs.
#[derive(Debug, Default)]
struct Channel {
    topics: Vec<Topic>,
    subscribed: bool,
}

impl Subscriptions {
    /// Wants the messages of a topic.
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

    /// Does not want them any more.
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
        // A subscription that is on its way finds that it is not wanted, and is touched then.
        if subscribed {
            touched.insert(name);
        } else {
            touched.remove(&name);
        }
        if channels.is_empty() {
            // Many may have come and gone within a moment; what they needed is not kept for the next time.
            channels.shrink_to(SPARE);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The topics that a message is about.
    pub(super) fn topics(&self, channel: &str, payload: &[u8]) -> Vec<Topic> {
        let state = self.state.lock();
        let Some(channel) = state.channels.get(channel) else { return Vec::new() };
        channel.topics.iter().filter(|(target, _)| means_something(target.kind, payload)).cloned().collect()
    }

    /// What has to be subscribed, and what unsubscribed. Empties the list.
    pub(super) fn take_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut state = self.state.lock();
        let mut touched = std::mem::take(&mut state.touched);
        touched.retain(|name| state.channels.get(name).is_none_or(|channel| !channel.subscribed));
        touched.into_iter().partition(|name| state.channels.contains_key(name))
    }

    /// These are subscribed. The topics whose messages come from now on.
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

/// Whether a message can be one of Redisson's. Anything else is not for us.
fn means_something(kind: Kind, payload: &[u8]) -> bool {
    match kind {
        // How many permits there are.
        Kind::Semaphore | Kind::Permits => std::str::from_utf8(payload)
            .is_ok_and(|payload| payload.parse::<i64>().is_ok_and(|permits| permits >= 1)),
        // 0 frees a lock, 1 frees it for many; 0 opens a latch, 1 sets or deletes it.
        _ => matches!(payload, b"0" | b"1"),
    }
}
