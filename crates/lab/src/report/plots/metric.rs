//! Charts of the metric by a factor, with published figures, and of the ratio to the first treatment.

use super::levels::{AxisFactor, at_level, choose_axis_factor, panels};
use super::{ChartGroup, legend, most_different_levels};
use crate::experiment::collect::metric::{JAIN, RATIO};
use crate::experiment::collect::results::{CellSummary, ExpectationOutcome, Summary};
use crate::report::chart::{Axis, Chart, DataPoint, LineChart, LineSeries, Scale, StripPlot, StripRow};
use crate::report::number::{format_significant, with_unit};
use crate::report::tables::confidence_interval;
use crate::report::view::{Levels, ReportView};

/// Returns one pair of charts for each combination of the other factors, or strip charts if only treatments vary.
pub fn chart_group(view: &ReportView) -> Option<ChartGroup> {
    let Some(axis) = choose_axis_factor(view) else { return strip_chart_group(view) };
    let sources = published_values(view);
    let has_values = |panel: &Levels| {
        let is_in_panel =
            |cell: &&CellSummary| panel.iter().all(|(factor, level)| cell.levels.get(factor) == Some(level));
        view.results.cells.iter().filter(is_in_panel).any(|cell| cell.summary.n > 0)
    };
    let panels: Vec<Levels> = panels(view, &axis).into_iter().filter(has_values).collect();
    let (panels, left_out) = most_different_levels(view, &panels.iter().collect::<Vec<_>>());
    let kinds: Vec<Vec<Chart>> =
        PlottedQuantity::all_of(view).iter().map(|kind| kind.charts(view, &axis, &panels, &sources)).collect();
    let hollow = if sources.is_empty() { "" } else { " Hollow marks are published figures." };
    Some(ChartGroup {
        heading: format!("{} by {}", capitalized(&view.metric_name()), axis.factor),
        note: format!(
            "Medians with their 95 % confidence intervals, or the range of fewer than six values.{hollow}{left_out}"
        ),
        legend: legend(view),
        charts: interleave(kinds),
    })
}

