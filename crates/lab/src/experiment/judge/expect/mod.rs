//! Expectations of an experiment, and their outcomes.

mod judge;
mod share;

use std::collections::BTreeMap;

use super::accuracy;
use super::floor::{self, ArithmeticFloor};
use super::gain;
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Run};
use crate::experiment::spec::factor::{self, LevelNames};
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use judge::ExpectationEvaluator;

/// Where an expectation comes from if the file does not say.
pub(in crate::experiment) const OWN_SOURCE: &str = "ekiden's own bar";

/// Validates the expectations of an experiment.
pub fn validate(experiment: &Experiment, mistakes: &mut Vec<String>) {
    for (number, expect) in experiment.expectations.iter().enumerate() {
        let mut wrong = |text: String| mistakes.push(format!("expect {}: {text}", number + 1));
        let others = expect.ratio_to.iter().chain(&expect.ratio_to_best_of).chain(&expect.minus).chain(&expect.ceiling);
        let others = others.chain(&expect.beside);
        for treatment in others.chain([&expect.treatment]) {
            if !experiment.settings.treatments.contains(treatment) {
                wrong(format!("there is no treatment {treatment:?}"));
            }
        }
        let maximum = expect.maximum_over.iter().zip(&expect.is);
        let maximum = maximum.map(|(factor, level)| (factor.clone(), LevelNames::One(level.clone()))).collect();
        let base = expect.ratio_to_level.iter().map(|(factor, level)| (factor.clone(), LevelNames::One(level.clone())));
        for these in [&expect.levels, &maximum, &base.collect()] {
            factor::unknown_levels(&experiment.factors, these).into_iter().for_each(&mut wrong);
        }
        if expect.maximum_over.is_some() != expect.is.is_some() {
            wrong("maximum_over and is belong together".into());
        }
        let has_bound = expect.at_least.or(expect.at_most).or(expect.over_floor).is_some();
        if !has_bound && expect.is.is_none() && expect.gain.is_none() {
            wrong("at_least, at_most, over_floor, gain, or maximum_over and is".into());
        }
        share::validate(expect, &mut wrong);
        if expect.over_floor.is_some() && !has_floors(experiment, expect) {
            wrong(
                "over_floor: of first_byte_ms and completion_ms only, not of a ratio, and where a floor is known"
                    .into(),
            );
        }
        gain::validate(experiment, expect, &mut wrong);
        accuracy::validate(experiment, expect, &mut wrong);
        let bases = [&expect.ratio_to, &expect.minus, &expect.ratio_to_metric].map(Option::is_some);
        let others = [expect.ratio_to_best_of.is_empty(), expect.ratio_to_level.is_empty()].map(|empty| !empty);
        if bases.iter().chain(&others).filter(|base| **base).count() > 1 {
            wrong("one of ratio_to, ratio_to_best_of, ratio_to_level, ratio_to_metric and minus".into());
        }
        for metric in expect.metric.iter().chain(&expect.ratio_to_metric) {
            metric::by_name(metric).err().into_iter().for_each(&mut wrong);
        }
        if matching_keys(experiment, true, expect).is_empty() {
            wrong("nothing that is run matches it".into());
        }
    }
}

/// Whether arithmetic says something about every figure that an expectation is about.
fn has_floors(experiment: &Experiment, expect: &Expectation) -> bool {
    let key = expect.metric.as_ref().unwrap_or(&experiment.metric.key);
    let has_base = [&expect.ratio_to, &expect.ratio_to_metric].into_iter().any(Option::is_some);
    let is_a_ratio = has_base || !expect.ratio_to_best_of.is_empty();
    let known = |place: &&CellKey| floor_at(experiment, place, key).is_some();
    !is_a_ratio && matching_keys(experiment, true, expect).iter().all(known)
}

fn floor_at(experiment: &Experiment, place: &CellKey, metric: &str) -> Option<ArithmeticFloor> {
    experiment.cells.iter().find(|cell| cell.key == *place).and_then(|cell| floor::metric_floor(&cell.spec, metric))
}

/// The outcome of every expectation about the runs of a size.
#[must_use]
pub fn outcomes(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<ExpectationOutcome> {
    experiment.expectations.iter().flat_map(|expect| outcomes_of(experiment, full, runs, expect)).collect()
}

/// The outcomes of one expectation.
pub(super) fn outcomes_of(
    experiment: &Experiment,
    full: bool,
    runs: &[Run],
    expect: &Expectation,
) -> Vec<ExpectationOutcome> {
    if expect.gain.is_some() {
        let rows = gain::rows_of_expectation(experiment, full, runs, expect);
        return rows.iter().map(|row| gain::gain_outcome(experiment, expect, row)).collect();
    }
    let places = matching_keys(experiment, full, expect);
    if let Some(percentile) = expect.percentile {
        return vec![accuracy::percentile_outcome(expect, percentile, &places, runs)];
    }
    let judge = ExpectationEvaluator { experiment, runs, expectation: expect };
    match expect.maximum_over.as_ref().zip(expect.is.as_ref()) {
        Some((factor, level)) => group_without_factor(&places, factor)
            .iter()
            .filter_map(|group| judge.evaluate_maximum(group, factor, level))
            .collect(),
        None => {
            let known = places.iter().filter(|place| judge.has_base_cell(place, full));
            let all: Vec<ExpectationOutcome> = known.map(|place| judge.evaluate_bound(place)).collect();
            if expect.share.is_some() { share::share_outcome(experiment, expect, &all) } else { all }
        }
    }
}

/// Where an expectation holds or not.
pub(in crate::experiment) fn matching_keys<'a>(
    experiment: &'a Experiment,
    full: bool,
    expect: &Expectation,
) -> Vec<&'a CellKey> {
    experiment.selected_cells(full).map(|cell| &cell.key).filter(|place| applies_to(expect, place)).collect()
}

/// Whether an expectation is about a place.
pub(in crate::experiment) fn applies_to(expect: &Expectation, place: &CellKey) -> bool {
    place.treatment == expect.treatment && factor::is_match(&place.levels, &expect.levels)
}

/// Places that differ in nothing but the level of `factor`.
fn group_without_factor<'a>(places: &[&'a CellKey], factor: &str) -> Vec<Vec<&'a CellKey>> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<&CellKey>> = BTreeMap::new();
    for place in places {
        let mut others = place.levels.clone();
        others.remove(factor);
        groups.entry(others).or_default().push(place);
    }
    groups.into_values().collect()
}

pub(in crate::experiment) const fn verdict(known: bool, holds: bool) -> ExpectationVerdict {
    match (known, holds) {
        (false, _) => ExpectationVerdict::Unknown,
        (true, true) => ExpectationVerdict::Met,
        (true, false) => ExpectationVerdict::Missed,
    }
}

/// A figure with three digits that matter.
pub(in crate::experiment) fn format_number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests;
