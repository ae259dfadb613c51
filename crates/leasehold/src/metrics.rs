//! The metrics of a client, for the recorder of the [`metrics`](https://docs.rs/metrics) facade (feature `metrics`).
//!
//! A client registers its metrics when it connects, and those of a kind of lock when it first has to do with one: install the
//! recorder before. [operating.md](crate::guide::operating) has the table of all metrics and tells what to watch each of them for.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, Unit, counter, gauge, histogram};

use crate::engine::{Kind, Resource};
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::observer::Outcome;

/// One of the metrics that a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels besides `client`, and besides `group`, which all metrics with `kind` have if
    /// [`metrics_group`](crate::ConnectOptions::metrics_group) is set.
    pub labels: &'static [&'static str],
    /// What it counts or measures.
    pub meaning: &'static str,
}

const ACQUIRES: Metric = Metric {
    name: "leasehold_acquires_total",
    kind: "counter",
    labels: &["kind", "outcome"],
    meaning: "Acquires that have ended, by outcome.",
};
const WAIT: Metric = Metric {
    name: "leasehold_wait_seconds",
    kind: "histogram",
    labels: &["kind", "outcome"],
    meaning: "How long acquires have waited that ended with the lock or with a time-out; zero if it was granted at once.",
};
const HOLD: Metric = Metric {
    name: "leasehold_hold_seconds",
    kind: "histogram",
    labels: &["kind"],
    meaning: "How long locks were held, from the request to the release or the loss.",
};
const LOSSES: Metric = Metric {
    name: "leasehold_losses_total",
    kind: "counter",
    labels: &["kind", "cause"],
    meaning: "Holds that were lost, by cause.",
};
const RENEWAL: Metric = Metric {
    name: "leasehold_renewal_seconds",
    kind: "histogram",
    labels: &[],
    meaning: "How long the replies to renewals took.",
};
const RENEWAL_MARGIN: Metric = Metric {
    name: "leasehold_renewal_margin_seconds",
    kind: "histogram",
    labels: &[],
    meaning: "How long a hold would have lasted without the renewal, when the reply came.",
};
const WAITERS: Metric =
    Metric { name: "leasehold_waiters", kind: "gauge", labels: &[], meaning: "Acquires that wait now." };
const HELD: Metric =
    Metric { name: "leasehold_held", kind: "gauge", labels: &[], meaning: "Guards that there are now." };
const HANDOVERS: Metric = Metric {
    name: "leasehold_handovers_total",
    kind: "counter",
    labels: &[],
    meaning: "Holds that went to the next waiter of the same client without a request.",
};
const RECONNECTS: Metric = Metric {
    name: "leasehold_reconnects_total",
    kind: "counter",
    labels: &[],
    meaning: "Outages that ended with a connection.",
};
const REQUESTS: Metric = Metric {
    name: "leasehold_requests_total",
    kind: "counter",
    labels: &[],
    meaning: "Requests about locks that were sent to the server, or made on files.",
};

/// All metrics of a client.
///
/// ```
/// assert!(leasehold::metrics::ALL.iter().any(|metric| metric.name == "leasehold_losses_total"));
/// ```
pub const ALL: &[Metric] =
    &[ACQUIRES, WAIT, HOLD, LOSSES, RENEWAL, RENEWAL_MARGIN, WAITERS, HELD, HANDOVERS, RECONNECTS, REQUESTS];

fn describe() {
    for Metric { name, kind, meaning, .. } in ALL.iter().copied() {
        match kind {
            "counter" => metrics::describe_counter!(name, Unit::Count, meaning),
            "gauge" => metrics::describe_gauge!(name, Unit::Count, meaning),
            _ => metrics::describe_histogram!(name, Unit::Seconds, meaning),
        }
    }
}

/// From the name of a lock to its group.
pub(crate) type GroupOf = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// How many groups a client tells apart. The locks of further groups are in [`OTHER`].
const MOST_GROUPS: usize = 100;
const OTHER: &str = "other";

/// The metrics of one client.
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "only an engine on a server has all of them"))]
pub(crate) struct Metrics {
    /// The label of the client.
    client: String,
    by_kind: ByGroup,
    pub(crate) renewal: Histogram,
    pub(crate) renewal_margin: Histogram,
    pub(crate) waiters: Gauge,
    pub(crate) held: Gauge,
    pub(crate) handovers: Counter,
    pub(crate) reconnects: Counter,
    pub(crate) requests: Counter,
}

/// The metrics with the label `kind`.
enum ByGroup {
    One(Kinds),
    Many { group_of: GroupOf, groups: Mutex<BTreeMap<String, Arc<Kinds>>> },
}

