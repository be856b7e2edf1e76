//! Percentile of the errors of predictions over all cells of an experiment.
//!
//! Each cell counts once, with the medians of its runs, because the variation between runs is not an error of the
//! model.

use super::analyse;
use super::expect::{self, OWN_SOURCE, format_number};
use crate::experiment::collect::metric::{COMPLETION, PREDICTED, PREDICTION_ERROR};
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Run};
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use crate::stats;

/// Validates the percentile of an expectation.
pub fn validate(experiment: &Experiment, expectation: &Expectation, mut report: impl FnMut(String)) {
    let Some(percentile) = expectation.percentile else { return };
    if !(0.0..=100.0).contains(&percentile) {
        report("percentile: expected 0 to 100".into());
    }
    if experiment.metric_key(expectation) != PREDICTION_ERROR || expectation.at_most.is_none() {
        report(format!("percentile: requires metric = \"{PREDICTION_ERROR}\" and at_most"));
    }
}

/// Returns the outcome of an expected percentile over these cells, as text. The remark names the three worst cells.
#[must_use]
pub fn percentile_outcome(
    expectation: &Expectation,
    percentile: f64,
    cell_keys: &[&CellKey],
    runs: &[Run],
) -> ExpectationOutcome {
    let most = expectation.at_most.unwrap_or_default();
    let mut errors: Vec<(f64, &CellKey)> =
        cell_keys.iter().filter_map(|cell_key| Some((relative_error(runs, cell_key)?, *cell_key))).collect();
    errors.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let sorted: Vec<f64> = errors.iter().map(|(error, _)| *error).collect();
    let figure = (!sorted.is_empty()).then(|| stats::quantile(&sorted, percentile / 100.0));
    let worst = errors.iter().rev().take(3).map(|(error, cell_key)| format!("{} ({cell_key})", format_number(*error)));
    let worst = format!("the worst of {}: {}", errors.len(), worst.collect::<Vec<_>>().join(", "));
    let default = || format!("{}: {percentile} % of places at most {} off", expectation.treatment, format_number(most));
    ExpectationOutcome {
        expected: expectation.what.clone().unwrap_or_else(default),
        source: expectation.source.clone().unwrap_or_else(|| OWN_SOURCE.into()),
        published: expectation.published.clone(),
        ours: figure.map(format_number),
        interval: None,
        verdict: figure.map_or(ExpectationVerdict::Unknown, |figure| expect::verdict(true, figure <= most)),
        remark: figure.map(|_| expectation.remark.iter().cloned().chain([worst]).collect::<Vec<_>>().join("; ")),
    }
}

/// Returns the error of the prediction for a cell, relative to the median measurement. `None` without a prediction or a
/// measurement.
fn relative_error(runs: &[Run], cell_key: &CellKey) -> Option<f64> {
    let [predicted, measured] = [PREDICTED, COMPLETION].map(|key| {
        let values = analyse::cell_values(runs, cell_key, key);
        (!values.is_empty()).then(|| stats::median(&values))
    });
    let (predicted, measured) = predicted.zip(measured)?;
    (measured > 0.0).then(|| (predicted - measured).abs() / measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn place(size: &str) -> CellKey {
        CellKey { levels: [("size".to_owned(), size.to_owned())].into(), treatment: "path".into() }
    }

    fn run(size: &str, predicted: f64, measured: f64) -> Run {
        let CellKey { levels, treatment } = place(size);
        let metrics = BTreeMap::from([(PREDICTED.to_owned(), predicted), (COMPLETION.to_owned(), measured)]);
        Run { levels, treatment, metrics, ..Run::default() }
    }

    fn judge(percentile: f64, most: f64) -> ExpectationOutcome {
        let expect = Expectation { treatment: "path".into(), at_most: Some(most), ..Expectation::default() };
        let places = [place("1"), place("2"), place("3"), place("4")];
        // The first cell has an outlier, but an exact median; the last cell has no run.
        let runs = [run("1", 10.0, 10.0), run("1", 10.0, 40.0), run("1", 10.0, 10.0)];
        let runs = [&runs[..], &[run("2", 12.0, 10.0), run("3", 10.0, 20.0)]].concat();
        percentile_outcome(&expect, percentile, &places.iter().collect::<Vec<_>>(), &runs)
    }

    #[test]
    fn each_cell_counts_once_and_the_worst_is_named() {
        let median = judge(50.0, 0.2);
        assert_eq!((median.ours.as_deref(), median.verdict), (Some("0.20"), ExpectationVerdict::Met));
        let worst = judge(100.0, 0.2);
        assert_eq!((worst.ours.as_deref(), worst.verdict), (Some("0.50"), ExpectationVerdict::Missed));
        assert!(worst.remark.unwrap().starts_with("the worst of 3: 0.50 (path, 3), 0.20 (path, 2)"));
        assert_eq!(median.expected, "path: 50 % of places at most 0.20 off");
    }

    #[test]
    fn accuracy_is_unknown_without_runs() {
        let expect = Expectation { treatment: "path".into(), at_most: Some(0.1), ..Expectation::default() };
        assert_eq!(percentile_outcome(&expect, 50.0, &[&place("1")], &[]).verdict, ExpectationVerdict::Unknown);
    }
}
