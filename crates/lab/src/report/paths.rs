//! Table of the paths of sessions.

use std::collections::BTreeMap;

use crate::experiment::collect::results::SessionRun;
use crate::report::number::format_significant;
use crate::report::table::{CellKind, ReportTable, TableCell};
use crate::report::view::{Levels, ReportView};
use crate::stats::median;

/// Explanation above the table.
pub const NOTE: &str = "All sessions of valid runs, by the path in the chooser's log: each path with its number of \
    sessions, the most frequent first. Completion is from start to the last byte, in milliseconds.";

/// Returns the paths of every treatment at every combination of levels.
#[must_use]
pub fn table(view: &ReportView) -> ReportTable {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<String> = factors.iter().map(|(name, _)| name.clone()).collect();
    titles.extend(["Treatment", "Paths", "#Completion (median)", "#Failed"].map(str::to_owned));
    let mut table = ReportTable::new(&titles);
    for levels in &view.combinations {
        for (style, treatment) in view.treatments.iter().enumerate() {
            let sessions: Vec<&SessionRun> = view.valid_runs(levels, treatment).flat_map(|run| &run.sessions).collect();
            if !sessions.is_empty() {
                table.push(row(view, levels, style, treatment, &sessions));
            }
        }
    }
    table.without_empty_columns().grouped_by(factors.len())
}

fn row(view: &ReportView, levels: &Levels, style: usize, treatment: &str, sessions: &[&SessionRun]) -> Vec<TableCell> {
    let factors = view.results.manifest.factors.iter();
    let mut row: Vec<TableCell> =
        factors.map(|(name, _)| levels.get(name).cloned().unwrap_or_default().into()).collect();
    let durations: Vec<f64> =
        sessions.iter().filter(|session| session.failed.is_none()).map(|session| session.ms).collect();
    let failed = sessions.len() - durations.len();
    row.push(TableCell::new(treatment, CellKind::Treatment(style)));
    row.push(count_by_path(sessions).into());
    row.push(if durations.is_empty() { String::new() } else { format_significant(median(&durations)) }.into());
    row.push(if failed > 0 { TableCell::new(failed.to_string(), CellKind::Bad) } else { String::new().into() });
    row
}

/// Returns each path with its number of sessions, the most frequent path first.
fn count_by_path(sessions: &[&SessionRun]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in sessions.iter().filter_map(|session| session.path.as_deref()) {
        *counts.entry(path).or_default() += 1;
    }
    let mut ranked: Vec<(&str, usize)> = counts.into_iter().collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranked.iter().map(|(path, count)| format!("{path} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sorted_by_session_count() {
        let session = |path: &str| SessionRun { path: Some(path.to_owned()), ..SessionRun::default() };
        let all = [session("a"), session("direct"), session("direct"), SessionRun::default()];
        assert_eq!(count_by_path(&all.iter().collect::<Vec<_>>()), "direct 2, a 1");
    }
}
