//! What waiters for numbers, permits and groups watch: the keys of each, for as long as there is a waiter of this client.

use std::collections::BTreeMap;

use super::changes::number;
use super::keys::{self, Span};
use super::link::Link;
use super::messages::{BeginWatch, Event, Filter, WatchReply};
use super::{Cluster, watches};
use crate::engine::remote::store::{Watch, report};
use crate::engine::{Kind, Resource};
use crate::mutex::Mutex;

/// What is watched, and by which watch of the present connection.
#[derive(Debug, Default)]
pub(super) struct Topics(Mutex<BTreeMap<Resource, Option<i64>>>);

impl Topics {
    /// What this watch is for.
    pub(super) fn of(&self, id: i64) -> Option<Resource> {
        let topics = self.0.lock();
        topics.iter().find(|(_, watch)| **watch == Some(id)).map(|(resource, _)| resource.clone())
    }
}

impl Cluster {
    /// Watches a resource from now on, on each connection.
    pub(super) fn watch_topic(&self, resource: &Resource) -> Watch {
        // The next connection begins the watches that are noted by then.
        let mut topics = self.topics.0.lock();
        let link = self.link.lock().clone();
        let id = link.map(|link| self.begin_topic(&link, resource));
        topics.insert(resource.clone(), id);
        if id.is_some() { Watch::Pending } else { Watch::Unavailable }
    }

    pub(super) fn unwatch_topic(&self, resource: &Resource) {
        let mut topics = self.topics.0.lock();
        let id = topics.remove(resource).flatten();
        let link = self.link.lock().clone();
        if let (Some(id), Some(link)) = (id, link) {
            watches::end(&link.watches, id);
        }
    }

    /// A connection has replaced another one, on which all watches have ended.
    pub(super) fn watch_topics_again(&self, link: &Link) {
        for (resource, id) in &mut *self.topics.0.lock() {
            *id = Some(self.begin_topic(link, resource));
        }
    }

    /// There is no connection. A waiter does not wait for the next one: its attempt reports the outage, and it is woken when the watch
    /// has begun anew.
    pub(super) fn topics_are_not_watched(&self) {
        let topics: Vec<_> = self.topics.0.lock().keys().map(|resource| (resource.clone(), None)).collect();
        report(&self.events, |events| events.watching(&topics));
    }

    fn begin_topic(&self, link: &Link, resource: &Resource) -> i64 {
        let (id, kind) = (self.watches.number(), resource.kind);
        let is_number = matches!(kind, Kind::Semaphore | Kind::Latch);
        let Span { key, end } =
            if is_number { Span::only(keys::number(resource)) } else { keys::all(resource) };
        let filters = if kind == Kind::Group { vec![Filter::NoPut.into()] } else { Vec::new() };
        watches::begin(&link.watches, BeginWatch { key, end, filters, id });
        id
    }

    /// The stream of watches says something: whether it was about one of these.
    pub(super) fn watched_topic(&self, reply: &WatchReply) -> bool {
        let Some(resource) = self.topics.of(reply.id) else { return false };
        if reply.created || reply.events.iter().any(|event| frees(&resource, event)) {
            let topic = (resource, None);
            report(&self.events, |events| {
                if reply.created {
                    events.watching(std::slice::from_ref(&topic));
                }
                // Of a watch that has begun anew, what has changed before was missed.
                events.freed(&topic);
            });
        }
        true
    }
}

/// Whether a waiter may succeed after a key was written or deleted.
fn frees(resource: &Resource, event: &Event) -> bool {
    let Some(now) = event.now.as_ref().filter(|_| event.kind == 0) else { return true };
    match resource.kind {
        Kind::Semaphore => number(now).is_ok_and(|free| free > 0),
        Kind::Latch => number(now).is_ok_and(|count| count <= 0),
        Kind::LeasedSemaphore => now.key == keys::number(resource),
        _ => false,
    }
}
