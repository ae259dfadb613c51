//! An older checkout of the library against this one, by turns.
//!
//! In each turn the old one runs, then the new one, then the old one again. The new one is compared with the mean of the two
//! runs around it, so that a machine that becomes slower and slower changes nothing. The two old runs are the same code: the
//! difference between them is noise.

use std::fmt::Write as _;
use std::path::Path;

use crate::markdown::columns;
use crate::metrics::{Metrics, is_exclusive};
use crate::plan::{self, Options, Step};
use crate::progress::Progress;
use crate::ratio::Ratio;
use crate::runner::Runner;

/// The value that an interval has to reach with any noise: a slowdown of less than three per cent is ignored.
const REACH: f64 = 0.97;

/// Measures and prints the results; returns whether nothing has become slower.
///
/// # Errors
///
/// When there is nothing to compare, or no server.
pub(crate) fn run(options: &Options, drivers: &Path) -> Result<bool, String> {
    let plan = plan::against(options)?;
    let new = Runner::new(options, &plan)?.for_turns(options);
    let mut comparisons: Vec<_> = plan.into_iter().map(Comparison::new).collect();
    let old = new.of_another_checkout(drivers);
    let turns = options.turns_against();
    let mut progress = Progress::new(turns * comparisons.len());
    for turn in 0..turns {
        for comparison in &mut comparisons {
            let Step { scenario, contenders } = &comparison.step;
            let contender = contenders[0];
            progress.show(&format!("turn {} of {turns}: {} {}", turn + 1, scenario.id, contender.id));
            let [before, between, after] = [&old, &new, &old].map(|runner| runner.run(scenario, contender));
            comparison.add(turn, &before, &between, &after);
            progress.step();
        }
    }
    progress.end();
    print!("{}", table(&comparisons));
    Ok(comparisons.iter().all(|comparison| comparison.verdict() == Verdict::NotSlower))
}

/// The library in one scenario.
struct Comparison {
    step: Step,
    /// New to old, and old to old, for each turn: 1 is the same, less is worse.
    new: Vec<f64>,
    noise: Vec<f64>,
    /// The first failure, of the old one and of the new one.
    old_failure: Option<String>,
    new_failure: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    NotSlower,
    Slower,
    /// There is nothing to judge, or the new one failed.
    Failed(String),
}

impl Comparison {
    fn new(step: Step) -> Self {
        Self { step, new: Vec::new(), noise: Vec::new(), old_failure: None, new_failure: None }
    }

    /// Adds the results of one turn. A turn in which a run has failed is left out.
    fn add(
        &mut self,
        turn: usize,
        before: &Result<Metrics, String>,
        between: &Result<Metrics, String>,
        after: &Result<Metrics, String>,
    ) {
        let metric = self.metric().0;
        let before = noted(before, metric, &mut self.old_failure);
        let between = noted(between, metric, &mut self.new_failure);
        let after = noted(after, metric, &mut self.old_failure);
        let (Some(before), Some(between), Some(after)) = (before, between, after) else { return };
        // How good one figure is as a multiple of another.
        let good = |one: f64, other: f64| if metric == "rate" { one / other } else { other / one };
        self.new.push(good(between, (before * after).sqrt()));
        // Reversed every other time, so that a machine that becomes slower and slower does not look like noise.
        self.noise.push(if turn.is_multiple_of(2) { good(after, before) } else { good(before, after) });
    }

    /// The figure that is compared: that of the scenario's chart, and its title.
    fn metric(&self) -> (&'static str, &'static str) {
        let column = &columns(&self.step.scenario)[0];
        (column.metric, column.title)
    }

    fn verdict(&self) -> Verdict {
        if let Some(failure) = &self.new_failure {
            return Verdict::Failed(format!("new: {failure}"));
        }
        let ratios = Ratio::of(self.new.iter().copied()).zip(Ratio::of(self.noise.iter().copied()));
        match (ratios, &self.old_failure) {
            (Some((new, noise)), _) if is_slower(new, noise) => Verdict::Slower,
            (Some(_), _) => Verdict::NotSlower,
            (None, Some(failure)) => Verdict::Failed(format!("old: {failure}")),
            (None, None) => Verdict::Failed("nothing was measured".into()),
        }
    }
}

/// The figure of a run; without one, the failure is noted.
fn noted(run: &Result<Metrics, String>, metric: &str, failure: &mut Option<String>) -> Option<f64> {
    let reason = match run {
        Err(reason) => reason.clone(),
        Ok(metrics) if !is_exclusive(metrics) => "two tasks held the lock at once".into(),
        Ok(metrics) => match metrics.get(metric) {
            Some(figure) => return Some(*figure),
            None => format!("a run has no {metric}"),
        },
    };
    failure.get_or_insert(reason);
    None
}

/// Whether the whole interval lies below what the noise explains.
fn is_slower(new: Ratio, noise: Ratio) -> bool {
    new.high < REACH.min(noise.low)
}

