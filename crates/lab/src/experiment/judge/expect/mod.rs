//! Expectations of an experiment, and their outcomes.

mod judge;
mod share;

use std::collections::BTreeMap;

use super::accuracy;
use super::floor::{self, ArithmeticFloor};
use super::gain;
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Run, Summary};
use crate::experiment::spec::factor::{self, LevelNames};
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use judge::ExpectationEvaluator;

/// The source of an expectation without `source`.
pub(in crate::experiment) const OWN_SOURCE: &str = "ekiden's own bar";

/// Validates the expectations of an experiment.
pub fn validate(experiment: &Experiment, mistakes: &mut Vec<String>) {
    for (number, expectation) in experiment.expectations.iter().enumerate() {
        let mut report = |text: String| mistakes.push(format!("expect {}: {text}", number + 1));
        let treatments = expectation
            .ratio_to
            .iter()
            .chain(&expectation.ratio_to_best_of)
            .chain(&expectation.minus)
            .chain(&expectation.ceiling);
        let treatments = treatments.chain(&expectation.beside);
        for treatment in treatments.chain([&expectation.treatment]) {
            if !experiment.settings.treatments.contains(treatment) {
                report(format!("there is no treatment {treatment:?}"));
            }
        }
        let maximum = expectation.maximum_over.iter().zip(&expectation.is);
        let maximum = maximum.map(|(factor, level)| (factor.clone(), LevelNames::One(level.clone()))).collect();
        let base =
            expectation.ratio_to_level.iter().map(|(factor, level)| (factor.clone(), LevelNames::One(level.clone())));
        for levels in [&expectation.levels, &maximum, &base.collect()] {
            factor::unknown_levels(&experiment.factors, levels).into_iter().for_each(&mut report);
        }
        if expectation.maximum_over.is_some() != expectation.is.is_some() {
            report("maximum_over, is: set both or neither".into());
        }
        let has_bound = expectation.at_least.or(expectation.at_most).or(expectation.over_floor).is_some();
        if !has_bound && expectation.is.is_none() && expectation.gain.is_none() {
            report("expected at_least, at_most, over_floor, gain, or maximum_over and is".into());
        }
        share::validate(expectation, &mut report);
        if expectation.over_floor.is_some() && !has_floors(experiment, expectation) {
            report(
                "over_floor: requires first_byte_ms or completion_ms without a ratio or difference, and cells with a known \
                 floor"
                    .into(),
            );
        }
        gain::validate(experiment, expectation, &mut report);
        accuracy::validate(experiment, expectation, &mut report);
        if count_bases(expectation) > 1 {
            report(
                "expected at most one of ratio_to, ratio_to_best_of, ratio_to_level, ratio_to_metric and minus".into(),
            );
        }
        for metric in expectation.metric.iter().chain(&expectation.ratio_to_metric) {
            metric::by_name(metric).err().into_iter().for_each(&mut report);
        }
        if matching_keys(experiment, true, expectation).is_empty() {
            report("the expectation matches no cell".into());
        }
    }
}

/// Returns the number of keys that relate the metric to another figure.
fn count_bases(expectation: &Expectation) -> usize {
    let Expectation { ratio_to, minus, ratio_to_metric, ratio_to_best_of, ratio_to_level, .. } = expectation;
    let bases = [ratio_to, minus, ratio_to_metric].map(Option::is_some);
    let other_bases = [!ratio_to_best_of.is_empty(), !ratio_to_level.is_empty()];
    bases.into_iter().chain(other_bases).filter(|base| *base).count()
}

/// Whether every figure of an expectation is a time with an arithmetic floor.
fn has_floors(experiment: &Experiment, expectation: &Expectation) -> bool {
    let key = experiment.metric_key(expectation);
    let has_floor = |cell_key: &&CellKey| floor_at(experiment, cell_key, key).is_some();
    count_bases(expectation) == 0 && matching_keys(experiment, true, expectation).iter().all(has_floor)
}

