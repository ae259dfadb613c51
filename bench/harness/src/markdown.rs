//! The report in Markdown.

use std::fmt::Write as _;

use crate::plan::Scenario;
use crate::results::{Cell, Figure, Results};
use crate::svg;
use crate::targets::{self, Target};

/// A figure, and its heading.
pub(crate) struct Column {
    pub(crate) metric: &'static str,
    pub(crate) title: &'static str,
    /// The divisor that makes a figure readable.
    scale: f64,
}

const fn column(metric: &'static str, title: &'static str, scale: f64) -> Column {
    Column { metric, title, scale }
}

/// The columns of a scenario; the first is drawn.
pub(crate) fn columns(scenario: &Scenario) -> &'static [Column] {
    const U1: &[Column] = &[column("p50", "p50, µs", 1.0), column("p99", "p99, µs", 1.0)];
    const U2: &[Column] = &[
        column("rate", "pairs/s", 1.0),
        column("p99", "p99, µs", 1.0),
        column("client_cpu", "client CPU, µs a pair", 1.0),
        column("server_cpu", "server CPU, µs a pair", 1.0),
        column("commands", "commands a pair", 1.0),
    ];
    const C1: &[Column] = &[
        column("rate", "grants/s", 1.0),
        column("p99", "p99 wait, ms", 1e3),
        column("commands", "commands a grant", 1.0),
        column("jain_tasks", "fairness, tasks", 1.0),
    ];
    const C2: &[Column] = &[
        column("rate", "grants/s", 1.0),
        column("p99", "p99 wait, ms", 1e3),
        column("commands", "commands a grant", 1.0),
        column("jain_tasks", "fairness, tasks", 1.0),
        column("jain_processes", "fairness, processes", 1.0),
        column("worst", "worst wait / mean", 1.0),
    ];
    const C3: &[Column] = &[
        column("rate", "grants/s", 1.0),
        column("p50", "p50 wait, ms", 1e3),
        column("p99", "p99 wait, ms", 1e3),
    ];
    const H: &[Column] = &[column("handover_p50", "p50, µs", 1.0), column("handover_p99", "p99, µs", 1.0)];
    const W1: &[Column] = &[
        column("requests_per_second", "requests/s", 1.0),
        column("requests_per_100", "requests a period for 100 locks", 1.0),
        column("client_cpu", "client CPU, µs a lock and period", 1.0),
        column("memory", "bytes a lock", 1.0),
        column("least_left", "least time left / lease", 1.0),
        column("connections", "connections", 1.0),
    ];
    const W2: &[Column] = &[
        column("elapsed", "until all run, ms", 1e3),
        column("memory", "bytes a waiter", 1.0),
        column("connections", "connections", 1.0),
    ];
    const G: &[Column] = &[column("elapsed", "total, ms", 1e3), column("requests", "requests", 1.0)];
    const M: &[Column] = &[column("rate", "pairs or grants/s", 1.0), column("p99", "p99, µs", 1.0)];
    const F1: &[Column] = &[
        column("rate", "pairs/s", 1.0),
        column("p50", "p50, µs", 1.0),
        column("p99", "p99, µs", 1.0),
        column("client_cpu", "CPU, µs a pair", 1.0),
    ];
    const E4: &[Column] = &[
        column("rate", "grants/s", 1.0),
        column("p99", "p99 wait, ms", 1e3),
        column("jain_tasks", "fairness, tasks", 1.0),
    ];
    match scenario.group {
        "U1" | "T1" => U1,
        "U2" | "T2" => U2,
        "C1" => C1,
        "C2" => C2,
        "C3" => C3,
        "H" | "F2" | "T3" | "E3" => H,
        "F1" | "E1" | "E2" => F1,
        "E4" => E4,
        "W1" => W1,
        "W2" => W2,
        "G" => G,
        _ => M,
    }
}

impl Column {
    pub(crate) fn scaled(&self, figure: Figure) -> Figure {
        let Figure { median, least, most } = figure;
        Figure { median: median / self.scale, least: least / self.scale, most: most / self.scale }
    }
}

