//! What arithmetic says about the first byte, beside what was measured.

use crate::experiment::results::FloorRow;
use crate::report::number::percent;
use crate::report::table::{Cell, Table, Tone};
use crate::report::tables::with_confidence;
use crate::report::view::View;

/// What the letters of the formulas are.
pub const LETTERS: &str = "What the delays of the links alone make of each way of asking. Round trips: c from the client to the first \
    relay, S over all sections between relays together, s from the last relay to the server, T = c + S + s.";

/// The floor of every treatment at every combination of levels, as far as one is known. A tenth of a millisecond matters.
#[must_use]
pub fn table(view: &View) -> Table {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<&str> = factors.iter().map(|(name, _)| name.as_str()).collect();
    titles.extend(["Treatment", "Formula", "#Floor (ms)", "#Median (ms)", "#95 % CI", "#Above"]);
    let mut table = Table::new(&titles);
    for levels in &view.combinations {
        for row in view.results.floors.iter().filter(|row| row.levels == *levels) {
            let level = |(name, _): &(String, Vec<String>)| levels.get(name).cloned().unwrap_or_default().into();
            let style = view.treatments.iter().position(|name| *name == row.treatment).unwrap_or_default();
            let mut cells: Vec<Cell> = factors.iter().map(level).collect();
            cells.push(Cell::new(&row.treatment, Tone::Series(style)));
            cells.extend([row.formula.clone(), format!("{:.1}", row.floor)].map(Cell::from));
            cells.extend(measured(row));
            table.push(cells);
        }
    }
    table.grouped_by(factors.len())
}

fn measured(row: &FloorRow) -> [Cell; 3] {
    let summary = &row.measured;
    if summary.n == 0 {
        return ["–", "–", "–"].map(Cell::from);
    }
    let above = percent(summary.median / row.floor - 1.0);
    let interval = with_confidence(format!("{:.1} – {:.1}", summary.low, summary.high), summary);
    [format!("{:.1}", summary.median), interval, above].map(Cell::from)
}
