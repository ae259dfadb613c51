//! The dashboard and the alerts in `docs/operating` use the metrics that there are, and all of them are somewhere.

use std::collections::BTreeSet;

use leasehold::metrics::ALL;

const DASHBOARD: &str = include_str!("../../../docs/operating/grafana.json");
const ALERTS: &str = include_str!("../../../docs/operating/alerts.yml");

/// The series of all metrics: a histogram has three.
fn series() -> BTreeSet<String> {
    let of = |name: &str, kind| match kind {
        "histogram" => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).to_vec(),
        _ => vec![name.to_owned()],
    };
    ALL.iter().flat_map(|metric| of(metric.name, metric.kind)).collect()
}

/// The words that begin like a metric of ours.
fn used(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("leasehold_")).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_series_that_there_are() {
    let mut series = series();
    // Named in descriptions as a whole.
    series.extend(ALL.iter().map(|metric| metric.name.to_owned()));
    for text in [DASHBOARD, ALERTS] {
        let unknown: Vec<_> = used(text).difference(&series).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?} are no series of these: {series:?}");
    }
    // In an expression a histogram is one of its parts.
    for line in DASHBOARD.lines().chain(ALERTS.lines()).filter(|line| line.contains("rate(")) {
        let whole = ALL.iter().filter(|metric| metric.kind == "histogram").map(|metric| metric.name);
        let wrong: Vec<_> = whole.filter(|name| used(line).contains(*name)).collect();
        assert!(wrong.is_empty(), "{wrong:?} in {line}");
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let shown = used(DASHBOARD);
    let missing: Vec<_> = ALL
        .iter()
        .filter(|metric| !shown.iter().any(|series| series.starts_with(metric.name)))
        .map(|metric| metric.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Besides `client`, which all of them have, and `le` of buckets.
#[test]
fn the_labels_of_the_dashboard_and_the_alerts_are_those_of_the_metrics() {
    for line in DASHBOARD.lines().chain(ALERTS.lines()).filter(|line| line.contains("sum by (")) {
        let by = line.split("sum by (").skip(1).filter_map(|rest| rest.split_once(')').map(|(by, _)| by));
        let metrics: Vec<_> = ALL
            .iter()
            .filter(|metric| used(line).iter().any(|series| series.starts_with(metric.name)))
            .collect();
        for label in by.flat_map(|by| by.split(", ")).filter(|label| !["client", "le"].contains(label)) {
            let has = metrics.iter().any(|metric| metric.labels.contains(&label));
            assert!(has, "{label} in {line}");
        }
    }
}