/// A number with three significant digits, and thousands separated.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => {
            let digits = format!("{size:.0}");
            let mut text = String::from(if value < 0.0 { "-" } else { "" });
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    text.push('\u{202f}');
                }
                text.push(digit);
            }
            text
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn shown(figure: Figure) -> String {
    let Figure { median, least, most } = figure;
    let text = number(median);
    if number(least) == number(most) {
        text
    } else {
        format!("{text} <sub>{} … {}</sub>", number(least), number(most))
    }
}

/// Tables, charts, targets, and the machine.
pub(crate) fn report(results: &Results, targets: &[Target]) -> String {
    let facts = &results.facts;
    let mut text = format!(
        "# Measured\n\n{} cores ({}), {}, {}; {}; {} rounds of {} s a run; load before the first run {}.\n\
         Each figure is the median of the runs, with the least and the greatest beside it. A ratio is the median of\n\
         {} pairs of runs of {} s by turns, with its 95 % interval; of fewer than six, with the least and the greatest.\n",
        facts.cores,
        facts.processor,
        facts.memory,
        facts.kernel,
        facts.server,
        facts.rounds,
        facts.seconds,
        facts.load,
        facts.rounds * facts.turns,
        facts.slice,
    );
    text += "\n## Targets\n\n";
    text += &targets::markdown(targets);
    for scenario in results.scenarios() {
        let _ = write!(text, "\n## {}: {}\n\n", scenario.id, scenario.title);
        let _ = write!(text, "![{0}]({1})\n\n", scenario.title, svg::file(scenario));
        let columns = columns(scenario);
        text += "| |";
        for column in columns {
            let _ = write!(text, " {} |", column.title);
        }
        text += "\n|---|";
        text += &"--:|".repeat(columns.len());
        text.push('\n');
        let mut reasons = String::new();
        for cell in results.cells.iter().filter(|cell| cell.scenario.id == scenario.id) {
            text += &row(cell, columns);
            if let Some(reason) = cell.reason() {
                let _ = writeln!(reasons, "- {}: {reason}.", cell.contender.id);
            }
            if cell.is_wrong() {
                let _ = writeln!(reasons, "- {}: **two tasks held the lock at once.**", cell.contender.id);
            }
        }
        text += &ratios(results, scenario, columns);
        if !reasons.is_empty() {
            let _ = write!(text, "\n{reasons}");
        }
    }
    text
}

/// The ratios of contenders that took turns; nothing if none did.
fn ratios(results: &Results, scenario: &Scenario, columns: &[Column]) -> String {
    let mut rows = String::new();
    for cell in results.cells.iter().filter(|cell| cell.scenario.id == scenario.id) {
        for baseline in cell.contender.baselines {
            let ratio = |column: &Column| {
                results.ratio(&scenario.id, column.metric, cell.contender.id, baseline).map(|ratio| {
                    format!(
                        "{} <sub>{} … {}</sub>",
                        number(ratio.median),
                        number(ratio.low),
                        number(ratio.high)
                    )
                })
            };
            let ratios: Vec<_> = columns.iter().map(ratio).collect();
            if ratios.iter().any(Option::is_some) {
                let cells: Vec<_> = ratios.iter().map(|ratio| ratio.as_deref().unwrap_or("–")).collect();
                let _ = writeln!(rows, "| {} / {baseline} | {} |", cell.contender.id, cells.join(" | "));
            }
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let titles: Vec<_> = columns.iter().map(|column| column.title).collect();
    format!("\n| by turns | {} |\n|---|{}\n{rows}", titles.join(" | "), "--:|".repeat(columns.len()))
}

fn row(cell: &Cell, columns: &[Column]) -> String {
    let mark = if cell.is_wrong() { " ✗" } else { "" };
    let mut text = format!("| {}{mark} |", cell.contender.id);
    for column in columns {
        let figure = cell.figure(column.metric).map(|figure| shown(column.scaled(figure)));
        let _ = write!(text, " {} |", figure.as_deref().unwrap_or("–"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_with_three_significant_digits() {
        assert_eq!(number(0.123), "0.12");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(1_234_567.0), "1\u{202f}234\u{202f}567");
    }
}