fn floor_at(experiment: &Experiment, cell_key: &CellKey, metric: &str) -> Option<ArithmeticFloor> {
    experiment.cells.iter().find(|cell| cell.key == *cell_key).and_then(|cell| floor::metric_floor(&cell.spec, metric))
}

/// Returns the outcomes of all expectations for the runs of a size.
#[must_use]
pub fn outcomes(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<ExpectationOutcome> {
    experiment.expectations.iter().flat_map(|expectation| outcomes_of(experiment, full, runs, expectation)).collect()
}

/// Returns the outcomes of one expectation.
pub(super) fn outcomes_of(
    experiment: &Experiment,
    full: bool,
    runs: &[Run],
    expectation: &Expectation,
) -> Vec<ExpectationOutcome> {
    if expectation.gain.is_some() {
        let rows = gain::rows_of_expectation(experiment, full, runs, expectation);
        return rows.iter().map(|row| gain::gain_outcome(experiment, expectation, row)).collect();
    }
    let cell_keys = matching_keys(experiment, full, expectation);
    if let Some(percentile) = expectation.percentile {
        return vec![accuracy::percentile_outcome(expectation, percentile, &cell_keys, runs)];
    }
    let evaluator = ExpectationEvaluator { experiment, runs, expectation };
    match expectation.maximum_over.as_ref().zip(expectation.is.as_ref()) {
        Some((factor, level)) => group_without_factor(&cell_keys, factor)
            .iter()
            .filter_map(|group| evaluator.evaluate_maximum(group, factor, level))
            .collect(),
        None => {
            let comparable = cell_keys.iter().filter(|cell_key| evaluator.has_base_cell(cell_key, full));
            let cell_outcomes: Vec<ExpectationOutcome> =
                comparable.map(|cell_key| evaluator.evaluate_bound(cell_key)).collect();
            if expectation.share.is_some() {
                share::share_outcome(experiment, expectation, &cell_outcomes)
            } else {
                cell_outcomes
            }
        }
    }
}

/// Returns the keys of the cells of a size that an expectation matches.
pub(in crate::experiment) fn matching_keys<'a>(
    experiment: &'a Experiment,
    full: bool,
    expectation: &Expectation,
) -> Vec<&'a CellKey> {
    experiment.selected_cells(full).map(|cell| &cell.key).filter(|cell_key| applies_to(expectation, cell_key)).collect()
}

/// Whether an expectation matches a cell.
pub(in crate::experiment) fn applies_to(expectation: &Expectation, cell_key: &CellKey) -> bool {
    cell_key.treatment == expectation.treatment && factor::is_match(&cell_key.levels, &expectation.levels)
}

/// Groups the cells that differ only in the level of `factor`.
fn group_without_factor<'a>(cell_keys: &[&'a CellKey], factor: &str) -> Vec<Vec<&'a CellKey>> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<&CellKey>> = BTreeMap::new();
    for cell_key in cell_keys {
        let mut others = cell_key.levels.clone();
        others.remove(factor);
        groups.entry(others).or_default().push(cell_key);
    }
    groups.into_values().collect()
}

pub(in crate::experiment) const fn verdict(is_known: bool, holds: bool) -> ExpectationVerdict {
    match (is_known, holds) {
        (false, _) => ExpectationVerdict::Unknown,
        (true, true) => ExpectationVerdict::Met,
        (true, false) => ExpectationVerdict::Missed,
    }
}

/// Formats a figure with about three significant digits.
pub(in crate::experiment) fn format_number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats the interval of a figure, marked if it is not a 95 % interval but the range of all values. `None` without
/// values, and if the interval is infinite.
pub(in crate::experiment) fn format_interval(summary: &Summary) -> Option<String> {
    if summary.n == 0 || summary.low.is_infinite() {
        return None;
    }
    let low = format_number(summary.low);
    let ends = if summary.high.is_finite() {
        format!("{low} to {}", format_number(summary.high))
    } else {
        format!("at least {low}")
    };
    Some(if summary.confidence < 0.95 { format!("{ends}, range of {}", summary.n) } else { ends })
}

#[cfg(test)]
mod tests;
