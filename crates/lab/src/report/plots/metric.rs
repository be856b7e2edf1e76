//! The metric by a factor, and its ratio to the first treatment.

use crate::experiment::metric::{JAIN, RATIO};
use crate::experiment::results::{Cell, Summary};
use crate::report::chart::{Axis, Chart, Lines, Point, Row, Scale, Series, Strip};
use crate::report::number::{significant, with_unit};
use crate::report::plots::levels::{Along, along, at_level, panels};
use crate::report::plots::published::{Published, published};
use crate::report::plots::{Figure, legend, most_different};
use crate::report::tables::confidence_interval;
use crate::report::view::{Levels, View};

/// One pair of charts for each combination of the other factors; one chart of rows if only treatments vary.
pub fn figure(view: &View) -> Option<Figure> {
    let Some(along) = along(view) else { return rows(view) };
    let sources = published(view);
    let known = |panel: &Levels| {
        let here = |cell: &&Cell| panel.iter().all(|(factor, level)| cell.levels.get(factor) == Some(level));
        view.results.cells.iter().filter(here).any(|cell| cell.summary.n > 0)
    };
    let panels: Vec<Levels> = panels(view, &along).into_iter().filter(known).collect();
    let (panels, left_out) = most_different(view, &panels.iter().collect::<Vec<_>>());
    let kinds: Vec<Vec<Chart>> =
        Kind::both(view).iter().map(|kind| kind.charts(view, &along, &panels, &sources)).collect();
    let hollow = if sources.is_empty() { "" } else { " Hollow marks are published figures." };
    Some(Figure {
        heading: format!("{} by {}", capital(&view.metric()), along.factor),
        note: format!("Medians with their 95 % confidence intervals.{hollow}{left_out}"),
        legend: legend(view),
        charts: alternating(kinds),
    })
}

/// The charts of a panel stand side by side.
fn alternating(kinds: Vec<Vec<Chart>>) -> Vec<Chart> {
    let count = kinds.first().map_or(0, Vec::len);
    let mut kinds: Vec<_> = kinds.into_iter().map(Vec::into_iter).collect();
    (0..count).flat_map(|_| kinds.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
}

/// What of a cell is drawn.
struct Kind {
    /// The words for it.
    name: String,
    /// Its unit.
    unit: String,
    /// The part of a cell.
    of: fn(&Cell) -> Option<Summary>,
    /// What it is compared with.
    reference: Option<f64>,
    /// Whether it is a ratio to the first treatment.
    ratio: bool,
}

impl Kind {
    fn both(view: &View) -> Vec<Self> {
        let best_is_one = [RATIO, JAIN].contains(&view.results.manifest.metric.key.as_str());
        let metric = Self {
            name: view.metric(),
            unit: view.unit().to_owned(),
            of: |cell| Some(cell.summary),
            reference: best_is_one.then_some(1.0),
            ratio: false,
        };
        // What is to be close to 1 is not compared with what is not.
        if best_is_one {
            return vec![metric];
        }
        let ratio = Self {
            name: format!("ratio to {}", view.baseline()),
            unit: format!("× {}", view.baseline()),
            of: |cell| cell.ratio,
            reference: Some(1.0),
            ratio: true,
        };
        if view.results.cells.iter().any(|cell| cell.ratio.is_some()) { vec![metric, ratio] } else { vec![metric] }
    }

    fn charts(&self, view: &View, along: &Along, panels: &[&Levels], sources: &[Published]) -> Vec<Chart> {
        let series: Vec<Vec<Series>> = panels.iter().map(|panel| self.series(view, along, panel, sources)).collect();
        let scales = scales(&series, self.reference);
        let drawn = panels.iter().zip(series.into_iter().zip(scales));
        drawn.map(|(panel, (series, scale))| chart(view, along, panel, self, (scale, series))).collect()
    }

    fn series(&self, view: &View, along: &Along, panel: &Levels, sources: &[Published]) -> Vec<Series> {
        let count = view.treatments.len();
        // Side by side, so that intervals of treatments that are alike do not hide each other.
        let step = 0.016_f64.min(0.5 / (along.levels.len() * count.max(1)) as f64);
        let mut all = Vec::new();
        for (style, treatment) in view.treatments.iter().enumerate() {
            let shift = (style as f64 - (count as f64 - 1.0) / 2.0) * step;
            let points = self.points(view, along, panel, (treatment, shift));
            if !points.is_empty() {
                all.push(Series { style, joined: along.ordered, marked: true, hollow: false, points });
            }
            let points = self.published(along, panel, (treatment, shift), sources);
            if !points.is_empty() {
                all.push(Series { style, joined: false, marked: true, hollow: true, points });
            }
        }
        // Published marks come last, where no other lies on them.
        all.sort_by_key(|series| series.hollow);
        all
    }

    fn points(&self, view: &View, along: &Along, panel: &Levels, (treatment, shift): (&str, f64)) -> Vec<Point> {
        let mut points = Vec::new();
        for (level, place) in &along.levels {
            let cell = view.cell(&at_level(panel, along, level), treatment);
            let Some(summary) = cell.and_then(self.of).filter(|summary| summary.n > 0 && summary.median.is_finite())
            else {
                continue;
            };
            let median = with_unit(&significant(summary.median), &self.unit);
            points.push(Point {
                x: place + shift,
                y: summary.median,
                interval: Some((summary.low, summary.high)),
                hint: format!("{treatment}, {level}: {median} ({}), n = {}", confidence_interval(&summary), summary.n),
            });
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    }

    fn published(&self, along: &Along, panel: &Levels, (name, shift): (&str, f64), all: &[Published]) -> Vec<Point> {
        let mut points = Vec::new();
        for (level, place) in &along.levels {
            let levels = at_level(panel, along, level);
            let here =
                all.iter().filter(|one| one.ratio == self.ratio && one.treatment == name && one.levels == levels);
            points.extend(here.map(|one| {
                let value = with_unit(&significant(one.value), &self.unit);
                let hint = format!("{name}, {level}: {value}, published by {}", one.source);
                Point { x: place + shift, y: one.value, interval: None, hint }
            }));
        }
        points
    }
}

/// The same scale for all panels, so that they can be compared at a glance; but each its own if that would press one of
/// them flat.
fn scales(panels: &[Vec<Series>], reference: Option<f64>) -> Vec<Scale> {
    let values: Vec<Vec<f64>> = panels.iter().map(|series| ends(series)).collect();
    let highest: Vec<f64> = values.iter().map(|values| values.iter().copied().fold(0.0, f64::max)).collect();
    let all = highest.iter().copied().fold(0.0, f64::max);
    if highest.iter().all(|high| *high * FLAT >= all) {
        return vec![Scale::amounts(values.into_iter().flatten().chain(reference), 5); panels.len()];
    }
    values.into_iter().map(|values| Scale::amounts(values.into_iter().chain(reference), 5)).collect()
}

/// A panel whose highest value is this many times below that of another would lie flat beside it.
const FLAT: f64 = 3.0;

fn ends(series: &[Series]) -> Vec<f64> {
    let points = series.iter().flat_map(|series| &series.points);
    let ends = points.flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.y, point.y));
        [low, point.y, high]
    });
    ends.filter(|value| value.is_finite()).collect()
}