fn table(comparisons: &[Comparison]) -> String {
    let head = ["", "", "figure", "new / old", "old / old", ""].map(String::from);
    let rows = comparisons.iter().map(|comparison| {
        let ratio = |ratios: &[f64]| Ratio::of(ratios.iter().copied()).map(|ratio| ratio.to_string());
        let verdict = match comparison.verdict() {
            Verdict::NotSlower => "not slower".into(),
            Verdict::Slower => "SLOWER".into(),
            Verdict::Failed(reason) => format!("FAILED, {reason}"),
        };
        [
            comparison.step.scenario.id.clone(),
            comparison.step.contenders[0].id.into(),
            comparison.metric().1.into(),
            ratio(&comparison.new).unwrap_or_default(),
            ratio(&comparison.noise).unwrap_or_default(),
            verdict,
        ]
    });
    let mut text =
        String::from("1 is the same, less than 1 is worse; in brackets the interval of the median.\n");
    for [scenario, contender, figure, new, noise, verdict] in std::iter::once(head).chain(rows) {
        let line = format!("{scenario:<8} {contender:<17} {figure:<18} {new:<20} {noise:<20} {verdict}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(only: &str) -> Comparison {
        let line = ["bench", "--only", only];
        let options = <crate::CommandLine as clap::Parser>::try_parse_from(line).unwrap().options;
        Comparison::new(plan::against(&options).unwrap().remove(0))
    }

    /// A comparison with `runs` for each turn: old, new and old again.
    fn of(only: &str, metric: &'static str, runs: impl Fn(usize) -> [f64; 3]) -> Comparison {
        let mut comparison = comparison(only);
        for turn in 0..9 {
            let [before, between, after] = runs(turn).map(|value| Ok(Metrics::from([(metric, value)])));
            comparison.add(turn, &before, &between, &after);
        }
        comparison
    }

    #[test]
    fn more_is_better_for_a_rate_and_less_for_a_latency() {
        assert_eq!(of("U2-128", "rate", |_| [100.0, 90.0, 100.0]).verdict(), Verdict::Slower);
        assert_eq!(of("U2-128", "rate", |_| [100.0, 110.0, 100.0]).verdict(), Verdict::NotSlower);
        assert_eq!(of("U1", "p50", |_| [100.0, 110.0, 100.0]).verdict(), Verdict::Slower);
        assert_eq!(of("H", "handover_p50", |_| [100.0, 90.0, 100.0]).verdict(), Verdict::NotSlower);
    }

    #[test]
    fn a_machine_that_becomes_slower_does_not_change_the_ratio() {
        let steady = of("M-16", "rate", |turn| {
            let start = 0.8f64.powi(i32::try_from(turn).unwrap() * 3);
            [start, start * 0.8, start * 0.8 * 0.8]
        });
        let ratio = Ratio::of(steady.new.iter().copied()).unwrap();
        assert!((ratio.median - 1.0).abs() < 1e-9, "{ratio}");
        let noise = Ratio::of(steady.noise.iter().copied()).unwrap();
        assert!(noise.low < 0.65 && noise.high > 1.5, "{noise}");
    }

    #[test]
    fn a_difference_within_the_noise_or_three_percent_is_not_slower() {
        let ratio = |low, high| Ratio { median: f64::midpoint(low, high), low, high };
        assert!(!is_slower(ratio(0.90, 0.98), ratio(0.99, 1.01)));
        assert!(is_slower(ratio(0.90, 0.96), ratio(0.99, 1.01)));
        assert!(!is_slower(ratio(0.80, 0.91), ratio(0.90, 1.10)));
        assert!(is_slower(ratio(0.80, 0.89), ratio(0.90, 1.10)));
    }

    #[test]
    fn a_violation_of_the_new_version_fails_the_comparison() {
        let good = Ok(Metrics::from([("rate", 1.0)]));
        let wrong = Ok(Metrics::from([("rate", 2.0), ("violations", 1.0)]));
        let mut comparison = comparison("C1");
        comparison.add(0, &good, &good, &good);
        comparison.add(1, &Err("gone".into()), &good, &good);
        assert_eq!(comparison.verdict(), Verdict::NotSlower);
        assert_eq!(comparison.new.len(), 1);
        comparison.add(2, &good, &wrong, &good);
        assert_eq!(comparison.verdict(), Verdict::Failed("new: two tasks held the lock at once".into()));
    }

    #[test]
    fn an_old_version_that_never_runs_fails_the_comparison() {
        let good = Ok(Metrics::from([("rate", 1.0)]));
        let mut comparison = comparison("C2");
        comparison.add(0, &Err("gone".into()), &good, &good);
        assert_eq!(comparison.verdict(), Verdict::Failed("old: gone".into()));
        assert!(table(&[comparison]).contains("FAILED, old: gone"));
    }
}
