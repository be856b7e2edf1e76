//! Charts of the goodput of each group of connections: by a factor, and over time.

use crate::experiment::collect::results::{GroupRun, Run};
use crate::report::chart::{Axis, Chart, DataPoint, LineChart, LineSeries, Scale, labelled_ticks};
use crate::report::number::format_significant;
use crate::report::plots::levels::{AxisFactor, at_level, choose_axis_factor, panels};
use crate::report::plots::{ChartGroup, largest_log_ratio, time};
use crate::report::view::{Levels, ReportView};
use crate::stats::mean;
use crate::stats::median;

/// Returns the names of the groups with continuous flows, in the order of their first appearance in runs.
fn names(view: &ReportView) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for group in view.results.runs.iter().flat_map(|run| &run.groups).filter(|group| !group.rates.is_empty()) {
        if !names.contains(&group.name) {
            names.push(group.name.clone());
        }
    }
    names
}

/// Returns charts of the rate of one connection of each group by a factor: a chart for each treatment at each
/// combination of the other factors. If a treatment has one group at a time, one chart shows all of its groups.
pub fn rates(view: &ReportView) -> Option<ChartGroup> {
    let names = names(view);
    let axis = choose_axis_factor(view).filter(|_| !names.is_empty() && view.results.manifest.map.is_none())?;
    let mut single_groups: Vec<(&String, Vec<LineSeries>)> = Vec::new();
    let mut charts = Vec::new();
    let title = |condition: &str, treatment: &str| {
        format!("{condition}, {treatment}: goodput of a connection by {}", axis.factor)
    };
    for panel in panels(view, &axis) {
        let mut titled_series = Vec::new();
        for treatment in &view.treatments {
            let styled = names.iter().enumerate();
            let series: Vec<LineSeries> =
                styled.filter_map(|(style, name)| series(view, &axis, &panel, treatment, style, name)).collect();
            match (series.len(), single_groups.iter_mut().find(|(name, _)| *name == treatment)) {
                (0, _) => {}
                (1, Some((_, others))) if names.len() > 1 => others.extend(series),
                (1, None) if names.len() > 1 => single_groups.push((treatment, series)),
                _ => titled_series.push((title(&view.condition_label(&panel, Some(&axis.factor)), treatment), series)),
            }
        }
        charts.extend(with_shared_scale(&axis, titled_series));
    }
    let single_groups =
        single_groups.into_iter().map(|(treatment, series)| (title("each alone", treatment), series)).collect();
    Some(ChartGroup {
        heading: format!("Goodput of each group by {}", axis.factor),
        note: "The mean rate of one connection of the group, as its receiver counted; medians over valid runs."
            .to_owned(),
        charts: with_shared_scale(&axis, single_groups).into_iter().chain(charts).collect(),
        legend: names.into_iter().enumerate().collect(),
    })
}

fn with_shared_scale(axis: &AxisFactor, titled_series: Vec<(String, Vec<LineSeries>)>) -> Vec<Chart> {
    let values =
        titled_series.iter().flat_map(|(_, series)| series).flat_map(|series| &series.points).map(|point| point.y);
    let scale = Scale::for_amounts(values.chain([0.0]), 5);
    titled_series.into_iter().map(|(title, series)| chart(axis, title, scale.clone(), series)).collect()
}

fn series(
    view: &ReportView,
    axis: &AxisFactor,
    panel: &Levels,
    treatment: &str,
    style: usize,
    name: &String,
) -> Option<LineSeries> {
    let mut points = Vec::new();
    for (level, position) in &axis.levels {
        let levels = at_level(panel, axis, level);
        let rates: Vec<f64> =
            view.valid_runs(&levels, treatment).filter_map(|run| mean(&group(run, name)?.rates)).collect();
        if !rates.is_empty() {
            let y = median(&rates);
            let hint = format!("{name}, {level}: {} Mbit/s, n = {}", format_significant(y), rates.len());
            points.push(DataPoint { x: *position, y, interval: None, tooltip: hint });
        }
    }
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    (!points.is_empty()).then_some(LineSeries { style, joined: axis.ordered, marked: true, hollow: false, points })
}