fn chart(view: &View, along: &Along, panel: &Levels, kind: &Kind, (y, series): (Scale, Vec<Series>)) -> Chart {
    let title = format!("{}: {} by {}", view.condition(panel, Some(&along.factor)), kind.name, along.factor);
    let hints: Vec<&str> = series.iter().flat_map(|series| &series.points).map(|point| point.hint.as_str()).collect();
    let description = format!("{}.", hints.join("; "));
    let mut ticks: Vec<(f64, String)> = along.levels.iter().map(|(level, place)| (*place, level.clone())).collect();
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let x = Axis { label: along.factor.clone(), ticks, grid: false };
    // A number without a unit says itself what it is.
    let label = if kind.unit.is_empty() { kind.name.clone() } else { kind.unit.clone() };
    Lines { x, label, y, reference: kind.reference, series }.chart(title, description)
}

/// Every run of every treatment, where there is no factor to go along an axis.
fn rows(view: &View) -> Option<Figure> {
    let combinations: Vec<&Levels> = view.combinations.iter().collect();
    let (shown, left_out) = most_different(view, &combinations);
    let charts = shown.into_iter().map(|levels| strip(view, levels)).collect();
    Some(Figure {
        heading: format!("{} by treatment", capital(&view.metric())),
        note: format!("Dots are runs; marks are medians with their 95 % confidence intervals.{left_out}"),
        legend: Vec::new(),
        charts,
    })
}

fn strip(view: &View, levels: &Levels) -> Chart {
    let key = &view.results.manifest.metric.key;
    let row = |(style, treatment): (usize, &String)| {
        let runs = view.valid_runs(levels, treatment);
        let values = runs.filter_map(|run| run.metrics.get(key).copied()).filter(|value| value.is_finite()).collect();
        let summary = view.cell(levels, treatment).map(|cell| cell.summary).filter(|summary| summary.n > 0);
        let hint = summary.map_or_else(
            || format!("{treatment}: no valid run"),
            |it| {
                let median = with_unit(&significant(it.median), view.unit());
                format!("{treatment}: {median} ({}), n = {}", confidence_interval(&it), it.n)
            },
        );
        let (median, interval) = (summary.map(|it| it.median), summary.map(|it| (it.low, it.high)));
        Row { style, name: treatment.clone(), values, median, interval, hint }
    };
    let rows: Vec<Row> = view.treatments.iter().enumerate().map(row).collect();
    let title = format!("{}: {} by treatment", view.condition(levels, None), view.metric());
    let unit = if view.unit().is_empty() { String::new() } else { format!("({})", view.unit()) };
    Strip::of(with_unit(&view.metric(), &unit), rows).chart(title)
}

/// A sentence begins with it.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
