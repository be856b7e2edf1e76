//! What each group of connections got, as a table.

use crate::experiment::results::{GroupRun, Run};
use crate::report::number::{format_interval, format_significant};
use crate::report::table::{CellKind, ReportTable, TableCell};
use crate::report::view::{Levels, ReportView};
use crate::stats::fairness::mean;
use crate::stats::median;

/// How the table is to be read.
pub const NOTE: &str = "Medians over valid runs, in Mbit/s. The congestion control is what the kernel said the connections had. \
    Retransmissions are counted over all of the run, short flows in milliseconds from their first packet to the receiver's answer.";

/// Every group of every treatment at every combination of levels.
#[must_use]
pub fn table(view: &ReportView) -> ReportTable {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<String> = factors.iter().map(|(name, _)| name.clone()).collect();
    titles.extend(["Treatment", "Group", "Congestion control", "#Connections"].map(str::to_owned));
    titles.extend(["#All", "#Each", "#Least – most", "#Retransmissions", "#Short flows"].map(str::to_owned));
    let mut table = ReportTable::new(&titles);
    for levels in &view.combinations {
        for (style, treatment) in view.treatments.iter().enumerate() {
            let runs: Vec<&Run> = view.valid_runs(levels, treatment).collect();
            let names = runs.first().map(|run| run.groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>());
            for name in names.unwrap_or_default() {
                let groups: Vec<&GroupRun> =
                    runs.iter().flat_map(|run| &run.groups).filter(|group| group.name == name).collect();
                table.push(row(view, levels, (style, treatment), &groups));
            }
        }
    }
    table.without_empty_columns().grouped_by(factors.len())
}

fn row(view: &ReportView, levels: &Levels, (style, treatment): (usize, &str), groups: &[&GroupRun]) -> Vec<TableCell> {
    let factors = view.results.manifest.factors.iter();
    let mut row: Vec<TableCell> =
        factors.map(|(name, _)| levels.get(name).cloned().unwrap_or_default().into()).collect();
    let of = |figure: fn(&GroupRun) -> Option<f64>| {
        let values: Vec<f64> = groups.iter().filter_map(|group| figure(group)).collect();
        if values.is_empty() { String::new() } else { format_significant(median(&values)) }
    };
    let rates = || groups.iter().flat_map(|group| group.rates.iter().copied());
    let ends = [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
    let (first, connections) = (groups.first(), groups.first().map_or(0, |group| group.rates.len()));
    row.push(TableCell::new(treatment, CellKind::Treatment(style)));
    row.push(first.map_or_else(String::new, |group| group.name.clone()).into());
    row.push(first.map_or_else(String::new, |group| group.congestion.clone()).into());
    row.push(if connections > 0 { connections.to_string() } else { String::new() }.into());
    row.push(of(|group| Some(group.mbit_s)).into());
    row.push(of(|group| mean(&group.rates)).into());
    row.push(if connections > 1 { format_interval(ends[0], ends[1]) } else { String::new() }.into());
    #[allow(clippy::cast_precision_loss, reason = "a number of packets")]
    row.push(of(|group| group.retransmits.map(|count| count as f64)).into());
    row.push(of(|group| (!group.completions.is_empty()).then(|| median(&group.completions))).into());
    row
}