fn group<'a>(run: &'a Run, name: &str) -> Option<&'a GroupRun> {
    run.groups.iter().find(|group| group.name == name)
}

fn chart(axis: &AxisFactor, title: String, y: Scale, series: Vec<LineSeries>) -> Chart {
    let hints: Vec<&str> =
        series.iter().flat_map(|series| &series.points).map(|point| point.tooltip.as_str()).collect();
    let description = format!("{}.", hints.join("; "));
    let mut ticks: Vec<(f64, String)> = axis.levels.iter().map(|(level, place)| (*place, level.clone())).collect();
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let x = Axis { label: axis.factor.clone(), ticks, grid: false };
    LineChart { x, label: "Mbit/s".to_owned(), y, reference: None, series }.chart(title, description)
}

/// Returns charts of the goodput of all connections of each group over time, one for each treatment, at the levels
/// where treatments differ most.
pub fn over_time(view: &ReportView) -> Option<ChartGroup> {
    let has_several_groups = |levels: &&Levels| {
        view.treatments.iter().any(|treatment| view.valid_runs(levels, treatment).any(|run| run.groups.len() > 1))
    };
    let levels = view.combinations.iter().filter(has_several_groups);
    let levels = levels.max_by(|a, b| largest_log_ratio(view, a).total_cmp(&largest_log_ratio(view, b)))?;
    let mut names: Vec<&str> = Vec::new();
    let mut median_runs = Vec::new();
    for treatment in &view.treatments {
        let Some(run) = time::median_run_of(view, levels, treatment, |run| !run.groups.is_empty()) else { continue };
        for group in &run.groups {
            if !names.contains(&group.name.as_str()) {
                names.push(&group.name);
            }
        }
        median_runs.push((treatment, run));
    }
    let lines =
        |run: &Run| -> Vec<Vec<(f64, f64)>> { run.groups.iter().map(|group| time::rates(&group.timeline)).collect() };
    let peak =
        median_runs.iter().flat_map(|(_, run)| lines(run)).flatten().map(|(_, rate)| rate * 8e-6).fold(0.0, f64::max);
    let end = median_runs.iter().flat_map(|(_, run)| lines(run)).flatten().map(|(at, _)| at).fold(0.0, f64::max);
    let (x, y) = (Scale::ending_at(end, 6), Scale::for_amounts([0.0, peak].into_iter(), 4));
    let chart = |(treatment, run): &(&String, &Run)| {
        let series = lines(run).into_iter().zip(&run.groups).map(|(line, group)| LineSeries {
            style: names.iter().position(|name| *name == group.name).unwrap_or_default(),
            joined: true,
            marked: false,
            hollow: false,
            points: (line.into_iter())
                .map(|(at, rate)| DataPoint {
                    x: x.position(at),
                    y: rate * 8e-6,
                    interval: None,
                    tooltip: String::new(),
                })
                .collect(),
        });
        let axis = Axis { label: "time since the start (s)".to_owned(), ticks: labelled_ticks(&x), grid: false };
        let title = format!(
            "{}, {treatment}: goodput of all connections of a group over time",
            view.condition_label(levels, None)
        );
        let description = format!("Mbit/s over time of {}.", names.join(", "));
        let series = series.collect();
        LineChart { x: axis, label: "Mbit/s".to_owned(), y: y.clone(), reference: None, series }
            .chart(title, description)
    };
    Some(ChartGroup {
        heading: "Goodput of each group over time".to_owned(),
        note: "For each treatment its median run, where treatments differ most.".to_owned(),
        charts: median_runs.iter().map(chart).collect(),
        legend: names.iter().map(|name| (*name).to_owned()).enumerate().collect(),
    })
}
