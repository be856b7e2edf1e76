//! The charts of a report. Every title names the condition that the chart shows.

use crate::experiment::collect::results::CellSummary;
use crate::report::chart::Chart;
use crate::report::view::{Levels, ReportView};

mod first_byte;
mod groups;
mod lateness;
mod levels;
mod map;
mod metric;
mod paths;
mod sequence;
mod time;

/// Charts under a common heading.
#[derive(Debug)]
pub struct ChartGroup {
    /// Heading of the section.
    pub heading: String,
    /// Explanation below the heading.
    pub note: String,
    /// Style and name of the series in all charts; empty if the axes identify them.
    pub legend: Vec<(usize, String)>,
    /// The charts; never empty.
    pub charts: Vec<Chart>,
}

/// Maximum number of charts in a group.
const MAX_CHARTS: usize = 6;

/// Returns all charts of the results of an experiment.
#[must_use]
pub fn result_charts(view: &ReportView) -> Vec<ChartGroup> {
    let metrics = [metric_charts(view), paths::chart_group(view), groups::rates(view), groups::over_time(view)];
    let all = metrics.into_iter().chain([time::chart_group(view), first_byte::chart_group(view)]);
    all.flatten().chain(sequence::chart_groups(view)).filter(|figure| !figure.charts.is_empty()).collect()
}

/// Returns the charts of the metric; `None` if there are none.
#[must_use]
pub fn metric_charts(view: &ReportView) -> Option<ChartGroup> {
    map::chart_group(view).or_else(|| metric::chart_group(view)).filter(|figure| !figure.charts.is_empty())
}

/// Returns the charts of the lateness of the emulator; `None` if there are none.
#[must_use]
pub fn emulator_charts(view: &ReportView) -> Option<ChartGroup> {
    lateness::chart_group(view).filter(|figure| !figure.charts.is_empty())
}

/// Returns the styles and names of all treatments.
fn legend(view: &ReportView) -> Vec<(usize, String)> {
    view.treatments.iter().cloned().enumerate().collect()
}

/// Returns the combinations of the levels of all factors except `factors`.
fn levels_without(view: &ReportView, factors: &[String]) -> Vec<Levels> {
    let mut panels: Vec<Levels> = Vec::new();
    for levels in &view.combinations {
        let mut rest = levels.clone();
        rest.retain(|factor, _| !factors.contains(factor));
        if !panels.contains(&rest) {
            panels.push(rest);
        }
    }
    panels
}

/// Returns at most [`MAX_CHARTS`] of `combinations`: those at which treatments differ most, in their original order.
/// The note states whether others are omitted. A combination may have the levels of some factors only.
fn most_different_levels<'a>(view: &'a ReportView, combinations: &[&'a Levels]) -> (Vec<&'a Levels>, String) {
    if combinations.len() <= MAX_CHARTS {
        return (combinations.to_vec(), String::new());
    }
    let mut ranked: Vec<&Levels> = combinations.to_vec();
    ranked.sort_by(|a, b| largest_log_ratio(view, b).total_cmp(&largest_log_ratio(view, a)));
    ranked.truncate(MAX_CHARTS);
    let selected = combinations.iter().copied().filter(|levels| ranked.contains(levels)).collect();
    let total = combinations.len();
    (selected, format!(" Of {total} conditions, these are the {MAX_CHARTS} in which treatments differ most."))
}

/// Returns the largest absolute logarithm of a ratio to the first treatment, over all cells with these levels.
fn largest_log_ratio(view: &ReportView, levels: &Levels) -> f64 {
    let within = |cell: &&CellSummary| levels.iter().all(|(factor, level)| cell.levels.get(factor) == Some(level));
    let ratios = view.results.cells.iter().filter(within).filter_map(|cell| cell.ratio);
    ratios.map(|ratio| ratio.median.ln().abs()).filter(|size| size.is_finite()).fold(0.0, f64::max)
}
