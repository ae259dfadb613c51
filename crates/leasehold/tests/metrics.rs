//! The feature `metrics`: what a client gives to the recorder, against what the test has done.
//!
//! A process has one recorder, so the tests tell their clients apart by label.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]
#![expect(clippy::disallowed_methods, reason = "tests may use the clock and the tasks of their runtime")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{Client, ConnectOptions, Event, Loss, metrics as ours};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

const SECOND: Duration = Duration::from_secs(1);

/// One time series.
#[derive(Default)]
struct Series {
    count: AtomicU64,
    /// Of a gauge the value, of a histogram the sum.
    value: Mutex<f64>,
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        self.count.fetch_add(by, Ordering::SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.count.store(value, Ordering::SeqCst);
    }
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        *self.value.lock().unwrap() += by;
    }

    fn decrement(&self, by: f64) {
        *self.value.lock().unwrap() -= by;
    }

    fn set(&self, value: f64) {
        *self.value.lock().unwrap() = value;
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.count.fetch_add(1, Ordering::SeqCst);
        *self.value.lock().unwrap() += value;
    }
}

/// Keeps all metrics of the process.
#[derive(Default)]
struct Kept {
    series: Mutex<BTreeMap<String, Arc<Series>>>,
    described: Mutex<BTreeMap<String, (&'static str, Option<Unit>)>>,
}

impl Kept {
    /// The series of a key: `name{label=value,…}`, labels in the order of the alphabet.
    fn of(&self, key: &Key) -> Arc<Series> {
        let labels: BTreeSet<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let text = format!("{}{{{}}}", key.name(), Vec::from_iter(labels).join(","));
        Arc::clone(self.series.lock().unwrap().entry(text).or_default())
    }

    fn describe(&self, name: &KeyName, kind: &'static str, unit: Option<Unit>) {
        self.described.lock().unwrap().insert(name.as_str().to_owned(), (kind, unit));
    }
}

impl Recorder for &'static Kept {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "counter", unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "gauge", unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "histogram", unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}

/// The recorder of this process.
fn kept() -> &'static Kept {
    static KEPT: LazyLock<Kept> = LazyLock::new(Kept::default);
    static INSTALLED: LazyLock<()> =
        LazyLock::new(|| metrics::set_global_recorder(&*KEPT).expect("it is the only one"));
    LazyLock::force(&INSTALLED);
    &KEPT
}

/// How often a series was counted or recorded.
fn count(series: &str) -> u64 {
    kept().series.lock().unwrap().get(series).map_or(0, |series| series.count.load(Ordering::SeqCst))
}

/// The value of a gauge, or the sum of a histogram.
fn value(series: &str) -> f64 {
    kept().series.lock().unwrap().get(series).map_or(f64::NAN, |series| *series.value.lock().unwrap())
}

fn is_nearly(value: f64, wanted: f64) -> bool {
    (value - wanted).abs() < 0.05
}

