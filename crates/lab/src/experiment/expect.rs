//! Expectations: what should come of an experiment, and what came.

use std::collections::BTreeMap;

use crate::experiment::factor::{self, Names};
use crate::experiment::file::Expect;
use crate::experiment::floor::{self, Floor};
use crate::experiment::gain;
use crate::experiment::metric::{self, FIRST_BYTE};
use crate::experiment::read::{Experiment, Place};
use crate::experiment::results::{Outcome, Run, Summary, Verdict};
use crate::experiment::{accuracy, analyse};
use crate::stats;

/// Where an expectation comes from if the file does not say.
pub(super) const OWN: &str = "ekiden's own bar";

/// Finds what is wrong with the expectations of an experiment.
pub fn check(experiment: &Experiment, mistakes: &mut Vec<String>) {
    for (number, expect) in experiment.expects.iter().enumerate() {
        let mut wrong = |text: String| mistakes.push(format!("expect {}: {text}", number + 1));
        let others = expect.ratio_to.iter().chain(&expect.ratio_to_best_of).chain(&expect.minus).chain(&expect.ceiling);
        for treatment in others.chain([&expect.treatment]) {
            if !experiment.settings.treatments.contains(treatment) {
                wrong(format!("there is no treatment {treatment:?}"));
            }
        }
        let maximum = expect.maximum_over.iter().zip(&expect.is);
        let maximum = maximum.map(|(factor, level)| (factor.clone(), Names::One(level.clone()))).collect();
        let base = expect.ratio_to_level.iter().map(|(factor, level)| (factor.clone(), Names::One(level.clone())));
        for these in [&expect.levels, &maximum, &base.collect()] {
            factor::unknown(&experiment.factors, these).into_iter().for_each(&mut wrong);
        }
        if expect.maximum_over.is_some() != expect.is.is_some() {
            wrong("maximum_over and is belong together".into());
        }
        let has_bound = expect.at_least.or(expect.at_most).or(expect.over_floor).is_some();
        if !has_bound && expect.is.is_none() && expect.gain.is_none() {
            wrong("at_least, at_most, over_floor, gain, or maximum_over and is".into());
        }
        share::check(expect, &mut wrong);
        if expect.over_floor.is_some() && !has_floors(experiment, expect) {
            wrong("over_floor: of first_byte_ms only, not of a ratio, and where a floor is known".into());
        }
        gain::check(experiment, expect, &mut wrong);
        accuracy::check(experiment, expect, &mut wrong);
        let bases = [&expect.ratio_to, &expect.minus].map(Option::is_some);
        let others = [expect.ratio_to_best_of.is_empty(), expect.ratio_to_level.is_empty()].map(|empty| !empty);
        if bases.iter().chain(&others).filter(|base| **base).count() > 1 {
            wrong("one of ratio_to, ratio_to_best_of, ratio_to_level and minus".into());
        }
        if let Some(Err(mistake)) = expect.metric.as_ref().map(|metric| metric::by_name(metric)) {
            wrong(mistake);
        }
        if places(experiment, true, expect).is_empty() {
            wrong("nothing that is run matches it".into());
        }
    }
}

/// Whether arithmetic says something about every figure that an expectation is about.
fn has_floors(experiment: &Experiment, expect: &Expect) -> bool {
    let key = expect.metric.as_ref().unwrap_or(&experiment.metric.key);
    let is_a_ratio = expect.ratio_to.is_some() || !expect.ratio_to_best_of.is_empty();
    let known = |place: &&Place| floor_at(experiment, place).is_some();
    key == FIRST_BYTE && !is_a_ratio && places(experiment, true, expect).iter().all(known)
}

fn floor_at(experiment: &Experiment, place: &Place) -> Option<Floor> {
    experiment.cells.iter().find(|cell| cell.place == *place).and_then(|cell| floor::of(&cell.spec))
}

/// What came of every expectation about what is run in a size.
#[must_use]
pub fn outcomes(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<Outcome> {
    let judge = |expect: &Expect| -> Vec<Outcome> {
        if expect.gain.is_some() {
            let rows = gain::of(experiment, full, runs, expect);
            return rows.iter().map(|row| gain::outcome(experiment, expect, row)).collect();
        }
        let places = places(experiment, full, expect);
        if let Some(percentile) = expect.percentile {
            return vec![accuracy::outcome(expect, percentile, &places, runs)];
        }
        let judge = Judge { experiment, runs, expect };
        match expect.maximum_over.as_ref().zip(expect.is.as_ref()) {
            Some((factor, level)) => {
                groups(&places, factor).iter().filter_map(|group| judge.maximum(group, factor, level)).collect()
            }
            None => {
                let known = places.iter().filter(|place| judge.is_known(place, full));
                let all: Vec<Outcome> = known.map(|place| judge.bound(place)).collect();
                if expect.share.is_some() { share::outcome(experiment, expect, &all) } else { all }
            }
        }
    };
    experiment.expects.iter().flat_map(judge).collect()
}

/// Where an expectation holds or not.
pub(super) fn places<'a>(experiment: &'a Experiment, full: bool, expect: &Expect) -> Vec<&'a Place> {
    experiment.cells_of(full).map(|cell| &cell.place).filter(|place| is_about(expect, place)).collect()
}

