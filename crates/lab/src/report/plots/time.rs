//! Charts of the throughput over the time of a transfer.

use crate::experiment::collect::results::Run;
use crate::report::chart::{Axis, Chart, DataPoint, LineChart, LineSeries, Scale, labelled_ticks};
use crate::report::number::format_significant;
use crate::report::plots::{ChartGroup, legend, most_different_levels};
use crate::report::view::{Levels, ReportView};

/// Returns one chart for each combination of levels, with the median run of each treatment.
pub fn chart_group(view: &ReportView) -> Option<ChartGroup> {
    let has_median_run =
        |levels: &&Levels| view.treatments.iter().any(|treatment| median_run(view, levels, treatment).is_some());
    let combinations: Vec<&Levels> = view.combinations.iter().filter(has_median_run).collect();
    let (shown, left_out) = most_different_levels(view, &combinations);
    Some(ChartGroup {
        heading: "Throughput over time".to_owned(),
        note: format!("For each treatment its median run, from request to last byte, where the mark is.{left_out}"),
        legend: legend(view),
        charts: shown.into_iter().map(|levels| chart(view, levels)).collect(),
    })
}

/// Returns the valid run with the median of the metric: of two middle runs, the run with the lower value.
fn median_run<'a>(view: &'a ReportView, levels: &'a Levels, treatment: &'a str) -> Option<&'a Run> {
    median_run_of(view, levels, treatment, |run| duration(run) > 0.0)
}

/// Returns the median run, as `median_run`, of the valid runs for which `of` returns true.
pub fn median_run_of<'a>(
    view: &'a ReportView,
    levels: &'a Levels,
    treatment: &'a str,
    of: impl Fn(&Run) -> bool,
) -> Option<&'a Run> {
    let key = &view.results.manifest.metric.key;
    let runs = view.valid_runs(levels, treatment).filter(|run| of(run));
    let mut ranked: Vec<(f64, &Run)> = runs.filter_map(|run| Some((*run.metrics.get(key)?, run))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked.get(ranked.len().saturating_sub(1) / 2).map(|(_, run)| *run)
}

fn duration(run: &Run) -> f64 {
    run.timeline.last().map_or(0.0, |(seconds, _)| *seconds)
}

fn chart(view: &ReportView, levels: &Levels) -> Chart {
    let runs: Vec<(usize, &str, &Run)> = (view.treatments.iter().enumerate())
        .filter_map(|(style, name)| median_run(view, levels, name).map(|run| (style, name.as_str(), run)))
        .collect();
    let rates: Vec<Vec<(f64, f64)>> = runs.iter().map(|(_, _, run)| rates(&run.timeline)).collect();
    let highest = rates.iter().flatten().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let (unit, size) = unit(highest);
    let x = Scale::ending_at(runs.iter().map(|(_, _, run)| duration(run)).fold(0.0, f64::max), 6);
    // Throughput starts at zero: a logarithmic axis would hide the start.
    let y = Scale::for_amounts([0.0, highest / size].into_iter(), 4);
    let mut series = Vec::new();
    let mut hints = Vec::new();
    for ((style, name, run), rates) in runs.iter().zip(&rates) {
        let hint = format!("{name}: {} s", format_significant(duration(run)));
        let point = |(seconds, rate): &(f64, f64)| DataPoint {
            x: x.position(*seconds),
            y: rate / size,
            interval: None,
            tooltip: hint.clone(),
        };
        let points: Vec<DataPoint> = rates.iter().map(point).collect();
        let end = points.last().cloned().into_iter().collect();
        series.push(LineSeries { style: *style, joined: true, marked: false, hollow: false, points });
        series.push(LineSeries { style: *style, joined: false, marked: true, hollow: false, points: end });
        hints.push(hint);
    }
    let axis = Axis { label: "time since the request (s)".to_owned(), ticks: labelled_ticks(&x), grid: false };
    let title = format!("{}: throughput over time", view.condition_label(levels, None));
    let description = format!("Duration of the median runs: {}.", hints.join("; "));
    LineChart { x: axis, label: unit.to_owned(), y, reference: None, series }.chart(title, description)
}

/// Returns the unit for a rate in bytes per second, and the size of the unit in bytes per second.
fn unit(rate: f64) -> (&'static str, f64) {
    match rate {
        _ if rate >= 1e9 => ("GB/s", 1e9),
        _ if rate >= 1e5 => ("MB/s", 1e6),
        _ => ("kB/s", 1e3),
    }
}

/// Returns the rates over equal intervals of a transfer, as pairs of the middle of the interval in seconds and bytes
/// per second. There are half as many intervals as samples, at most 80. The last pair repeats the last rate at the end
/// of the transfer.
pub fn rates(timeline: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let end = timeline.last().map_or(0.0, |(seconds, _)| *seconds);
    let stretches = (timeline.len() / 2).clamp(1, 80);
    let length = end / stretches as f64;
    let rate = |stretch: usize| {
        let from = stretch as f64 * length;
        (from + length / 2.0, (bytes_at(timeline, from + length) - bytes_at(timeline, from)) / length)
    };
    let mut rates: Vec<(f64, f64)> = (0..stretches).map(rate).collect();
    let last = rates.last().map_or(0.0, |(_, rate)| *rate);
    rates.push((end, last));
    rates
}

/// Returns the number of bytes that had arrived at a time, interpolated linearly between samples.
fn bytes_at(timeline: &[(f64, u64)], at: f64) -> f64 {
    let next = timeline.partition_point(|(seconds, _)| *seconds < at);
    let (from, start) = if next == 0 { (0.0, 0) } else { timeline[next - 1] };
    let Some((to, end)) = timeline.get(next).copied() else { return start as f64 };
    if to <= from {
        return end as f64;
    }
    start as f64 + (end as f64 - start as f64) * (at - from) / (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_slope_of_bytes() {
        let timeline: Vec<(f64, u64)> = (0..=8).map(|step| (f64::from(step) * 0.5, 100 * step as u64)).collect();
        let rates = rates(&timeline);
        assert_eq!(rates.len(), 5, "half as many intervals as samples, and the end");
        assert!(rates.iter().all(|(_, rate)| (rate - 200.0).abs() < 1e-9), "{rates:?}");
        assert_eq!(rates.last().map(|(at, _)| *at), Some(4.0));
    }

    #[test]
    fn byte_count_is_interpolated_and_clamped() {
        assert_eq!(bytes_at(&[(1.0, 0), (2.0, 10)], 0.5), 0.0);
        assert_eq!(bytes_at(&[(1.0, 0), (2.0, 10)], 1.5), 5.0);
        assert_eq!(bytes_at(&[(1.0, 0), (2.0, 10)], 9.0), 10.0);
    }
}
