//! The events of a round, in order.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// Which task of which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    /// The number of the client.
    pub(super) client: usize,
    /// The number of the task.
    pub(super) task: usize,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} task {}", self.client, self.task)
    }
}

/// The events of a round: begin and end of every operation, losses, faults and violations.
#[derive(Debug)]
pub(super) struct History {
    begun: Mutex<Instant>,
    events: Mutex<Vec<Event>>,
    /// How many operations and faults have begun.
    steps: AtomicU64,
}

#[derive(Debug)]
struct Event {
    at: Instant,
    /// No task: a fault, or the check at the end.
    who: Option<Who>,
    what: String,
}

/// How many events are shown of a round with a violation.
const SHOWN: usize = 400;
/// The prefix of a violation's event.
const VIOLATION: &str = "VIOLATION";

impl History {
    pub(super) fn new() -> Self {
        Self { begun: Mutex::new(Instant::now()), events: Mutex::default(), steps: AtomicU64::new(0) }
    }

    /// The round begins now, by the clock of this runtime.
    pub(super) fn begin_now(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// A task has begun an operation.
    pub(super) fn begun(&self, who: Who, what: String) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.push(Some(who), what);
    }

    /// A fault has begun.
    pub(super) fn fault(&self, what: String) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.push(None, what);
    }

    /// How many operations and faults there were.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// A task has ended an operation.
    pub(super) fn step(&self, who: Who, what: String) {
        self.push(Some(who), what);
    }

    /// Any other event.
    pub(super) fn note(&self, what: String) {
        self.push(None, what);
    }

    /// A violation of an invariant.
    pub(super) fn violation(&self, what: &str) {
        self.push(None, format!("{VIOLATION}: {what}"));
    }

    fn push(&self, who: Option<Who>, what: String) {
        let event = Event { at: Instant::now(), who, what };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// How many events there were.
    pub(super) fn length(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The last events up to the first violation, a line each; all of the round if there was none.
    pub(super) fn end(&self) -> String {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let first = events.iter().position(|event| event.what.starts_with(VIOLATION));
        let length = first.map_or(events.len(), |first| first + 1);
        let skipped = length.saturating_sub(SHOWN);
        let shown = events[skipped..length].iter().map(|event| self.line(event));
        let (before, after) = (format!("  {skipped} events before\n"), events.len() - length);
        [before].into_iter().chain(shown).chain([format!("  {after} events after\n")]).collect()
    }

    /// All events, a line each.
    pub(super) fn text(&self) -> String {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().map(|event| self.line(event)).collect()
    }

    fn line(&self, Event { at, who, what }: &Event) -> String {
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let at = at.duration_since(begun).as_secs_f64();
        let who = who.map_or_else(|| "-".to_owned(), |who| who.to_string());
        format!("  {at:9.4} s  {who:<16}  {what}\n")
    }
}
