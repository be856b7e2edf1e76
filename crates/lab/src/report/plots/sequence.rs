//! Charts of sequence numbers over time, from the packet log: the upper layer as the client sends it, the lower layer
//! on the long link.

use crate::experiment::collect::results::Run;
use crate::experiment::collect::sequence::SequencePlot;
use crate::report::chart::{Axis, Chart, DataPoint, LineChart, LineSeries, Scale, labelled_ticks};
use crate::report::number::{format_significant, pluralized};
use crate::report::plots::ChartGroup;
use crate::report::plots::time::median_run_of;
use crate::report::view::{Levels, ReportView};

/// Style of the marks of retransmitted packets. Lines of links have the styles from 0.
const RETRANSMITTED_STYLE: usize = 2;
const DROPPED_STYLE: usize = 5;

const NOTE: &str = "For each treatment its median run: the progress of the largest connection on each link. Marks are \
                    packets with data that the connection had sent before, and packets that the link dropped; of many \
                    marks, some.";

/// Returns one group of charts for each combination of levels, with a chart for each treatment.
pub fn chart_groups(view: &ReportView) -> Vec<ChartGroup> {
    view.combinations.iter().filter_map(|levels| chart_group(view, levels)).collect()
}

fn chart_group(view: &ReportView, levels: &Levels) -> Option<ChartGroup> {
    let mut runs: Vec<(&String, &Run)> = Vec::new();
    for treatment in &view.treatments {
        let drawn = median_run_of(view, levels, treatment, |run| !run.sequences.is_empty());
        runs.extend(drawn.map(|run| (treatment, run)));
    }
    let (_, first) = runs.first()?;
    let name = |(style, sequence): (usize, &SequencePlot)| (style, format!("{}: {}", layer(style), sequence.link));
    let mut legend: Vec<(usize, String)> = first.sequences.iter().enumerate().map(name).collect();
    legend.extend([(RETRANSMITTED_STYLE, "sent again".to_owned()), (DROPPED_STYLE, "dropped by the link".to_owned())]);
    let condition = view.condition_label(levels, None);
    Some(ChartGroup {
        heading: format!("Sequence numbers over time: {condition}"),
        note: NOTE.to_owned(),
        legend,
        charts: runs.into_iter().map(|(treatment, run)| chart(treatment, &condition, run)).collect(),
    })
}

/// Returns the layer of a line: `upper` for the first link, which is next to the client.
const fn layer(style: usize) -> &'static str {
    if style == 0 { "upper" } else { "lower" }
}

fn chart(treatment: &str, condition: &str, run: &Run) -> Chart {
    let points = || run.sequences.iter().flat_map(|sequence| &sequence.line);
    let x = Scale::ending_at(points().map(|(at, _)| *at).fold(0.0, f64::max), 6);
    let y = Scale::for_amounts(points().map(|(_, bytes)| megabytes(*bytes)).chain([0.0]), 4);
    let to_points = |points: &[(f64, u64)], hint: &str| -> Vec<DataPoint> {
        let point = |(at, bytes): &(f64, u64)| DataPoint {
            x: x.position(*at),
            y: megabytes(*bytes),
            interval: None,
            tooltip: hint.to_owned(),
        };
        points.iter().map(point).collect()
    };
    let mut series = Vec::new();
    for (style, sequence) in run.sequences.iter().enumerate() {
        let points = to_points(&sequence.line, "");
        series.push(LineSeries { style, joined: true, marked: false, hollow: false, points });
    }
    for (style, sequence) in run.sequences.iter().enumerate() {
        for (mark, what, points) in
            [(RETRANSMITTED_STYLE, "sent again", &sequence.again_at), (DROPPED_STYLE, "dropped", &sequence.dropped_at)]
        {
            let points = to_points(points, &format!("{what} on {} ({})", sequence.link, layer(style)));
            series.push(LineSeries { style: mark, joined: false, marked: true, hollow: false, points });
        }
    }
    let axis = Axis { label: "time since the first packet (s)".to_owned(), ticks: labelled_ticks(&x), grid: false };
    let title = format!("{condition}, {treatment}: {}", describe_run(run));
    let description = run.sequences.iter().map(describe_sequence).collect::<Vec<_>>().join(" ");
    LineChart { x: axis, label: "sequence number (MB)".to_owned(), y, reference: None, series }
        .chart(title, description)
}

/// Returns the time of the last packet in seconds, and the number of retransmitted packets on each layer, as text.
fn describe_run(run: &Run) -> String {
    let describe_layer =
        |(style, sequence): (usize, &SequencePlot)| format!("{} {}", layer(style), sequence.sent_again);
    let retransmissions: Vec<String> = run.sequences.iter().enumerate().map(describe_layer).collect();
    let end = run.sequences.iter().filter_map(|sequence| sequence.line.last()).map(|(at, _)| *at).fold(0.0, f64::max);
    format!("{} s, sent again: {}", format_significant(end), retransmissions.join(", "))
}

fn describe_sequence(sequence: &SequencePlot) -> String {
    let SequencePlot { link, from, to, sent_again, dropped, .. } = sequence;
    let packets = pluralized(usize::try_from(sequence.packets).unwrap_or(usize::MAX), "packet");
    let cut = if sequence.is_cut { " The log was full before the end." } else { "" };
    format!("{link}, {from} to {to}: {packets}, {sent_again} sent again, {dropped} dropped.{cut}")
}

#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