/// Puts the charts of a panel next to each other.
fn interleave(kinds: Vec<Vec<Chart>>) -> Vec<Chart> {
    let count = kinds.first().map_or(0, Vec::len);
    let mut kinds: Vec<_> = kinds.into_iter().map(Vec::into_iter).collect();
    (0..count).flat_map(|_| kinds.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
}

/// The quantity of a cell that a chart shows.
struct PlottedQuantity {
    /// Name of the quantity, as in titles.
    name: String,
    /// Unit; empty for a plain number.
    unit: String,
    /// Extracts the quantity from a cell.
    value_of: fn(&CellSummary) -> Option<Summary>,
    /// The value of the reference line.
    reference: Option<f64>,
    /// Whether the quantity is a ratio to the first treatment.
    is_ratio: bool,
}

impl PlottedQuantity {
    fn all_of(view: &ReportView) -> Vec<Self> {
        let best_is_one = [RATIO, JAIN].contains(&view.results.manifest.metric.key.as_str());
        let metric = Self {
            name: view.metric_name(),
            unit: view.unit().to_owned(),
            value_of: |cell| Some(cell.summary),
            reference: best_is_one.then_some(1.0),
            is_ratio: false,
        };
        // A metric whose best value is 1 has no ratio to the first treatment.
        if best_is_one {
            return vec![metric];
        }
        let ratio = Self {
            name: format!("ratio to {}", view.baseline()),
            unit: format!("× {}", view.baseline()),
            value_of: |cell| cell.ratio,
            reference: Some(1.0),
            is_ratio: true,
        };
        if view.results.cells.iter().any(|cell| cell.ratio.is_some()) { vec![metric, ratio] } else { vec![metric] }
    }

    fn charts(
        &self,
        view: &ReportView,
        axis: &AxisFactor,
        panels: &[&Levels],
        sources: &[PublishedValue],
    ) -> Vec<Chart> {
        let series: Vec<Vec<LineSeries>> = panels.iter().map(|panel| self.series(view, axis, panel, sources)).collect();
        let scales = panel_scales(&series, self.reference);
        let drawn = panels.iter().zip(series.into_iter().zip(scales));
        drawn.map(|(panel, (series, scale))| chart(view, axis, panel, self, scale, series)).collect()
    }

    fn series(
        &self,
        view: &ReportView,
        axis: &AxisFactor,
        panel: &Levels,
        sources: &[PublishedValue],
    ) -> Vec<LineSeries> {
        let count = view.treatments.len();
        // Treatments are shifted sideways, so that equal intervals do not hide each other.
        let step = 0.016_f64.min(0.5 / (axis.levels.len() * count.max(1)) as f64);
        let mut lines = Vec::new();
        for (style, treatment) in view.treatments.iter().enumerate() {
            let shift = (style as f64 - (count as f64 - 1.0) / 2.0) * step;
            let points = self.points(view, axis, panel, treatment, shift);
            if !points.is_empty() {
                lines.push(LineSeries { style, joined: axis.ordered, marked: true, hollow: false, points });
            }
            let points = self.published(axis, panel, treatment, shift, sources);
            if !points.is_empty() {
                lines.push(LineSeries { style, joined: false, marked: true, hollow: true, points });
            }
        }
        // Published marks are drawn last, above all others.
        lines.sort_by_key(|series| series.hollow);
        lines
    }

    fn points(
        &self,
        view: &ReportView,
        axis: &AxisFactor,
        panel: &Levels,
        treatment: &str,
        shift: f64,
    ) -> Vec<DataPoint> {
        let mut points = Vec::new();
        for (level, position) in &axis.levels {
            let cell = view.cell(&at_level(panel, axis, level), treatment);
            let Some(summary) =
                cell.and_then(self.value_of).filter(|summary| summary.n > 0 && summary.median.is_finite())
            else {
                continue;
            };
            let median = with_unit(&format_significant(summary.median), &self.unit);
            points.push(DataPoint {
                x: position + shift,
                y: summary.median,
                interval: Some((summary.low, summary.high)),
                tooltip: format!(
                    "{treatment}, {level}: {median} ({}), n = {}",
                    confidence_interval(&summary),
                    summary.n
                ),
            });
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    }

    fn published(
        &self,
        axis: &AxisFactor,
        panel: &Levels,
        name: &str,
        shift: f64,
        figures: &[PublishedValue],
    ) -> Vec<DataPoint> {
        let mut points = Vec::new();
        for (level, position) in &axis.levels {
            let levels = at_level(panel, axis, level);
            let matching = figures.iter().filter(|figure| {
                figure.is_ratio == self.is_ratio && figure.treatment == name && figure.levels == levels
            });
            points.extend(matching.map(|figure| {
                let value = with_unit(&format_significant(figure.value), &self.unit);
                let hint = format!("{name}, {level}: {value}, published by {}", figure.source);
                DataPoint { x: position + shift, y: figure.value, interval: None, tooltip: hint }
            }));
        }
        points
    }
}

/// Returns the scales of panels. All panels have the same scale, so that they can be compared, unless the values of one
/// are too low for a common scale: then each has its own scale.
fn panel_scales(panels: &[Vec<LineSeries>], reference: Option<f64>) -> Vec<Scale> {
    let values: Vec<Vec<f64>> = panels.iter().map(|series| extremes(series)).collect();
    let highest: Vec<f64> = values.iter().map(|values| values.iter().copied().fold(0.0, f64::max)).collect();
    let overall = highest.iter().copied().fold(0.0, f64::max);
    if highest.iter().all(|high| *high * MAX_SCALE_RATIO >= overall) {
        return vec![Scale::for_amounts(values.into_iter().flatten().chain(reference), 5); panels.len()];
    }
    values.into_iter().map(|values| Scale::for_amounts(values.into_iter().chain(reference), 5)).collect()
}

/// Ratio between the highest values of two panels above which all panels have separate scales.
const MAX_SCALE_RATIO: f64 = 3.0;

fn extremes(series: &[LineSeries]) -> Vec<f64> {
    let points = series.iter().flat_map(|series| &series.points);
    let ends = points.flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.y, point.y));
        [low, point.y, high]
    });
    ends.filter(|value| value.is_finite()).collect()
}

fn chart(
    view: &ReportView,
    axis: &AxisFactor,
    panel: &Levels,
    kind: &PlottedQuantity,
    y: Scale,
    series: Vec<LineSeries>,
) -> Chart {
    let title = format!("{}: {} by {}", view.condition_label(panel, Some(&axis.factor)), kind.name, axis.factor);
    let hints: Vec<&str> =
        series.iter().flat_map(|series| &series.points).map(|point| point.tooltip.as_str()).collect();
    let description = format!("{}.", hints.join("; "));
    let mut ticks: Vec<(f64, String)> = axis.levels.iter().map(|(level, place)| (*place, level.clone())).collect();
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let x = Axis { label: axis.factor.clone(), ticks, grid: false };
    // For a metric without a unit, the axis shows the name of the metric.
    let label = if kind.unit.is_empty() { kind.name.clone() } else { kind.unit.clone() };
    LineChart { x, label, y, reference: kind.reference, series }.chart(title, description)
}

