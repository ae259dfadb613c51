//! The turns that the processes have recorded, and what they say about the lock.

use std::fmt::{self, Display};
use std::ops::Range;
use std::time::Duration;

use leasehold_testkit::server::Server;
use tokio::time::{Instant, sleep};

use crate::setup::LONG;

/// The threads and tasks that take turns, two of each language.
const WORKERS: [(Language, u64); 4] =
    [(Language::Java, 0), (Language::Java, 1), (Language::Rust, 0), (Language::Rust, 1)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Java,
    Rust,
}

impl Language {
    pub(super) const ALL: [Self; 2] = [Self::Java, Self::Rust];
}

/// One turn.
#[derive(Debug)]
struct Turn {
    /// In milliseconds, by the clock of the server that has the record.
    at: u64,
    worker: (Language, u64),
    /// The value that the holder read; it wrote one more.
    seen: u64,
}

/// The turns so far.
pub(super) struct Turns<'a> {
    server: &'a Server,
    topic: String,
    /// The last entry that was read.
    last: String,
    all: Vec<Turn>,
    /// From which turn on all must be exact.
    exact_from: usize,
}

impl<'a> Turns<'a> {
    pub(super) fn new(server: &'a Server, topic: &str) -> Self {
        Self { server, topic: topic.into(), last: "0".into(), all: Vec::new(), exact_from: 0 }
    }

    /// How many there were so far.
    pub(super) fn count(&mut self) -> usize {
        let (key, after) = (format!("{}:turns", self.topic), format!("({}", self.last));
        let new = self.server.cli(&["XRANGE", &key, &after, "+"]);
        for entry in new.elements() {
            let [id, fields] = entry.elements() else { panic!("not an entry: {entry:?}") };
            let id = id.as_str().expect("ids are text");
            let at = id.split('-').next().and_then(|at| at.parse().ok()).expect("an id begins with a time");
            let turn = fields.elements()[1].as_str().expect("turns are text");
            let words: Vec<_> = turn.split(' ').collect();
            let number = |index: usize| words[index].parse().expect("a number");
            let language = if words[0] == "java" { Language::Java } else { Language::Rust };
            self.all.push(Turn { at, worker: (language, number(1)), seen: number(2) });
            id.clone_into(&mut self.last);
        }
        self.all.len()
    }

    /// Waits until each worker has had so many more turns.
    pub(super) async fn more(&mut self, wanted: usize) {
        let (from, begun) = (self.count(), Instant::now());
        loop {
            self.count();
            let had = |worker| self.all[from..].iter().filter(|turn| turn.worker == worker).count();
            let slow: Vec<_> = WORKERS.into_iter().filter(|worker| had(*worker) < wanted).collect();
            if slow.is_empty() {
                return;
            }
            assert!(begun.elapsed() < LONG, "not {wanted} turns within {LONG:?}: {slow:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that no two holders were there at once, since the beginning or the last [`begin_exact`](Self::begin_exact).
    pub(super) fn are_exact(&mut self, when: &str) {
        let turns = self.exact_from..self.count();
        let broken = self.broken(turns);
        assert_eq!(broken.turns, 0, "{}: two holders at once {when}, {broken}", self.topic);
    }

    /// From now on all turns must be exact. Returns how many of those since `begun` were not.
    pub(super) fn begin_exact(&mut self, begun: usize) -> Broken {
        self.exact_from = self.count();
        self.broken(begun..self.exact_from)
    }

    /// Counts the turns that did not read what the one before had written.
    fn broken(&self, range: Range<usize>) -> Broken {
        let of = range.len();
        // The first one follows the one before the range.
        let turns = &self.all[range.start.saturating_sub(1)..range.end];
        Broken { turns: turns.windows(2).filter(|two| two[1].seen != two[0].seen + 1).count(), of }
    }

    /// The longest time without a turn of a language, from one turn on.
    pub(super) fn longest_pause(&self, language: Language, from: usize) -> Duration {
        let after = self.all[from..].iter().filter(|turn| turn.worker.0 == language);
        let before = self.all[..from].iter().rev().find(|turn| turn.worker.0 == language);
        let times: Vec<_> = before.into_iter().chain(after).map(|turn| turn.at).collect();
        let longest = times.windows(2).map(|two| two[1].saturating_sub(two[0])).max();
        Duration::from_millis(longest.unwrap_or_default())
    }
}

/// Turns that were not exact, of all of them.
pub(super) struct Broken {
    turns: usize,
    of: usize,
}

impl Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} turns", self.turns, self.of)
    }
}