async fn connect(url: &str, options: impl FnOnce(ConnectOptions) -> ConnectOptions) -> Client {
    kept();
    options(Client::connect(url)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn own_442_metrics_count_and_measure_what_a_client_does() {
    let client = connect("memory:", |connect| connect.label("own-442")).await;
    let lock = client.lock("lock");
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.acquire().wait(SECOND).await.is_err());
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().lease(SECOND * 5).await }
    });
    tokio::time::sleep(SECOND * 2).await;
    assert!(is_nearly(value("leasehold_waiters{client=own-442}"), 1.0));
    assert!(is_nearly(value("leasehold_held{client=own-442}"), 1.0));
    guard.release().await.unwrap();
    let expires = waiter.await.unwrap().unwrap();
    assert_eq!(expires.lost().await, Loss::Expired);
    drop(expires);

    let acquires =
        |outcome| count(&format!("leasehold_acquires_total{{client=own-442,kind=lock,outcome={outcome}}}"));
    assert_eq!(["granted", "busy", "timed_out", "failed", "cancelled"].map(acquires), [2, 1, 1, 0, 0]);
    let wait = |outcome| format!("leasehold_wait_seconds{{client=own-442,kind=lock,outcome={outcome}}}");
    assert_eq!(["granted", "timed_out"].map(|outcome| count(&wait(outcome))), [2, 1]);
    assert!(is_nearly(value(&wait("granted")), 2.0), "the first was granted at once");
    assert!(is_nearly(value(&wait("timed_out")), 1.0));
    let hold = "leasehold_hold_seconds{client=own-442,kind=lock}";
    assert_eq!(count(hold), 2);
    assert!(is_nearly(value(hold), 3.0 + 4.95), "one until its release, one until its loss: {}", value(hold));
    let losses = |cause| count(&format!("leasehold_losses_total{{cause={cause},client=own-442,kind=lock}}"));
    assert_eq!(["expired", "gone"].map(losses), [1, 0]);
    for gauge in ["leasehold_waiters", "leasehold_held"] {
        assert!(is_nearly(value(&format!("{gauge}{{client=own-442}}")), 0.0), "{gauge}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_443_metrics_of_a_server_count_requests_renewals_hand_overs_and_connections() {
    let simulation = Simulation::new();
    let options = |connect: ConnectOptions| connect.label("own-443").watchdog(SECOND * 9);
    let client = connect(simulation.url(), options).await;
    let mut events = client.events();
    let lock = client.lock("lock");
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(SECOND * 10).await;
    let renewals = client.stats().renewals;
    assert!(renewals >= 2, "{renewals}");
    assert_eq!(count("leasehold_renewal_seconds{client=own-443}"), renewals, "one hold in each");
    let margin = "leasehold_renewal_margin_seconds{client=own-443}";
    assert_eq!(count(margin), renewals);
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    let mean = value(margin) / renewals as f64;
    assert!((5.0..6.5).contains(&mean), "two thirds of the lease are left: {mean}");
    guard.release().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    tokio::time::sleep(SECOND / 100).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(client.stats().handovers, 1);
    assert_eq!(count("leasehold_handovers_total{client=own-443}"), 1);

    simulation.outage_of("lock"); // the server has two parts, with a connection each
    tokio::time::sleep(SECOND * 2).await;
    simulation.clear();
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(client.stats().reconnects, 1);
    assert_eq!(count("leasehold_reconnects_total{client=own-443}"), 1);
    let (before, mut connections) = (client.stats().requests, Vec::new());
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(client.stats().requests, before + 2, "an acquire and a release");
    assert_eq!(count("leasehold_requests_total{client=own-443}"), before + 2);
    drop((lock, client));
    while let Some(event) = events.recv().await {
        match event {
            Event::Disconnected { .. } => connections.push("down"),
            Event::Connected { after: Some(after), .. } if after >= SECOND * 2 => {
                connections.push("up again");
            }
            _ => {}
        }
    }
    assert_eq!(connections, ["down", "up again"]);
}

#[tokio::test]
async fn own_444_locks_are_grouped_by_a_function_and_groups_are_bounded() {
    let by_prefix = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    let client = connect("memory:", |connect| connect.label("own-444").metrics_group(by_prefix)).await;
    for number in 0..300 {
        client.lock(format!("g{number}:x")).acquire().await.unwrap().release().await.unwrap();
    }
    client.lock("g7:y").acquire().await.unwrap().release().await.unwrap();
    let granted = |group: &str| {
        count(&format!("leasehold_acquires_total{{client=own-444,group={group},kind=lock,outcome=granted}}"))
    };
    assert_eq!(["g0", "g7", "g99", "g100", "other"].map(granted), [1, 2, 1, 0, 200]);
    let series = kept().series.lock().unwrap();
    let groups: BTreeSet<_> = series
        .keys()
        .filter(|key| key.contains("client=own-444"))
        .filter_map(|key| key.split("group=").nth(1)?.split([',', '}']).next())
        .collect();
    assert_eq!(groups.len(), 101);
    assert!(series.keys().all(|key| !key.contains(":x")), "no name of a lock is a label");
}

#[tokio::test(start_paused = true)]
async fn own_447_a_group_function_that_panics_ends_neither_renewals_nor_the_work() {
    let (simulation, panics) = (Simulation::new(), Arc::new(AtomicBool::new(false)));
    let group_of = {
        let panics = Arc::clone(&panics);
        move |_: &str| if panics.load(Ordering::SeqCst) { panic!("on purpose") } else { "one".to_owned() }
    };
    let options = |connect: ConnectOptions| connect.label("own-447").watchdog(SECOND * 9);
    let client = connect(simulation.url(), |connect| options(connect).metrics_group(group_of)).await;
    let kept = client.lock("kept").acquire().await.unwrap();
    let expires = client.lock("expires").acquire().lease(SECOND).await.unwrap();
    panics.store(true, Ordering::SeqCst);
    // The task that renews notices the loss of the other lock.
    tokio::time::sleep(SECOND * 60).await;
    assert!(kept.is_held(), "{:?}", client.stats());
    drop(expires);
    kept.release().await.unwrap();
    client.lock("next").acquire().await.unwrap().release().await.unwrap();
    let of = |series: &str| count(&series.replace("OTHER", "client=own-447,group=other,kind=lock"));
    assert_eq!(of("leasehold_losses_total{cause=expired,OTHER}"), 1);
    assert_eq!(of("leasehold_acquires_total{OTHER,outcome=granted}"), 1);
    assert_eq!(of("leasehold_hold_seconds{OTHER}"), 3);
}

#[tokio::test]
async fn own_445_the_page_lists_the_metrics_that_there_are() {
    let client = connect("memory:", |connect| connect.label("own-445")).await;
    client.lock("lock").acquire().await.unwrap().release().await.unwrap();
    let page = include_str!("../docs/operating.md");
    let documented: BTreeMap<_, _> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `leasehold_"))
        .map(|row| {
            let cells: Vec<_> = row.split(" | ").collect();
            let labels: Vec<_> = cells[2].split('`').skip(1).step_by(2).collect();
            (format!("leasehold_{}", cells[0].trim_end_matches('`')), (cells[1], labels))
        })
        .collect();
    let described = kept().described.lock().unwrap();
    let all: BTreeMap<_, _> = ours::ALL
        .iter()
        .map(|metric| (metric.name.to_owned(), (metric.kind, metric.labels.to_vec())))
        .collect();
    assert_eq!(documented, all);
    assert_eq!(described.len(), all.len());
    for metric in ours::ALL {
        let unit = if metric.kind == "histogram" { Unit::Seconds } else { Unit::Count };
        assert_eq!(described[metric.name], (metric.kind, Some(unit)));
    }
    // What a client registers is what the list has, with the labels that it has.
    for key in kept().series.lock().unwrap().keys().filter(|key| key.contains("client=own-445")) {
        let (name, labels) = key.trim_end_matches('}').split_once('{').unwrap();
        let labels: BTreeSet<_> =
            labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).collect();
        let (_, wanted) = &all[name];
        let wanted: BTreeSet<_> = wanted.iter().copied().chain(["client"]).collect();
        assert_eq!(labels, wanted, "{key}");
    }
}
