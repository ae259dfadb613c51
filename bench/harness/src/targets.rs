//! The targets, and whether they hold.

use std::fmt::Write as _;

use crate::markdown::number;
use crate::plan::{CONTENDERS, Family};
use crate::ratio::Ratio;
use crate::results::Results;

/// One target, with the measured figure.
pub(crate) struct Target {
    pub(crate) text: String,
    pub(crate) value: String,
    /// Nothing if it was not measured.
    pub(crate) holds: Option<bool>,
}

/// The direction in which a figure has to lie.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

/// The sizes of U2, W1 and W2, the smallest first.
const U2: [&str; 3] = ["U2-16", "U2-128", "U2-1024"];
const W1: [&str; 3] = ["W1-1000", "W1-10000", "W1-100000"];
const W2: [&str; 3] = ["W2-100", "W2-1000", "W2-10000"];

/// How much more one of many may cost than one of few, where cost must not grow faster than linearly.
const GROWTH: f64 = 1.25;

struct Judge<'a> {
    results: &'a Results,
    targets: Vec<Target>,
}

impl Judge<'_> {
    fn add(&mut self, text: impl Into<String>, value: Option<f64>, bound: Bound) {
        self.add_with(text, value, bound, "");
    }

    /// Judged by the median of the pairs; the interval is shown beside it.
    fn add_ratio(&mut self, text: impl Into<String>, ratio: Option<Ratio>, bound: Bound) {
        let interval = ratio.map(|ratio| format!(" ({} … {})", number(ratio.low), number(ratio.high)));
        self.add_with(text, ratio.map(|ratio| ratio.median), bound, &interval.unwrap_or_default());
    }

    /// Judged by the end of the interval that is nearer to the limit: what cannot be told from equal is no worse.
    fn add_no_worse(&mut self, text: impl Into<String>, ratio: Option<Ratio>, bound: Bound) {
        self.add_ratio(text, ratio, bound);
        if let (Some(target), Some(ratio)) = (self.targets.last_mut(), ratio) {
            target.holds = Some(match bound {
                AtLeast(limit) => ratio.high >= limit,
                AtMost(limit) => ratio.low <= limit,
            });
        }
    }

    fn add_with(&mut self, text: impl Into<String>, value: Option<f64>, bound: Bound, note: &str) {
        let (sign, limit) = match bound {
            AtLeast(limit) => ('≥', limit),
            AtMost(limit) => ('≤', limit),
        };
        let holds = value.map(|value| match bound {
            AtLeast(limit) => value >= limit,
            AtMost(limit) => value <= limit,
        });
        let value = value.map_or_else(|| "not measured".into(), |value| number(value) + note);
        self.targets.push(Target { text: format!("{} {sign} {}", text.into(), number(limit)), value, holds });
    }

    fn median(&self, scenario: &str, contender: &str, metric: &str) -> Option<f64> {
        self.results.median(scenario, contender, metric)
    }

    /// The ratio of a figure of one contender to that of another that took turns with it.
    fn ratio(&self, scenario: &str, metric: &str, over: &str, under: &str) -> Option<Ratio> {
        self.results.ratio(scenario, metric, over, under)
    }

    /// The best rate of the other contenders of a family that provide mutual exclusion, and the contender that has it.
    fn best(&self, scenarios: &[&str], family: Family) -> Option<(&'static str, f64)> {
        let others =
            CONTENDERS.iter().filter(|other| other.family == family && !other.id.starts_with("leasehold"));
        let rates = others.filter_map(|other| {
            let cells = scenarios.iter().filter_map(|scenario| self.results.cell(scenario, other.id));
            let right = cells.filter(|cell| !cell.is_wrong());
            let rates = right.filter_map(|cell| cell.figure("rate")).map(|figure| figure.median);
            Some((other.id, rates.max_by(f64::total_cmp)?))
        });
        rates.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Our best rate as a multiple of the best of the others.
    fn against_best(&mut self, text: &str, scenarios: &[&str], times: f64) {
        for (ours, family, limit) in
            [("leasehold", Family::Hash, times), ("leasehold-setnx", Family::SetNx, times)]
        {
            self.against(text, scenarios, ours, family, limit);
        }
    }

    fn against(&mut self, text: &str, scenarios: &[&str], ours: &str, family: Family, limit: f64) {
        let rates = scenarios.iter().filter_map(|scenario| self.median(scenario, ours, "rate"));
        let mine = rates.max_by(f64::total_cmp);
        let best = self.best(scenarios, family);
        let value = mine.zip(best).map(|(mine, (_, theirs))| mine / theirs);
        let note = best.map_or_else(String::new, |(id, _)| format!(" × {id}"));
        self.add_with(format!("{text}, {ours} / best of its layout"), value, AtLeast(limit), &note);
    }

    /// The cost of one of many, against one of few. The smallest size is only shown: its cost cannot be distinguished from
    /// zero.
    fn growth(&mut self, scenarios: [&str; 3], ours: &str, metric: &str, what: &str, times: f64) {
        let each = |at: usize| self.median(scenarios[at], ours, metric);
        let value = each(1).zip(each(2)).map(|(few, many)| many / few / times);
        let text = format!("{ours}: {what}, {} / {}", scenarios[2], scenarios[1]);
        self.add(text, value, AtMost(GROWTH));
    }
}