/// By the number of the kind, registered when a lock of it is first acquired: most programs use one or two.
#[derive(Default)]
struct Kinds([OnceLock<Box<OfKind>>; Kind::COUNT]);

struct OfKind {
    acquires: [Counter; OUTCOMES.len()],
    waits: [Histogram; 2],
    hold: Histogram,
    losses: [Counter; Loss::ALL.len()],
}

const OUTCOMES: [Outcome; 5] =
    [Outcome::Granted, Outcome::Busy, Outcome::TimedOut, Outcome::Failed, Outcome::Cancelled];

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Metrics {
    /// Registers the metrics of a client with this label, and describes all of them.
    pub(crate) fn new(client: String, group_of: Option<GroupOf>) -> Self {
        describe();
        let labels = || vec![Label::new("client", client.clone())];
        Self {
            by_kind: match group_of {
                None => ByGroup::One(Kinds::default()),
                Some(group_of) => ByGroup::Many { group_of, groups: Mutex::default() },
            },
            renewal: histogram!(RENEWAL.name, labels()),
            renewal_margin: histogram!(RENEWAL_MARGIN.name, labels()),
            waiters: gauge!(WAITERS.name, labels()),
            held: gauge!(HELD.name, labels()),
            handovers: counter!(HANDOVERS.name, labels()),
            reconnects: counter!(RECONNECTS.name, labels()),
            requests: counter!(REQUESTS.name, labels()),
            client,
        }
    }

    /// An acquire has ended after this wait.
    pub(crate) fn acquired(&self, resource: &Resource, outcome: Outcome, waited: Duration) {
        self.with(resource, |of| {
            of.acquires[outcome as usize].increment(1);
            match outcome {
                Outcome::Granted => of.waits[0].record(waited),
                Outcome::TimedOut => of.waits[1].record(waited),
                Outcome::Busy | Outcome::Failed | Outcome::Cancelled => {}
            }
        });
    }

    /// A hold has ended.
    pub(crate) fn held(&self, resource: &Resource, held_for: Option<Duration>) {
        if let Some(held_for) = held_for {
            self.with(resource, |of| of.hold.record(held_for));
        }
    }

    pub(crate) fn lost(&self, resource: &Resource, cause: Loss) {
        self.with(resource, |of| of.losses[cause.number()].increment(1));
    }

    fn with(&self, resource: &Resource, record: impl FnOnce(&OfKind)) {
        match &self.by_kind {
            ByGroup::One(kinds) => record(kinds.of(resource.kind, &self.client, None)),
            ByGroup::Many { group_of, groups } => {
                // Before the mutex is locked: it is foreign code. Its panic would end the task that renews.
                let group = AssertUnwindSafe(|| group_of(resource.name.as_str()));
                let mut group = catch_unwind(group).unwrap_or_else(|_| OTHER.to_owned());
                let mut groups = groups.lock();
                let is_known = groups.contains_key(&group);
                if !is_known && groups.keys().filter(|group| *group != OTHER).count() >= MOST_GROUPS {
                    OTHER.clone_into(&mut group);
                }
                let kinds = match groups.get(&group) {
                    Some(kinds) => Arc::clone(kinds),
                    None => Arc::clone(groups.entry(group.clone()).or_default()),
                };
                drop(groups);
                record(kinds.of(resource.kind, &self.client, Some(&group)));
            }
        }
    }
}

impl Kinds {
    fn of(&self, kind: Kind, client: &str, group: Option<&str>) -> &OfKind {
        self.0[kind as usize].get_or_init(|| Box::new(OfKind::new(kind, client, group)))
    }
}

impl OfKind {
    fn new(kind: Kind, client: &str, group: Option<&str>) -> Self {
        let labels = |more: Option<(&'static str, &'static str)>| {
            let mut labels =
                vec![Label::new("client", client.to_owned()), Label::from_static_parts("kind", kind.label())];
            labels.extend(group.map(|group| Label::new("group", group.to_owned())));
            labels.extend(more.map(|(key, value)| Label::from_static_parts(key, value)));
            labels
        };
        let wait = |outcome: Outcome| histogram!(WAIT.name, labels(Some(("outcome", outcome.label()))));
        Self {
            acquires: OUTCOMES
                .map(|outcome| counter!(ACQUIRES.name, labels(Some(("outcome", outcome.label()))))),
            waits: [wait(Outcome::Granted), wait(Outcome::TimedOut)],
            hold: histogram!(HOLD.name, labels(None)),
            losses: Loss::ALL.map(|loss| counter!(LOSSES.name, labels(Some(("cause", loss.label()))))),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("client", &self.client).finish_non_exhaustive()
    }
}
