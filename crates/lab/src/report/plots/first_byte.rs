//! Charts of the time to the first byte.

use crate::experiment::collect::metric::FIRST_BYTE;
use crate::report::chart::{Chart, StripPlot, StripRow};
use crate::report::number::format_significant;
use crate::report::plots::{ChartGroup, most_different_levels};
use crate::report::view::{Levels, ReportView};
use crate::stats;

/// Returns one chart for each combination of levels, with every valid run. Returns `None` if this is the metric of the
/// experiment, which has its own charts. Without values, the group has no charts.
pub fn chart_group(view: &ReportView) -> Option<ChartGroup> {
    if view.results.manifest.metric.key == FIRST_BYTE {
        return None;
    }
    let has_values =
        |levels: &&Levels| view.treatments.iter().any(|treatment| !values(view, levels, treatment).is_empty());
    let combinations: Vec<&Levels> = view.combinations.iter().filter(has_values).collect();
    let (shown, left_out) = most_different_levels(view, &combinations);
    Some(ChartGroup {
        heading: "Time to the first byte".to_owned(),
        note: format!("Dots are runs; marks are medians.{left_out}"),
        legend: Vec::new(),
        charts: shown.into_iter().map(|levels| chart(view, levels)).collect(),
    })
}

/// Returns the values of all valid runs, ascending.
fn values(view: &ReportView, levels: &Levels, treatment: &str) -> Vec<f64> {
    let runs = view.valid_runs(levels, treatment);
    let mut values: Vec<f64> =
        runs.filter_map(|run| run.metrics.get(FIRST_BYTE).copied()).filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn chart(view: &ReportView, levels: &Levels) -> Chart {
    let row = |(style, treatment): (usize, &String)| {
        let values = values(view, levels, treatment);
        let median = (!values.is_empty()).then(|| stats::median(&values));
        let hint = match median {
            Some(median) => format!("{treatment}: {} ms, n = {}", format_significant(median), values.len()),
            None => format!("{treatment}: no valid run"),
        };
        StripRow { style, name: treatment.clone(), values, median, interval: None, tooltip: hint }
    };
    let rows = view.treatments.iter().enumerate().map(row).collect();
    let title = format!("{}: time to the first byte by treatment", view.condition_label(levels, None));
    StripPlot::new("time to the first byte (ms)".to_owned(), rows).chart(title)
}
