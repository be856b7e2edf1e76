//! How far predictions are from what was measured, over all places of an experiment: a percentile of the errors.
//!
//! A place counts once, with the medians of its runs: what one run has of luck is not the model's fault.

use crate::experiment::analyse;
use crate::experiment::expect::{self, OWN, number};
use crate::experiment::file::Expect;
use crate::experiment::metric::{COMPLETION, PREDICTED, PREDICTION_ERROR};
use crate::experiment::read::{Experiment, Place};
use crate::experiment::results::{Outcome, Run, Verdict};
use crate::stats;

/// Finds what is wrong with the percentile that an expectation names.
pub fn check(experiment: &Experiment, expect: &Expect, mut wrong: impl FnMut(String)) {
    let Some(percentile) = expect.percentile else { return };
    if !(0.0..=100.0).contains(&percentile) {
        wrong("percentile: from 0 to 100".into());
    }
    if expect.metric.as_ref().unwrap_or(&experiment.metric.key) != PREDICTION_ERROR || expect.at_most.is_none() {
        wrong(format!("percentile: of {PREDICTION_ERROR} only, with at_most"));
    }
}

/// What came of an expected percentile over these places, in words; the worst places are named.
#[must_use]
pub fn outcome(expect: &Expect, percentile: f64, places: &[&Place], runs: &[Run]) -> Outcome {
    let most = expect.at_most.unwrap_or_default();
    let mut errors: Vec<(f64, &Place)> =
        places.iter().filter_map(|place| Some((error(runs, place)?, *place))).collect();
    errors.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let sorted: Vec<f64> = errors.iter().map(|(error, _)| *error).collect();
    let figure = (!sorted.is_empty()).then(|| stats::quantile(&sorted, percentile / 100.0));
    let worst = errors.iter().rev().take(3).map(|(error, place)| format!("{} ({place})", number(*error)));
    let worst = format!("the worst of {}: {}", errors.len(), worst.collect::<Vec<_>>().join(", "));
    let default = || format!("{}: {percentile} % of places at most {} off", expect.treatment, number(most));
    Outcome {
        expected: expect.what.clone().unwrap_or_else(default),
        source: expect.source.clone().unwrap_or_else(|| OWN.into()),
        published: expect.published.clone(),
        ours: figure.map(number),
        interval: None,
        verdict: figure.map_or(Verdict::Unknown, |figure| expect::verdict(true, figure <= most)),
        remark: figure.map(|_| expect.remark.iter().cloned().chain([worst]).collect::<Vec<_>>().join("; ")),
    }
}

/// How far the prediction is from the median of what was measured at a place, as a share of the latter.
fn error(runs: &[Run], place: &Place) -> Option<f64> {
    let [predicted, measured] = [PREDICTED, COMPLETION].map(|key| {
        let values: Vec<f64> = analyse::values(runs, place, key).into_iter().map(|(_, value)| value).collect();
        (!values.is_empty()).then(|| stats::median(&values))
    });
    let (predicted, measured) = predicted.zip(measured)?;
    (measured > 0.0).then(|| (predicted - measured).abs() / measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn place(size: &str) -> Place {
        Place { levels: [("size".to_owned(), size.to_owned())].into(), treatment: "path".into() }
    }

    fn run(size: &str, predicted: f64, measured: f64) -> Run {
        let Place { levels, treatment } = place(size);
        let metrics = BTreeMap::from([(PREDICTED.to_owned(), predicted), (COMPLETION.to_owned(), measured)]);
        Run { levels, treatment, metrics, ..Run::default() }
    }

    fn judge(percentile: f64, most: f64) -> Outcome {
        let expect = Expect { treatment: "path".into(), at_most: Some(most), ..Expect::default() };
        let places = [place("1"), place("2"), place("3"), place("4")];
        // The first place has one run that is far off, and is right all the same; the last was never run.
        let runs = [run("1", 10.0, 10.0), run("1", 10.0, 40.0), run("1", 10.0, 10.0)];
        let runs = [&runs[..], &[run("2", 12.0, 10.0), run("3", 10.0, 20.0)]].concat();
        outcome(&expect, percentile, &places.iter().collect::<Vec<_>>(), &runs)
    }

    #[test]
    fn a_place_counts_once_and_the_worst_is_named() {
        let median = judge(50.0, 0.2);
        assert_eq!((median.ours.as_deref(), median.verdict), (Some("0.20"), Verdict::Met));
        let worst = judge(100.0, 0.2);
        assert_eq!((worst.ours.as_deref(), worst.verdict), (Some("0.50"), Verdict::Missed));
        assert!(worst.remark.unwrap().starts_with("the worst of 3: 0.50 (path, 3), 0.20 (path, 2)"));
        assert_eq!(median.expected, "path: 50 % of places at most 0.20 off");
    }

    #[test]
    fn without_runs_nothing_is_known() {
        let expect = Expect { treatment: "path".into(), at_most: Some(0.1), ..Expect::default() };
        assert_eq!(outcome(&expect, 50.0, &[&place("1")], &[]).verdict, Verdict::Unknown);
    }
}