/// The targets of locks on etcd.
fn judge_etcd(mut judge: Judge<'_>) -> Vec<Target> {
    let ours = "leasehold-etcd";
    for scenario in ["E1", "E2"] {
        let rate = judge.ratio(scenario, "rate", ours, "raw-etcd");
        judge.add_ratio(format!("10. {scenario}: pairs/s / raw-etcd"), rate, AtLeast(0.8));
    }
    let times = judge.ratio("E3", "handover_p50", ours, "go-etcd");
    judge.add_ratio("10. E3: p50 / go-etcd", times, AtMost(0.5));
    let times = judge.ratio("E4", "rate", ours, "go-etcd");
    judge.add_ratio("10. E4: grants/s / go-etcd", times, AtLeast(5.0));
    judge.targets
}

/// All targets of what was to be measured, in the order of their numbers.
pub(crate) fn judge(results: &Results) -> Vec<Target> {
    let mut judge = Judge { results, targets: Vec::new() };
    if results.scenarios().iter().any(|scenario| scenario.is_on_etcd()) {
        return judge_etcd(judge);
    }
    let (ours, setnx) = ("leasehold", "leasehold-setnx");

    judge.add_ratio("1. U1: p50 / client", judge.ratio("U1", "p50", ours, "client"), AtMost(1.15));
    for scenario in &U2[1..] {
        let rate = |theirs| judge.ratio(scenario, "rate", ours, theirs);
        let (client, raw) = (rate("client"), rate("raw"));
        let cpu = judge.ratio(scenario, "client_cpu", ours, "client");
        judge.add_ratio(format!("1. {scenario}: pairs/s / client"), client, AtLeast(1.0));
        judge.add_ratio(format!("1. {scenario}: pairs/s / raw"), raw, AtLeast(0.85));
        judge.add_ratio(format!("1. {scenario}: client CPU a pair / client"), cpu, AtMost(1.2));
    }
    judge.against("2. U2: best pairs/s", &U2, ours, Family::Hash, 3.0);
    judge.against("2. U2: best pairs/s", &U2, setnx, Family::SetNx, 1.15);
    judge.against_best("3. C1: grants/s", &["C1"], 10.0);
    judge.against_best("4. C2: grants/s", &["C2"], 2.0);
    for ours in [ours, setnx] {
        let of = |metric| judge.median("C2", ours, metric);
        let (commands, fairness, worst) = (of("commands"), of("jain_processes"), of("worst"));
        judge.add(format!("4. C2, {ours}: commands a grant"), commands, AtMost(3.0));
        judge.add(format!("4. C2, {ours}: fairness between processes"), fairness, AtLeast(0.9));
        judge.add(format!("4. C2, {ours}: worst wait / mean"), worst, AtMost(10.0));
    }
    for (ours, client) in [(ours, "client"), (setnx, "client-setnx")] {
        let times = judge.ratio("H", "handover_p50", ours, client);
        judge.add_ratio(format!("5. H, {ours}: p50 / by hand"), times, AtMost(1.25));
    }
    for ours in [ours, setnx] {
        let of = |metric| judge.median(W1[2], ours, metric);
        let (requests, left, memory) = (of("requests_per_100"), of("least_left"), of("memory"));
        judge.add(format!("6. W1, {ours}: requests a period for 100 locks"), requests, AtMost(1.0));
        judge.add(format!("6. W1, {ours}: least time left / lease"), left, AtLeast(0.5));
        judge.add(format!("6. W1, {ours}: bytes a lock"), memory, AtMost(1024.0));
        let of = |metric| judge.median(W2[2], ours, metric);
        // One for commands, one for messages.
        let (connections, memory, all) = (of("connections"), of("memory"), of("elapsed"));
        judge.add(format!("6. W2, {ours}: connections, one of them for messages"), connections, AtMost(2.0));
        judge.add(format!("6. W2, {ours}: bytes a waiter"), memory, AtMost(4096.0));
        judge.add(format!("6. W2, {ours}: seconds until all run"), all.map(|all| all / 1e6), AtMost(1.0));
    }
    for scenario in ["M-16", "M-64"] {
        let times = judge.ratio(scenario, "rate", "tokio-mutex", "leasehold-memory");
        judge.add_ratio(format!("7. {scenario}: plain mutex / memory engine"), times, AtMost(5.0));
    }
    for ours in ["leasehold-file", "leasehold-file-block"] {
        // The speed: less time is more. By p50, as U1: a slice is too short for a rate if anything else runs.
        let speed = judge.ratio("F1", "p50", "flock", ours);
        judge.add_ratio(format!("8. F1, {ours}: speed by p50 / bare system calls"), speed, AtLeast(0.5));
        let times = judge.ratio("F2", "handover_p50", ours, "flock");
        judge.add_ratio(format!("8. F2, {ours}: p50 / bare system calls"), times, AtMost(3.0));
    }
    for (scenario, metric, bound) in [("T1", "p50", AtMost(1.0)), ("T2", "rate", AtLeast(1.0))] {
        let (ours, theirs) = (["leasehold-tls", ours], ["client-tls", "client"]);
        let times = judge.results.times_more(scenario, metric, ours, theirs);
        judge.add_no_worse(
            format!("9. {scenario}: {metric} with TLS / plain, / the same of client"),
            times,
            bound,
        );
    }
    let times = judge.ratio("T3", "handover_p50", "leasehold-tls", "client-tls");
    judge.add_ratio("9. T3, with TLS: p50 / by hand", times, AtMost(1.25));
    for ours in [ours, setnx] {
        judge.growth(U2, ours, "client_cpu", "client CPU a pair", 1.0);
        judge.growth(W1, ours, "client_cpu", "client CPU a lock and period", 1.0);
        judge.growth(W1, ours, "memory", "bytes a lock", 1.0);
        judge.growth(W2, ours, "memory", "bytes a waiter", 1.0);
        judge.growth(W2, ours, "elapsed", "time a waiter until all run", 10.0);
    }
    judge.targets
}

fn verdict(target: &Target) -> &'static str {
    match target.holds {
        Some(true) => "holds",
        Some(false) => "MISSED",
        None => "–",
    }
}

/// The targets for the terminal.
pub(crate) fn table(targets: &[Target]) -> String {
    let width = targets.iter().map(|target| target.text.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for target in targets {
        let _ = writeln!(text, "{:<width$}  {:>24}  {}", target.text, target.value, verdict(target));
    }
    let count = |holds| targets.iter().filter(|target| target.holds == holds).count();
    let (held, missed, open) = (count(Some(true)), count(Some(false)), count(None));
    let _ = writeln!(text, "{held} hold, {missed} are missed, {open} were not measured.");
    text
}

/// The targets for the report.
pub(crate) fn markdown(targets: &[Target]) -> String {
    let mut text = String::from("| Target | Measured | |\n|---|--:|---|\n");
    for target in targets {
        let _ = writeln!(text, "| {} | {} | {} |", target.text, target.value, verdict(target));
    }
    text
}
