//! Table of the gains by relays, with the published gains and the arithmetic limit.

use crate::experiment::collect::results::{GainRow, Summary};
use crate::report::number::format_significant;
use crate::report::table::{CellKind, ReportTable, TableCell};
use crate::report::tables::verdict;
use crate::report::view::ReportView;

/// Explanation above the table.
pub const NOTE: &str = "Medians over valid runs. The limit is what arithmetic allows the slowest section: the least of its line, its \
    window in a round trip, and the response function of its sender at its loss. The bar is the published gain, or, where the path \
    without relays is better here than published, a share of the limit.";

/// Returns a row for each gain that the experiment expects.
#[must_use]
pub fn table(view: &ReportView) -> ReportTable {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<String> = factors.iter().map(|(name, _)| name.clone()).collect();
    let unit = view.unit();
    titles.extend(["Treatment", "#Published", "#×", "#Ours", "#×"].map(str::to_owned));
    titles.extend([format!("#Limit ({unit})"), "Bound".to_owned(), "#of it".to_owned(), "#Alone".to_owned()]);
    titles.extend(["Bar", "Verdict"].map(str::to_owned));
    let mut table = ReportTable::new(&titles);
    for levels in &view.combinations {
        for row in view.results.gains.iter().filter(|row| row.levels == *levels) {
            let style = view.treatments.iter().position(|name| *name == row.treatment).unwrap_or_default();
            let level = |(name, _): &(String, Vec<String>)| levels.get(name).cloned().unwrap_or_default().into();
            let mut cells: Vec<TableCell> = factors.iter().map(level).collect();
            cells.push(TableCell::new(&row.treatment, CellKind::Treatment(style)));
            cells.extend(value_cells(row));
            cells.push(verdict(row.verdict));
            table.push(cells);
        }
    }
    table.without_empty_columns().grouped_by(factors.len())
}

fn value_cells(row: &GainRow) -> [TableCell; 9] {
    let pair = |[without, with]: [String; 2]| format!("{without} → {with}");
    let share = if row.measured.n > 0 { format_significant(row.measured.median / row.limit) } else { "–".to_owned() };
    let bar = if row.is_judged_by_limit() { format!("{} of limit", row.of_limit) } else { "gain".to_owned() };
    [
        pair(row.published.map(format_significant)),
        format_significant(row.published_gain()),
        pair([format_median(&row.base), format_median(&row.measured)]),
        format_median(&row.gain),
        format_significant(row.limit),
        row.bound.clone(),
        share,
        row.ceiling.as_ref().map_or_else(String::new, format_median),
        bar,
    ]
    .map(TableCell::from)
}

fn format_median(summary: &Summary) -> String {
    if summary.n > 0 { format_significant(summary.median) } else { "–".to_owned() }
}