/// Whether an expectation is about a place.
pub(super) fn is_about(expect: &Expect, place: &Place) -> bool {
    place.treatment == expect.treatment && factor::is_at(&place.levels, &expect.levels)
}

/// Places that differ in nothing but the level of `factor`.
fn groups<'a>(places: &[&'a Place], factor: &str) -> Vec<Vec<&'a Place>> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<&Place>> = BTreeMap::new();
    for place in places {
        let mut others = place.levels.clone();
        others.remove(factor);
        groups.entry(others).or_default().push(place);
    }
    groups.into_values().collect()
}

struct Judge<'a> {
    experiment: &'a Experiment,
    runs: &'a [Run],
    expect: &'a Expect,
}

/// A figure, its unit, and what it is a ratio to.
struct Figure {
    summary: Summary,
    unit: String,
    to: Option<String>,
}

impl Judge<'_> {
    fn metric(&self) -> &str {
        self.expect.metric.as_deref().unwrap_or(&self.experiment.metric.key)
    }

    fn figure(&self, place: &Place) -> Figure {
        let key = self.metric();
        let (base, to) = self.base(place).unzip();
        let summary = match &base {
            Some(base) if self.expect.minus.is_some() => analyse::difference(self.runs, place, base, key),
            Some(base) => analyse::ratio_of(self.runs, place, base, key),
            None => {
                let values = analyse::values(self.runs, place, key);
                stats::summary(&values.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
            }
        };
        let is_a_ratio = to.is_some() && self.expect.minus.is_none();
        let unit = match metric::by_name(key) {
            Ok(metric) if !is_a_ratio && metric.unit.is_empty() => String::new(),
            Ok(metric) if !is_a_ratio => format!(" {}", metric.unit),
            _ => " x".into(),
        };
        Figure { summary, unit, to }
    }

    /// What it is compared with, if with anything, and what that is called.
    fn base(&self, place: &Place) -> Option<(Place, String)> {
        let level = &self.expect.ratio_to_level;
        if !level.is_empty() {
            let mut base = place.clone();
            base.levels.extend(level.clone());
            let names: Vec<&str> = level.values().map(String::as_str).collect();
            return Some((base, format!("that at {}", names.join(", "))));
        }
        let at = |treatment: &String| Place { levels: place.levels.clone(), treatment: treatment.clone() };
        if let Some(other) = &self.expect.minus {
            return Some((at(other), format!("more than {other}")));
        }
        let to = self.expect.ratio_to.clone().or_else(|| self.best(place))?;
        Some((at(&to), to))
    }

    /// Whether the level that it is compared with is run in this size.
    fn is_known(&self, place: &Place, full: bool) -> bool {
        let base = self.base(place).filter(|_| !self.expect.ratio_to_level.is_empty());
        base.is_none_or(|(base, _)| self.experiment.cells_of(full).any(|cell| cell.place == base))
    }

    /// The best of those it is compared with, where it stands.
    fn best(&self, place: &Place) -> Option<String> {
        let key = self.metric();
        let higher = metric::by_name(key).is_ok_and(|metric| metric.higher_is_better);
        let median = |treatment: &&String| {
            let place = Place { levels: place.levels.clone(), treatment: (*treatment).clone() };
            let values: Vec<f64> =
                analyse::values(self.runs, &place, key).into_iter().map(|(_, value)| value).collect();
            let median = stats::median(&values);
            if values.is_empty() {
                f64::NEG_INFINITY
            } else if higher {
                median
            } else {
                -median
            }
        };
        let others = self.expect.ratio_to_best_of.iter();
        others.max_by(|a, b| median(a).total_cmp(&median(b))).cloned()
    }

    fn bound(&self, place: &Place) -> Outcome {
        let figure = self.figure(place);
        let summary = figure.summary;
        let (least, floor) = (self.expect.at_least, self.floor(place));
        let most = [self.expect.at_most, floor.map(|(bar, _)| bar)].into_iter().flatten().reduce(f64::min);
        let holds = least.is_none_or(|least| summary.median >= least) && most.is_none_or(|most| summary.median <= most);
        let inside = |bound: Option<f64>| bound.is_some_and(|bound| summary.low < bound && bound < summary.high);
        let close = (inside(least) || inside(most)).then_some("the interval contains the bound");
        let words = self.words(place, &figure, floor);
        self.outcome(words, &figure, verdict(summary.n > 0, holds), close.map(str::to_owned))
    }

    /// The bar above the floor, and the floor.
    fn floor(&self, place: &Place) -> Option<(f64, Floor)> {
        let (times, floor) = self.expect.over_floor.zip(floor_at(self.experiment, place))?;
        Some((times * floor.milliseconds, floor))
    }

    fn words(&self, place: &Place, figure: &Figure, floor: Option<(f64, Floor)>) -> String {
        let expect = self.expect;
        if let Some(what) = &expect.what {
            let one = |factor: &String| matches!(expect.levels.get(factor), Some(Names::One(_)));
            let named = place.levels.iter().filter(|(factor, _)| !one(factor));
            let others: String = named.map(|(_, level)| format!(", {level}")).collect();
            return format!("{what}{others}");
        }
        let bounds = [("at least", expect.at_least), ("at most", expect.at_most)];
        let bounds = bounds.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", number(bound?))));
        let mut bounds: Vec<String> = bounds.collect();
        if let (Some((bar, floor)), Some(times)) = (floor, expect.over_floor) {
            let Floor { formula, milliseconds } = floor;
            bounds.push(format!("at most {bar:.1} ms, {} x the floor {formula} = {milliseconds:.1}", number(times)));
        }
        let to = figure.to.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        // A ratio of another figure than the experiment's does not tell of which.
        let other = expect.metric.as_ref().filter(|metric| **metric != self.experiment.metric.key);
        let other = other.filter(|_| figure.to.is_some() || figure.unit.is_empty());
        let other = other.map(|metric| format!("{metric} ")).unwrap_or_default();
        format!("{place}: {other}{}{}{to}", bounds.join(", "), figure.unit)
    }

    /// `None` if the level is not among those that are run.
    fn maximum(&self, group: &[&Place], factor: &str, level: &str) -> Option<Outcome> {
        let at = |place: &Place| place.levels.get(factor).cloned().unwrap_or_default();
        let wanted = group.iter().find(|place| at(place) == level)?;
        let figure = self.figure(wanted);
        let figures = group.iter().map(|place| (at(place), self.figure(place).summary));
        let best = figures.filter(|(_, summary)| summary.n > 0).max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
        let words = self.expect.what.clone().unwrap_or_else(|| {
            let others: Vec<&String> = wanted.levels.iter().filter(|(f, _)| *f != factor).map(|(_, l)| l).collect();
            let others: String = others.iter().map(|level| format!(", {level}")).collect();
            format!("{}{others}: largest at {factor} {level}", wanted.treatment)
        });
        let holds = best.as_ref().is_some_and(|(best, _)| best == level);
        let remark = best
            .filter(|(best, _)| best != level)
            .map(|(best, summary)| format!("the largest is {}{}, at {best}", number(summary.median), figure.unit));
        Some(self.outcome(words, &figure, verdict(figure.summary.n > 0, holds), remark))
    }

    fn outcome(&self, expected: String, figure: &Figure, verdict: Verdict, remark: Option<String>) -> Outcome {
        let Figure { summary, unit, to } = figure;
        let expect = self.expect;
        let ratio = expect.published_ratio.map(|ratio| format!("{} x", number(ratio)));
        let published: Vec<String> = expect.published.clone().into_iter().chain(ratio).collect();
        let against = to.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        let known = summary.n > 0;
        Outcome {
            expected,
            source: expect.source.clone().unwrap_or_else(|| OWN.into()),
            published: (!published.is_empty()).then(|| published.join(", ")),
            ours: known.then(|| format!("{}{unit}{against}", number(summary.median))),
            interval: known.then(|| format!("{} to {}", number(summary.low), number(summary.high))),
            verdict,
            remark: match (expect.remark.clone(), remark) {
                (Some(a), Some(b)) => Some(format!("{a}; {b}")),
                (a, b) => a.or(b),
            },
        }
    }
}

pub(super) const fn verdict(known: bool, holds: bool) -> Verdict {
    match (known, holds) {
        (false, _) => Verdict::Unknown,
        (true, true) => Verdict::Met,
        (true, false) => Verdict::Missed,
    }
}

/// A figure with three digits that matter.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

mod share;

#[cfg(test)]
mod tests;