/// Returns strip charts of every run of every treatment, for experiments in which no factor has several levels.
fn strip_chart_group(view: &ReportView) -> Option<ChartGroup> {
    let combinations: Vec<&Levels> = view.combinations.iter().collect();
    let (shown, left_out) = most_different_levels(view, &combinations);
    let charts = shown.into_iter().map(|levels| strip_chart(view, levels)).collect();
    Some(ChartGroup {
        heading: format!("{} by treatment", capitalized(&view.metric_name())),
        note: format!(
            "Dots are runs; marks are medians with their 95 % confidence intervals, or the range of fewer than six values.{left_out}"
        ),
        legend: Vec::new(),
        charts,
    })
}

fn strip_chart(view: &ReportView, levels: &Levels) -> Chart {
    let key = &view.results.manifest.metric.key;
    let row = |(style, treatment): (usize, &String)| {
        let runs = view.valid_runs(levels, treatment);
        let values = runs.filter_map(|run| run.metrics.get(key).copied()).filter(|value| value.is_finite()).collect();
        let summary = view.cell(levels, treatment).map(|cell| cell.summary).filter(|summary| summary.n > 0);
        let hint = summary.map_or_else(
            || format!("{treatment}: no valid run"),
            |summary| {
                let median = with_unit(&format_significant(summary.median), view.unit());
                format!("{treatment}: {median} ({}), n = {}", confidence_interval(&summary), summary.n)
            },
        );
        let (median, interval) =
            (summary.map(|summary| summary.median), summary.map(|summary| (summary.low, summary.high)));
        StripRow { style, name: treatment.clone(), values, median, interval, tooltip: hint }
    };
    let rows: Vec<StripRow> = view.treatments.iter().enumerate().map(row).collect();
    let title = format!("{}: {} by treatment", view.condition_label(levels, None), view.metric_name());
    let unit = if view.unit().is_empty() { String::new() } else { format!("({})", view.unit()) };
    StripPlot::new(with_unit(&view.metric_name(), &unit), rows).chart(title)
}

/// Returns the text with its first letter in upper case.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A published value that a chart can place.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedValue {
    /// The treatment that the value belongs to.
    pub treatment: String,
    /// The levels at which the value was measured.
    pub levels: Levels,
    /// The value, in the unit of the metric, or a ratio if `is_ratio`.
    pub value: f64,
    /// Whether the value is a ratio to the first treatment.
    pub is_ratio: bool,
    /// The publication, as the expectation cites it.
    pub source: String,
}

/// Returns the published values of all expectations that begin with a treatment and its levels, as in `squid, 25-25: at
/// least 1.74 x direct`. Values that are neither ratios nor in the unit of the metric are omitted.
pub fn published_values(view: &ReportView) -> Vec<PublishedValue> {
    view.results.outcomes.iter().filter_map(|outcome| published_value_of(view, outcome)).collect()
}

fn published_value_of(view: &ReportView, outcome: &ExpectationOutcome) -> Option<PublishedValue> {
    let (value, ratio) = parse_value(view, outcome.published.as_deref()?)?;
    let (subject, _) = outcome.expected.split_once(": ")?;
    let mut words = subject.split(", ");
    let treatment = words.next().filter(|name| view.treatments.iter().any(|other| other == name))?.to_owned();
    let words: Vec<&str> = words.collect();
    let mut levels = Levels::new();
    for (factor, all) in &view.results.manifest.factors {
        let mut named = all.iter().filter(|level| words.contains(&level.as_str()));
        let only = if all.len() == 1 { all.first() } else { None };
        levels.insert(factor.clone(), named.next().or(only)?.clone());
    }
    Some(PublishedValue { treatment, levels, value, is_ratio: ratio, source: outcome.source.clone() })
}

/// Parses a number with its unit. The bool is true if the unit (`x`, `× direct`) denotes a ratio. Returns `None` for
/// any other unit than that of the metric.
fn parse_value(view: &ReportView, text: &str) -> Option<(f64, bool)> {
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    let baseline = view.baseline();
    let ratio = [format!("x {baseline}"), format!("× {baseline}"), "x".to_owned(), "×".to_owned()];
    match unit {
        _ if ratio.iter().any(|word| word == unit) => Some((value, true)),
        _ if !unit.is_empty() && unit == view.unit() => Some((value, false)),
        _ => None,
    }
}
