//! Where the locks of a client are: on the home connection, or on a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::home::Home;
use super::lane::Job;
use crate::engine::HoldKey;
use crate::engine::remote::store::Topic;
use crate::env::Instant;
use crate::session::Session;

/// How many connections wait for locks at once, or hold what they have waited for.
pub(super) const LANES: usize = 16;
/// How many of them are kept when there is nothing to wait for.
const IDLE: usize = 4;

/// A lane that somebody needs. It ends its connection when this is dropped.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: u64,
    pub(super) jobs: UnboundedSender<Job>,
    /// Its connection is to the same server as this one.
    pub(super) home: Arc<Home>,
}

/// What this client has of one name of the server.
#[derive(Debug)]
pub(super) enum Place {
    /// The home connection holds it.
    Home(HoldKey, Arc<Home>),
    /// A lane waits for it, for the waiters of this topic.
    Waiting(Lane, Topic),
    /// A lane holds it, and no waiter has taken it yet.
    Granted(Lane, Topic, Grant),
    /// A lane holds it.
    Lane(HoldKey, Lane, Grant),
}

/// What a lane has got.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) token: u64,
    pub(super) session: Arc<Session>,
}

/// All places of a client, by the names on the server.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) home: Option<Arc<Home>>,
    pub(super) names: BTreeMap<String, Place>,
    /// What is waited for here.
    pub(super) watched: BTreeSet<Topic>,
    idle: Vec<Lane>,
    /// How many lanes there are, whatever they do.
    pub(super) lanes: usize,
    pub(super) numbers: u64,
    /// A lane could not be opened: until then none is.
    pub(super) blocked_until: Option<Instant>,
    pub(super) warnings: Vec<String>,
}

impl Places {
    /// The place of a name, if this lane has it.
    fn of_lane(&mut self, name: &str, number: u64) -> Option<&mut Place> {
        self.names.get_mut(name).filter(|place| match place {
            Place::Home(..) => false,
            Place::Waiting(lane, _) | Place::Granted(lane, ..) | Place::Lane(_, lane, _) => {
                lane.number == number
            }
        })
    }

    /// A lane has got the lock that it waits for; false if nobody waits any more.
    pub(super) fn granted(&mut self, name: &str, number: u64, grant: Grant) -> bool {
        if self.of_lane(name, number).is_none() {
            return false;
        }
        if let Some(Place::Waiting(lane, topic)) = self.names.remove(name) {
            self.names.insert(name.to_owned(), Place::Granted(lane, topic, grant));
        }
        true
    }

    /// A waiter takes what a lane has got for it.
    pub(super) fn claim(&mut self, name: &str, hold_key: &HoldKey) -> Option<Grant> {
        let Some(Place::Granted(_, _, grant)) = self.names.get(name) else { return None };
        let grant = grant.clone();
        if let Some(Place::Granted(lane, ..)) = self.names.remove(name) {
            self.names.insert(name.to_owned(), Place::Lane(hold_key.clone(), lane, grant.clone()));
        }
        Some(grant)
    }

    /// Whether no waiter has taken what this lane has got. Then nobody has it any more.
    pub(super) fn is_left_over(&mut self, name: &str, number: u64) -> bool {
        let is_left_over = matches!(self.of_lane(name, number), Some(Place::Granted(..)));
        if is_left_over {
            self.names.remove(name);
        }
        is_left_over
    }

    /// A lane is gone, and with it what it had of this name.
    pub(super) fn lane_is_gone(&mut self, name: &str, number: u64) {
        if self.of_lane(name, number).is_some() {
            self.names.remove(name);
        }
    }

    /// The waiters of a topic are gone: so is the lane that waits for them.
    pub(super) fn unwatch(&mut self, name: &str, topic: &Topic) {
        self.watched.remove(topic);
        if let Some(Place::Waiting(_, of) | Place::Granted(_, of, _)) = self.names.get(name)
            && of == topic
        {
            self.names.remove(name);
        }
    }

    /// The home connection is gone, and with it its locks, and the lanes that have none.
    pub(super) fn home_is_gone(&mut self) {
        self.home = None;
        self.idle.clear();
        self.names.retain(|_, place| matches!(place, Place::Lane(..)));
    }

    /// A lane has released its lock, and is kept for the next one.
    pub(super) fn rest(&mut self, lane: Lane) {
        let is_current = self.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, &lane.home));
        if is_current && self.idle.len() < IDLE {
            self.idle.push(lane);
        }
    }

    /// A lane that rests and is needed again.
    pub(super) fn wake(&mut self) -> Option<Lane> {
        self.idle.pop()
    }

    /// A lane that rests ends; false if it is needed again.
    pub(super) fn retire(&mut self, number: u64) -> bool {
        let before = self.idle.len();
        self.idle.retain(|lane| lane.number != number);
        self.idle.len() < before
    }
}
