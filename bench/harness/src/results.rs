//! The results of all rounds.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::facts::Facts;
use crate::markdown;
use crate::metrics::{Metrics, is_exclusive};
use crate::plan::{Contender, Scenario};
use crate::ratio::Ratio;
use crate::svg;
use crate::targets::Target;

/// One contender in one scenario.
pub(crate) struct Cell {
    pub(crate) scenario: Scenario,
    pub(crate) contender: &'static Contender,
    /// The runs of all rounds. Where there are turns, the same index in two cells is the same turn.
    runs: Vec<Result<Metrics, String>>,
}

/// The median of the runs, and how far they lie apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Cell {
    pub(crate) fn figure(&self, metric: &str) -> Option<Figure> {
        let runs = self.runs.iter().flatten();
        let mut values: Vec<f64> = runs.filter_map(|metrics| metrics.get(metric).copied()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Figure { median: f64::midpoint(lower, upper), least, most })
    }

    /// Why there are no figures, if there are none.
    pub(crate) fn reason(&self) -> Option<&str> {
        let failed = self.runs.iter().all(Result::is_err);
        self.runs.first().filter(|_| failed)?.as_ref().err().map(String::as_str)
    }

    /// Whether two tasks held the lock at once, in any run.
    pub(crate) fn is_wrong(&self) -> bool {
        !self.runs.iter().flatten().all(is_exclusive)
    }
}

/// All cells, in the order in which they ran.
pub(crate) struct Results {
    pub(crate) facts: Facts,
    pub(crate) cells: Vec<Cell>,
}

impl Results {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts, cells: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        scenario: &Scenario,
        contender: &'static Contender,
        result: Result<Metrics, String>,
    ) {
        let same = |cell: &&mut Cell| cell.scenario.id == scenario.id && cell.contender.id == contender.id;
        match self.cells.iter_mut().find(same) {
            Some(cell) => cell.runs.push(result),
            None => self.cells.push(Cell { scenario: scenario.clone(), contender, runs: vec![result] }),
        }
    }

    pub(crate) fn cell(&self, scenario: &str, contender: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.scenario.id == scenario && cell.contender.id == contender)
    }

    pub(crate) fn median(&self, scenario: &str, contender: &str, metric: &str) -> Option<f64> {
        self.cell(scenario, contender)?.figure(metric).map(|figure| figure.median)
    }

    /// The ratio of a figure of one contender to that of another that took turns with it.
    pub(crate) fn ratio(&self, scenario: &str, metric: &str, over: &str, under: &str) -> Option<Ratio> {
        let (over, under) = (self.cell(scenario, over)?, self.cell(scenario, under)?);
        let pairs = over.runs.iter().zip(&under.runs);
        Ratio::of(pairs.filter_map(|(over, under)| {
            Some(over.as_ref().ok()?.get(metric)? / under.as_ref().ok()?.get(metric)?)
        }))
    }

    /// The same of two such ratios: how many times more a first one grows from its second contender to its first.
    pub(crate) fn times_more(
        &self,
        scenario: &str,
        metric: &str,
        over: [&str; 2],
        under: [&str; 2],
    ) -> Option<Ratio> {
        let [a, b] = [self.cell(scenario, over[0])?, self.cell(scenario, over[1])?];
        let [c, d] = [self.cell(scenario, under[0])?, self.cell(scenario, under[1])?];
        let figure = |run: &Result<Metrics, String>| run.as_ref().ok()?.get(metric).copied();
        let turns = a.runs.iter().zip(&b.runs).zip(c.runs.iter().zip(&d.runs));
        Ratio::of(
            turns.filter_map(|((a, b), (c, d))| Some((figure(a)? / figure(b)?) / (figure(c)? / figure(d)?))),
        )
    }

    /// The scenarios that ran, in order.
    pub(crate) fn scenarios(&self) -> Vec<&Scenario> {
        let mut scenarios: Vec<&Scenario> = Vec::new();
        for cell in &self.cells {
            if !scenarios.iter().any(|known| known.id == cell.scenario.id) {
                scenarios.push(&cell.scenario);
            }
        }
        scenarios
    }

    /// Writes the report into a folder: figures, tables and charts.
    pub(crate) fn write(&self, folder: &Path, targets: &[Target]) -> Result<(), String> {
        let write = |name: String, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
        };
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let json = serde_json::to_string_pretty(&self.json(targets)).map_err(|error| error.to_string())?;
        write("latest.json".into(), json + "\n")?;
        write("report.md".into(), markdown::report(self, targets))?;
        for scenario in self.scenarios() {
            if let Some(chart) = svg::chart(self, scenario) {
                write(svg::file(scenario), chart)?;
            }
        }
        Ok(())
    }

    fn json(&self, targets: &[Target]) -> Value {
        let mut scenarios = Map::new();
        for cell in &self.cells {
            let runs: Vec<_> = cell
                .runs
                .iter()
                .map(|run| match run {
                    Ok(metrics) => json!(metrics),
                    Err(reason) => json!({ "reason": reason }),
                })
                .collect();
            let scenario = scenarios.entry(&cell.scenario.id).or_insert_with(|| json!({}));
            scenario[cell.contender.id] = json!({ "runs": runs, "exclusive": !cell.is_wrong() });
        }
        let targets: Vec<_> = targets
            .iter()
            .map(|target| json!({ "target": target.text, "value": target.value, "holds": target.holds }))
            .collect();
        json!({ "facts": self.facts, "scenarios": scenarios, "targets": targets })
    }
}
