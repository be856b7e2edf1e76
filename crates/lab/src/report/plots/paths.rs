//! Charts of the path and duration of each new session over the time of a run.

use crate::experiment::collect::choices::CHANGED_AT;
use crate::experiment::collect::results::{Run, SessionRun};
use crate::report::chart::{Axis, Chart, DataPoint, LineChart, LineSeries, Scale, labelled_ticks};
use crate::report::number::{format_significant, pluralized};
use crate::report::plots::ChartGroup;
use crate::report::view::ReportView;

/// Minimum number of sessions of a run for a chart.
const MIN_SESSIONS: usize = 10;
/// Legend entry of a failed session without a path.
const FAILED: &str = "failed";

/// Returns a chart for each treatment at each combination of levels, of the first valid run with enough sessions.
pub fn chart_group(view: &ReportView) -> Option<ChartGroup> {
    let mut runs: Vec<(String, &Run)> = Vec::new();
    for levels in &view.combinations {
        for treatment in &view.treatments {
            let drawn = view.valid_runs(levels, treatment).find(|run| run.sessions.len() >= MIN_SESSIONS);
            runs.extend(drawn.map(|run| (format!("{}, {treatment}", view.condition_label(levels, None)), run)));
        }
    }
    let mut names: Vec<String> = Vec::new();
    for name in runs.iter().flat_map(|(_, run)| &run.sessions).map(name) {
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    Some(ChartGroup {
        heading: "Paths over time".to_owned(),
        note: "Each mark is a session: its start, its duration and its path. Failed sessions are at the bottom."
            .to_owned(),
        legend: names.iter().cloned().enumerate().collect(),
        charts: runs.iter().map(|(title, run)| chart(title, run, &names)).collect(),
    })
    .filter(|figure| !figure.charts.is_empty())
}

fn name(session: &SessionRun) -> &str {
    session.path.as_deref().unwrap_or(if session.failed.is_some() { FAILED } else { "without a choice" })
}

fn chart(title: &str, run: &Run, names: &[String]) -> Chart {
    let begin = run.sessions.first().map_or(0.0, |session| session.at);
    let x = Scale::ending_at(run.sessions.iter().map(|session| session.at - begin).fold(0.0, f64::max), 6);
    let durations = run.sessions.iter().filter(|session| session.failed.is_none()).map(|session| session.ms);
    let y = Scale::for_amounts(durations, 4);
    let series = |(style, path): (usize, &String)| {
        let path_sessions = run.sessions.iter().filter(|session| name(session) == path);
        let point = |session: &SessionRun| DataPoint {
            x: x.position(session.at - begin),
            y: session.ms,
            interval: None,
            tooltip: tooltip(session),
        };
        LineSeries { style, joined: false, marked: true, hollow: false, points: path_sessions.map(point).collect() }
    };
    let all = names.iter().enumerate().map(series).collect();
    let changed =
        run.metrics.get(CHANGED_AT).map(|at| format!("; first change after {} s", format_significant(at - begin)));
    let axis = Axis { label: "time since the first session (s)".to_owned(), ticks: labelled_ticks(&x), grid: false };
    let description = format!("{}.", pluralized(run.sessions.len(), "session"));
    LineChart { x: axis, label: "completion (ms)".to_owned(), y, reference: None, series: all }
        .chart(format!("{title}{}", changed.unwrap_or_default()), description)
}

fn tooltip(session: &SessionRun) -> String {
    let end = session.failed.clone().unwrap_or_else(|| format!("{} ms", format_significant(session.ms)));
    format!("{}, {} bytes: {end}", name(session), session.bytes)
}
