//! Where everybody who has something to send sends it, from whatever thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;

use super::calls;
use super::connection::{Connection, Trouble};
use super::hints::Hints;
use super::io::Message;
use super::link::Link;
use super::pipeline::{RawAnswer, Sink};
use super::request::{InOrder, Reading, Request, Step};
use super::scripts::{Call, Wording};
use crate::engine::{Kind, Spot};
use crate::error::Failure;
use crate::time::{self, Instant, jittered};

/// The connection that is in use, and what has to be undone on it.
///
/// What is sent here goes out in this order. So an undo never overtakes what it undoes, and whoever takes the next step
/// at a spot does so after whatever had to be undone there.
pub(super) struct Desk {
    state: Mutex<State>,
    hints: Arc<Hints>,
    /// Who takes care of what takes time.
    supervisor: WeakUnboundedSender<Message>,
}

struct State {
    link: Option<Link>,
    /// What is to be undone and not known to be, at most one for each count: by [`Spot::of_hold`], as whatever kind of lock
    /// the count is entered.
    unsettled: HashMap<Spot, Unsettled>,
    /// Whose last step may still be carried out, and until when: it had no reply on a connection that could not be ended.
    haunted: HashMap<Spot, Instant>,
    /// Those of them that wait for a connection.
    owed: Vec<Unsettled>,
    /// How many abandons there were.
    abandons: u64,
    closed: bool,
}

/// A count to be brought down, until its lease would have ended anyway.
#[derive(Debug, Clone)]
pub(super) struct Abandon {
    pub(super) spot: Spot,
    pub(super) count: u32,
    pub(super) until: Instant,
}

/// An abandon that is on its way or waits for its next try.
#[derive(Debug, Clone)]
pub(super) struct Unsettled {
    number: u64,
    abandon: Abandon,
    /// Until when a dead connection may still act: done before that is not done for good.
    repeat: Option<Instant>,
    /// The server has to be told the script.
    by_text: bool,
}

/// What has become of one try of an abandon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The server did nothing: it does not know the script.
    Unknown,
    /// There was no answer, or none that helps.
    Missing,
}

/// A server that is there and cannot, because it is loading or full, is not asked again without a pause.
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// Where a dead connection cannot be ended, what it may still do is undone this often.
const AGAIN: Duration = Duration::from_millis(500);
/// Nothing is under way for longer than this on a connection that broke.
const LONGEST_GHOST: Duration = Duration::from_secs(60);

impl Desk {
    pub(super) fn new(hints: Arc<Hints>, supervisor: WeakUnboundedSender<Message>) -> Self {
        let (unsettled, haunted, owed) = (HashMap::new(), HashMap::new(), Vec::new());
        let state = State { link: None, unsettled, haunted, owed, abandons: 0, closed: false };
        Self { state: Mutex::new(state), hints, supervisor }
    }

    /// Sends a call, and tells the caller what became of it. If it is a step from one count to the next, what is to be
    /// undone of the steps before goes first.
    pub(super) fn send(
        &self,
        step: Option<Step>,
        call: Call,
        in_order: Option<InOrder>,
        caller: oneshot::Sender<RawAnswer>,
    ) {
        let mut state = self.state();
        let State { link, unsettled, closed, .. } = &mut *state;
        let Some(Link { connection, .. }) = link else {
            let closed = closed.then(|| Failure::Unavailable("the client is closed".into()));
            // Whoever asked may be gone.
            let _ = caller.send(Err(Trouble::Refused(closed.unwrap_or_else(|| self.hints.not_connected()))));
            return;
        };
        if let Some(step) = step.as_ref().filter(|_| !unsettled.is_empty()) {
            // Before the next step, and never again after it: so by its text, which the server understands at once.
            for undone in take_undone(unsettled, step.spot()) {
                connection.put(undone.abandon.call(), Wording::Text, |_, _| Sink::Nobody);
            }
        }
        let is_unwritten = connection.put(call, Wording::Hash, |call, reading| {
            Sink::Caller(Request { call, step, reading, in_order, caller })
        });
        if is_unwritten {
            flush(state);
        }
    }

    /// Sends a call to whose answer nobody listens: in full, because nobody would tell it again.
    pub(super) fn post(&self, call: Call) {
        let state = self.state();
        if let Some(Link { connection, .. }) = &state.link {
            connection.put(call, Wording::Text, |_, _| Sink::Nobody);
        }
        flush(state);
    }

    /// Sees to it that something is undone, now or later.
    pub(super) fn abandon(&self, mut abandon: Abandon) {
        let mut state = self.state();
        state.abandons += 1;
        let hold = abandon.spot.of_hold();
        let mut repeat = state.haunted.get(&hold).copied();
        // What was to be undone before still is, and for as long.
        if let Some(before) = state.unsettled.get(&hold) {
            abandon.count = abandon.count.min(before.abandon.count);
            abandon.until = abandon.until.max(before.abandon.until);
            repeat = repeat.max(before.repeat);
            if before.abandon.spot.target.kind == Kind::Fair {
                // It leaves the queue, too.
                abandon.spot = before.abandon.spot.clone();
            }
        }
        let unsettled = Unsettled { number: state.abandons, abandon, repeat, by_text: false };
        state.unsettled.insert(hold, unsettled.clone());
        self.put_abandon(&mut state, unsettled);
        flush(state);
    }

