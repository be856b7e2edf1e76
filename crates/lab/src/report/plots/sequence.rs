//! Sequence numbers over time, from the log of packets: what the client sends above, what is on the long link below.

use crate::experiment::results::Run;
use crate::experiment::sequence::Sequence;
use crate::report::chart::{Axis, Chart, Lines, Point, Scale, Series, ticks};
use crate::report::number::{counted, significant};
use crate::report::plots::Figure;
use crate::report::plots::time::median_run_of;
use crate::report::view::{Levels, View};

/// The marks of what was sent again, and of what was dropped; lines have the styles below.
const AGAIN: usize = 2;
const DROPPED: usize = 5;

const NOTE: &str = "For each treatment its median run: how far the largest connection on each link had come. A mark is a packet \
                    that carried what its connection had sent before, or one that the link dropped; of many, some.";

/// A figure for each combination of levels, with a chart for each treatment.
pub fn figures(view: &View) -> Vec<Figure> {
    view.combinations.iter().filter_map(|levels| figure(view, levels)).collect()
}

fn figure(view: &View, levels: &Levels) -> Option<Figure> {
    let mut runs: Vec<(&String, &Run)> = Vec::new();
    for treatment in &view.treatments {
        let drawn = median_run_of(view, levels, treatment, |run| !run.sequences.is_empty());
        runs.extend(drawn.map(|run| (treatment, run)));
    }
    let (_, first) = runs.first()?;
    let name = |(style, sequence): (usize, &Sequence)| (style, format!("{}: {}", layer(style), sequence.link));
    let mut legend: Vec<(usize, String)> = first.sequences.iter().enumerate().map(name).collect();
    legend.extend([(AGAIN, "sent again".to_owned()), (DROPPED, "dropped by the link".to_owned())]);
    let condition = view.condition(levels, None);
    Some(Figure {
        heading: format!("Sequence numbers over time: {condition}"),
        note: NOTE.to_owned(),
        legend,
        charts: runs.into_iter().map(|(treatment, run)| chart(treatment, &condition, run)).collect(),
    })
}

/// The first link is where the client sends.
const fn layer(style: usize) -> &'static str {
    if style == 0 { "upper" } else { "lower" }
}

fn chart(treatment: &str, condition: &str, run: &Run) -> Chart {
    let points = || run.sequences.iter().flat_map(|sequence| &sequence.line);
    let x = Scale::until(points().map(|(at, _)| *at).fold(0.0, f64::max), 6);
    let y = Scale::amounts(points().map(|(_, bytes)| megabytes(*bytes)).chain([0.0]), 4);
    let place = |points: &[(f64, u64)], hint: &str| -> Vec<Point> {
        let point = |(at, bytes): &(f64, u64)| Point {
            x: x.at(*at),
            y: megabytes(*bytes),
            interval: None,
            hint: hint.to_owned(),
        };
        points.iter().map(point).collect()
    };
    let mut series = Vec::new();
    for (style, sequence) in run.sequences.iter().enumerate() {
        let points = place(&sequence.line, "");
        series.push(Series { style, joined: true, marked: false, hollow: false, points });
    }
    for (style, sequence) in run.sequences.iter().enumerate() {
        for (mark, what, points) in
            [(AGAIN, "sent again", &sequence.again_at), (DROPPED, "dropped", &sequence.dropped_at)]
        {
            let points = place(points, &format!("{what} on {} ({})", sequence.link, layer(style)));
            series.push(Series { style: mark, joined: false, marked: true, hollow: false, points });
        }
    }
    let axis = Axis { label: "time since the first packet (s)".to_owned(), ticks: ticks(&x), grid: false };
    let title = format!("{condition}, {treatment}: {}", words(run));
    let description = run.sequences.iter().map(told).collect::<Vec<_>>().join(" ");
    Lines { x: axis, label: "sequence number (MB)".to_owned(), y, reference: None, series }.chart(title, description)
}

/// What is to be seen, in numbers.
fn words(run: &Run) -> String {
    let again = |(style, sequence): (usize, &Sequence)| format!("{} {}", layer(style), sequence.sent_again);
    let again: Vec<String> = run.sequences.iter().enumerate().map(again).collect();
    let end = run.sequences.iter().filter_map(|sequence| sequence.line.last()).map(|(at, _)| *at).fold(0.0, f64::max);
    format!("{} s, sent again: {}", significant(end), again.join(", "))
}

fn told(sequence: &Sequence) -> String {
    let Sequence { link, from, to, sent_again, dropped, .. } = sequence;
    let packets = counted(usize::try_from(sequence.packets).unwrap_or(usize::MAX), "packet");
    let cut = if sequence.is_cut { " The log was full before the end." } else { "" };
    format!("{link}, {from} to {to}: {packets}, {sent_again} sent again, {dropped} dropped.{cut}")
}

#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
