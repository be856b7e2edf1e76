//! The outcome of an expectation at one place.

use super::{OWN_SOURCE, floor_at, format_number, verdict};
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Run, Summary};
use crate::experiment::judge::analyse;
use crate::experiment::judge::floor::ArithmeticFloor;
use crate::experiment::spec::factor::LevelNames;
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use crate::stats;

pub(super) struct ExpectationEvaluator<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) runs: &'a [Run],
    pub(super) expectation: &'a Expectation,
}

/// A figure, its unit, and the base of its ratio.
struct MeasuredValue {
    summary: Summary,
    unit: String,
    base_name: Option<String>,
}

impl ExpectationEvaluator<'_> {
    fn metric_key(&self) -> &str {
        self.expectation.metric.as_deref().unwrap_or(&self.experiment.metric.key)
    }

    fn measured_value(&self, place: &CellKey) -> MeasuredValue {
        let key = self.metric_key();
        let (base, to) = self.comparison_base(place).unzip();
        let summary = match &base {
            Some(_) if self.expectation.ratio_to_metric.is_some() => self.ratio_to_metric(place),
            Some(base) if self.expectation.minus.is_some() => analyse::difference_between(self.runs, place, base, key),
            Some(base) => analyse::ratio_between(self.runs, place, base, key),
            None => {
                let values = analyse::metric_values(self.runs, place, key);
                stats::summarise(&values.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
            }
        };
        let is_a_ratio = to.is_some() && self.expectation.minus.is_none();
        let unit = match metric::by_name(key) {
            Ok(metric) if !is_a_ratio && metric.unit.is_empty() => String::new(),
            Ok(metric) if !is_a_ratio => format!(" {}", metric.unit),
            _ => " x".into(),
        };
        MeasuredValue { summary, unit, base_name: to }
    }

    /// The ratio to another metric of the same runs.
    fn ratio_to_metric(&self, place: &CellKey) -> Summary {
        let values = |key: &str| analyse::metric_values(self.runs, place, key);
        let base = self.expectation.ratio_to_metric.as_deref().map(values).unwrap_or_default();
        stats::summarise(&stats::ratios(&values(self.metric_key()), &base))
    }

    /// The base of the comparison and its name, if there is one.
    fn comparison_base(&self, place: &CellKey) -> Option<(CellKey, String)> {
        if let Some(metric) = &self.expectation.ratio_to_metric {
            return Some((place.clone(), metric.clone()));
        }
        let level = &self.expectation.ratio_to_level;
        if !level.is_empty() {
            let mut base = place.clone();
            base.levels.extend(level.clone());
            let names: Vec<&str> = level.values().map(String::as_str).collect();
            return Some((base, format!("that at {}", names.join(", "))));
        }
        let at = |treatment: &String| CellKey { levels: place.levels.clone(), treatment: treatment.clone() };
        if let Some(other) = &self.expectation.minus {
            return Some((at(other), format!("more than {other}")));
        }
        let to = self.expectation.ratio_to.clone().or_else(|| self.best_treatment(place))?;
        Some((at(&to), to))
    }

    /// Whether the level that it is compared with is run in this size.
    pub(super) fn has_base_cell(&self, place: &CellKey, full: bool) -> bool {
        let base = self.comparison_base(place).filter(|_| !self.expectation.ratio_to_level.is_empty());
        base.is_none_or(|(base, _)| self.experiment.selected_cells(full).any(|cell| cell.key == base))
    }

    /// The best of those it is compared with, where it stands.
    fn best_treatment(&self, place: &CellKey) -> Option<String> {
        let key = self.metric_key();
        let higher = metric::by_name(key).is_ok_and(|metric| metric.higher_is_better);
        let median = |treatment: &&String| {
            let place = CellKey { levels: place.levels.clone(), treatment: (*treatment).clone() };
            let values: Vec<f64> =
                analyse::metric_values(self.runs, &place, key).into_iter().map(|(_, value)| value).collect();
            let median = stats::median(&values);
            if values.is_empty() {
                f64::NEG_INFINITY
            } else if higher {
                median
            } else {
                -median
            }
        };
        let others = self.expectation.ratio_to_best_of.iter();
        others.max_by(|a, b| median(a).total_cmp(&median(b))).cloned()
    }

    pub(super) fn evaluate_bound(&self, place: &CellKey) -> ExpectationOutcome {
        let figure = self.measured_value(place);
        let summary = figure.summary;
        let (least, floor) = (self.expectation.at_least, self.floor_bound(place));
        let most =
            [self.expectation.at_most, floor.as_ref().map(|(bar, _)| *bar)].into_iter().flatten().reduce(f64::min);
        let holds = least.is_none_or(|least| summary.median >= least) && most.is_none_or(|most| summary.median <= most);
        let inside = |bound: Option<f64>| bound.is_some_and(|bound| summary.low < bound && bound < summary.high);
        let close = (inside(least) || inside(most)).then_some("the interval contains the bound");
        let words = self.describe(place, &figure, floor);
        self.build_outcome(words, &figure, verdict(summary.n > 0, holds), close.map(str::to_owned))
    }

    /// The bar above the floor, and the floor.
    fn floor_bound(&self, place: &CellKey) -> Option<(f64, ArithmeticFloor)> {
        let (times, floor) = self.expectation.over_floor.zip(floor_at(self.experiment, place, self.metric_key()))?;
        Some((times * floor.milliseconds, floor))
    }

    fn describe(&self, place: &CellKey, figure: &MeasuredValue, floor: Option<(f64, ArithmeticFloor)>) -> String {
        let expect = self.expectation;
        if let Some(what) = &expect.what {
            let one = |factor: &String| matches!(expect.levels.get(factor), Some(LevelNames::One(_)));
            let named = place.levels.iter().filter(|(factor, _)| !one(factor));
            let others: String = named.map(|(_, level)| format!(", {level}")).collect();
            return format!("{what}{others}");
        }
        let bounds = [("at least", expect.at_least), ("at most", expect.at_most)];
        let bounds = bounds.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", format_number(bound?))));
        let mut bounds: Vec<String> = bounds.collect();
        if let (Some((bar, floor)), Some(times)) = (floor, expect.over_floor) {
            let ArithmeticFloor { formula, milliseconds } = floor;
            bounds.push(format!(
                "at most {bar:.1} ms, {} x the floor {formula} = {milliseconds:.1}",
                format_number(times)
            ));
        }
        let to = figure.base_name.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        // A ratio of another figure than the experiment's does not tell of which.
        let other = expect.metric.as_ref().filter(|metric| **metric != self.experiment.metric.key);
        let other = other.filter(|_| figure.base_name.is_some() || figure.unit.is_empty());
        let other = other.map(|metric| format!("{metric} ")).unwrap_or_default();
        format!("{place}: {other}{}{}{to}", bounds.join(", "), figure.unit)
    }

    /// `None` if the level is not among those that are run.
    pub(super) fn evaluate_maximum(&self, group: &[&CellKey], factor: &str, level: &str) -> Option<ExpectationOutcome> {
        let at = |place: &CellKey| place.levels.get(factor).cloned().unwrap_or_default();
        let wanted = group.iter().find(|place| at(place) == level)?;
        let figure = self.measured_value(wanted);
        let figures = group.iter().map(|place| (at(place), self.measured_value(place).summary));
        let best = figures.filter(|(_, summary)| summary.n > 0).max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
        let words = self.expectation.what.clone().unwrap_or_else(|| {
            let others: Vec<&String> = wanted.levels.iter().filter(|(f, _)| *f != factor).map(|(_, l)| l).collect();
            let others: String = others.iter().map(|level| format!(", {level}")).collect();
            format!("{}{others}: largest at {factor} {level}", wanted.treatment)
        });
        let holds = best.as_ref().is_some_and(|(best, _)| best == level);
        let remark = best.filter(|(best, _)| best != level).map(|(best, summary)| {
            format!("the largest is {}{}, at {best}", format_number(summary.median), figure.unit)
        });
        Some(self.build_outcome(words, &figure, verdict(figure.summary.n > 0, holds), remark))
    }

    fn build_outcome(
        &self,
        expected: String,
        figure: &MeasuredValue,
        verdict: ExpectationVerdict,
        remark: Option<String>,
    ) -> ExpectationOutcome {
        let MeasuredValue { summary, unit, base_name: to } = figure;
        let expect = self.expectation;
        let ratio = expect.published_ratio.map(|ratio| format!("{} x", format_number(ratio)));
        let published: Vec<String> = expect.published.clone().into_iter().chain(ratio).collect();
        let against = to.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        let known = summary.n > 0;
        ExpectationOutcome {
            expected,
            source: expect.source.clone().unwrap_or_else(|| OWN_SOURCE.into()),
            published: (!published.is_empty()).then(|| published.join(", ")),
            ours: known.then(|| format!("{}{unit}{against}", format_number(summary.median))),
            interval: known.then(|| format!("{} to {}", format_number(summary.low), format_number(summary.high))),
            verdict,
            remark: match (expect.remark.clone(), remark) {
                (Some(a), Some(b)) => Some(format!("{a}; {b}")),
                (a, b) => a.or(b),
            },
        }
    }
}
