//! Table of the arithmetic floors of the time to the first byte, with the measured values.

use crate::experiment::collect::results::FloorRow;
use crate::report::number::format_percent;
use crate::report::table::{CellKind, ReportTable, TableCell};
use crate::report::tables::with_range_mark;
use crate::report::view::ReportView;

/// Explanation of the symbols in the formulas.
pub const FORMULA_LEGEND: &str = "What the delays of the links alone make of each way of asking. Round trips: c from the client to the first \
    relay, S over all sections between relays together, s from the last relay to the server, T = c + S + s.";

/// Returns the known floors of treatments at combinations of levels, in milliseconds with one decimal.
#[must_use]
pub fn table(view: &ReportView) -> ReportTable {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<&str> = factors.iter().map(|(name, _)| name.as_str()).collect();
    titles.extend(["Treatment", "Formula", "#Floor (ms)", "#Median (ms)", "#95 % CI", "#Above"]);
    let mut table = ReportTable::new(&titles);
    for levels in &view.combinations {
        for row in view.results.floors.iter().filter(|row| row.levels == *levels) {
            let level = |(name, _): &(String, Vec<String>)| levels.get(name).cloned().unwrap_or_default().into();
            let style = view.treatments.iter().position(|name| *name == row.treatment).unwrap_or_default();
            let mut cells: Vec<TableCell> = factors.iter().map(level).collect();
            cells.push(TableCell::new(&row.treatment, CellKind::Treatment(style)));
            cells.extend([row.formula.clone(), format!("{:.1}", row.floor)].map(TableCell::from));
            cells.extend(measured(row));
            table.push(cells);
        }
    }
    table.grouped_by(factors.len())
}

fn measured(row: &FloorRow) -> [TableCell; 3] {
    let summary = &row.measured;
    if summary.n == 0 {
        return ["–", "–", "–"].map(TableCell::from);
    }
    let above = format_percent(summary.median / row.floor - 1.0);
    let interval = with_range_mark(format!("{:.1} – {:.1}", summary.low, summary.high), summary);
    [format!("{:.1}", summary.median), interval, above].map(TableCell::from)
}
