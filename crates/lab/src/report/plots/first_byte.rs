//! How long the first byte took.

use crate::report::chart::{Chart, Row, Strip};
use crate::report::number::significant;
use crate::report::plots::{Figure, most_different};
use crate::report::view::{Levels, View};

/// The key of the metric, in milliseconds.
const KEY: &str = "first_byte_ms";

/// One chart for each combination of levels, with every valid run. None if no run has the metric, or if it is the metric
/// of the experiment anyway.
pub fn figure(view: &View) -> Option<Figure> {
    if view.results.manifest.metric.key == KEY {
        return None;
    }
    let has_some =
        |levels: &&Levels| view.treatments.iter().any(|treatment| !values(view, levels, treatment).is_empty());
    let combinations: Vec<&Levels> = view.combinations.iter().filter(has_some).collect();
    let (shown, left_out) = most_different(view, &combinations);
    Some(Figure {
        heading: "Time to the first byte".to_owned(),
        note: format!("Dots are runs; marks are medians.{left_out}"),
        legend: Vec::new(),
        charts: shown.into_iter().map(|levels| chart(view, levels)).collect(),
    })
}

/// The values of all valid runs, ascending.
fn values(view: &View, levels: &Levels, treatment: &str) -> Vec<f64> {
    let runs = view.valid_runs(levels, treatment);
    let mut values: Vec<f64> =
        runs.filter_map(|run| run.metrics.get(KEY).copied()).filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn chart(view: &View, levels: &Levels) -> Chart {
    let row = |(style, treatment): (usize, &String)| {
        let values = values(view, levels, treatment);
        let median = median(&values);
        let hint = match median {
            Some(median) => format!("{treatment}: {} ms, n = {}", significant(median), values.len()),
            None => format!("{treatment}: no valid run"),
        };
        Row { style, name: treatment.clone(), values, median, interval: None, hint }
    };
    let rows = view.treatments.iter().enumerate().map(row).collect();
    let title = format!("{}: time to the first byte by treatment", view.condition(levels, None));
    Strip::of("time to the first byte (ms)".to_owned(), rows).chart(title)
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { sorted[middle - 1].midpoint(*upper) } else { *upper })
}