    /// Goes on with an abandon that was tried.
    pub(super) fn tried(&self, unsettled: Unsettled, outcome: Outcome) {
        let mut state = self.state();
        self.go_on(&mut state, unsettled, outcome);
        flush(state);
    }

    /// From now on there is a connection. If dead ones may still act, what is to be undone is so more than once: what
    /// waits for the connection, and what is yet to be undone of the steps that had no reply on them.
    pub(super) fn link_up(&self, link: Link, ghosts: Option<Vec<Spot>>) {
        let now = time::now();
        let mut state = self.state();
        state.link = Some(link);
        state.haunted.retain(|_, until| *until > now);
        let at_last = now + LONGEST_GHOST;
        let are_ghosts = ghosts.is_some();
        state.haunted.extend(ghosts.into_iter().flatten().map(|spot| (spot.of_hold(), at_last)));
        for mut unsettled in std::mem::take(&mut state.owed) {
            unsettled.repeat = unsettled.repeat.max(are_ghosts.then_some(at_last));
            self.go_on(&mut state, unsettled, Outcome::Missing);
        }
        flush(state);
    }

    /// Takes away the connection of this number, if it is still in use.
    pub(super) fn link_down(&self, number: u64) -> Option<Link> {
        self.state().link.take_if(|link| link.number == number)
    }

    pub(super) fn is_linked(&self) -> bool {
        self.state().link.is_some()
    }

    /// The connection that is in use, and its number.
    pub(super) fn connection(&self) -> Option<(Connection, u64)> {
        self.state().link.as_ref().map(|link| (link.connection.clone(), link.number))
    }

    /// Whether nothing is left to be undone.
    pub(super) fn is_settled(&self) -> bool {
        self.state().unsettled.is_empty()
    }

    /// Nothing is sent any more.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let link = state.link.take();
        drop(state);
        drop(link);
    }

    /// Goes on with an abandon, unless it is done, its lease is over, or a later step has taken care of it.
    fn go_on(&self, state: &mut State, mut unsettled: Unsettled, outcome: Outcome) {
        let hold = unsettled.abandon.spot.of_hold();
        if state.unsettled.get(&hold).is_none_or(|newest| newest.number != unsettled.number) {
            return;
        }
        let is_over = outcome == Outcome::Done || unsettled.abandon.until <= time::now();
        if is_over && !unsettled.is_repeated() {
            state.unsettled.remove(&hold);
        } else {
            unsettled.by_text = outcome == Outcome::Unknown;
            self.put_abandon(state, unsettled);
        }
    }

    fn put_abandon(&self, state: &mut State, unsettled: Unsettled) {
        let Some(Link { connection, number, .. }) = &state.link else {
            state.owed.push(unsettled);
            return;
        };
        let call = unsettled.abandon.call();
        let wording = if unsettled.by_text { Wording::Text } else { Wording::Hash };
        let (number, begun) = (*number, time::now());
        let (hints, supervisor) = (Arc::clone(&self.hints), self.supervisor.clone());
        let then = move |answer, reading: Reading| {
            // A supervisor that has ended has nothing to do any more.
            let Some(supervisor) = supervisor.upgrade() else { return };
            let done = (Outcome::Done, unsettled.is_repeated().then_some(AGAIN));
            let (outcome, pause) = match reading.read(answer) {
                Ok(answer) => {
                    let Abandon { spot, .. } = &unsettled.abandon;
                    hints.released(spot, calls::heard_by(spot.target.kind, &answer), begun);
                    done
                }
                Err(Trouble::Refused(Failure::NotALock)) => done,
                // Rights can be given back, and a server that refuses may be the wrong one.
                Err(Trouble::Refused(Failure::Denied(_))) => (Outcome::Missing, Some(AGAIN)),
                Err(Trouble::NoScript) => (Outcome::Unknown, None),
                Err(Trouble::Refused(_)) => (Outcome::Missing, Some(jittered(BETWEEN_TRIES))),
                Err(Trouble::Broken(_)) => {
                    // Without a pause, to be the first on the next connection.
                    let _ = supervisor.send(Message::Broken(number));
                    (Outcome::Missing, None)
                }
            };
            let _ = supervisor.send(Message::Tried(unsettled, outcome, pause));
        };
        connection.put(call, wording, |_, reading| Sink::Then(Box::new(move |answer| then(answer, reading))));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what was put, without keeping others from the desk.
fn flush(state: MutexGuard<'_, State>) {
    let connection = state.link.as_ref().map(|link| link.connection.clone());
    drop(state);
    if let Some(connection) = connection {
        connection.flush();
    }
}

impl Unsettled {
    fn is_repeated(&self) -> bool {
        self.repeat.is_some_and(|until| until > time::now())
    }
}

impl Abandon {
    fn call(&self) -> Call {
        calls::abandon(&self.spot, self.count)
    }
}

/// What is still to be undone of the steps before one at this spot: of the same hold, or of one of the same owner that had
/// some of the same values.
fn take_undone(unsettled: &mut HashMap<Spot, Unsettled>, spot: &Spot) -> Vec<Unsettled> {
    if spot.target.kind != Kind::Group {
        return unsettled.remove(&spot.of_hold()).into_iter().collect();
    }
    let is_before = |other: &Spot| other.owner == spot.owner && other.target.overlaps(&spot.target);
    unsettled.extract_if(|other, _| is_before(other)).map(|(_, undone)| undone).collect()
}
