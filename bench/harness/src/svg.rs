//! A bar for each contender.

use std::fmt::Write as _;

use crate::markdown::{columns, number};
use crate::plan::{Family, Scenario};
use crate::results::Results;

const NAMES: f64 = 150.0;
const BARS: f64 = 400.0;
const LABELS: f64 = 110.0;
const ROW: f64 = 24.0;
const TOP: f64 = 44.0;

/// The file name of the chart of a scenario.
pub(crate) fn file(scenario: &Scenario) -> String {
    format!("{}.svg", scenario.id.to_lowercase())
}

/// The first figure of a scenario; nothing if no contender has one.
pub(crate) fn chart(results: &Results, scenario: &Scenario) -> Option<String> {
    let column = columns(scenario).first()?;
    let bars: Vec<_> = results
        .cells
        .iter()
        .filter(|cell| cell.scenario.id == scenario.id)
        .filter_map(|cell| Some((cell, column.scaled(cell.figure(column.metric)?))))
        .collect();
    let most = bars.iter().map(|(_, figure)| figure.most).fold(f64::MIN_POSITIVE, f64::max);
    if bars.is_empty() {
        return None;
    }
    let (width, height) = (NAMES + BARS + LABELS, TOP + ROW * bars.len() as f64 + 8.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{0}: {1}, {2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-weight=\"bold\">{0}: {1}</text>\n\
         <text x=\"8\" y=\"35\" fill=\"#555\">{2}</text>\n",
        scenario.id, scenario.title, column.title,
    );
    for (row, (cell, figure)) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let length = |value: f64| (BARS * value.max(0.0) / most).max(1.0);
        let colour = match cell.contender.family {
            _ if cell.contender.id.starts_with("leasehold") => "#c2571a",
            Family::Baseline => "#9aa5ad",
            _ => "#3b6ea5",
        };
        let middle = y + ROW / 2.0 + 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{middle:.1}\" text-anchor=\"end\">{}{}</text>\n\
             <rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            NAMES - 8.0,
            cell.contender.id,
            if cell.is_wrong() { " ✗" } else { "" },
            y + 4.0,
            length(figure.median),
            ROW - 8.0,
        );
        if figure.most > figure.least {
            let (from, to) = (NAMES + length(figure.least), NAMES + length(figure.most));
            let line = y + ROW / 2.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"#222\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{middle:.1}\">{}</text>",
            NAMES + length(figure.most) + 6.0,
            number(figure.median)
        );
    }
    svg += "</svg>\n";
    Some(svg)
}
