//! An expectation at one place, held to what came there.

use crate::experiment::analyse;
use crate::experiment::expect::{OWN, floor_at, number, verdict};
use crate::experiment::factor::Names;
use crate::experiment::file::Expect;
use crate::experiment::floor::Floor;
use crate::experiment::metric;
use crate::experiment::read::{Experiment, Place};
use crate::experiment::results::{Outcome, Run, Summary, Verdict};
use crate::stats;

pub(super) struct Judge<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) runs: &'a [Run],
    pub(super) expect: &'a Expect,
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
    pub(super) fn is_known(&self, place: &Place, full: bool) -> bool {
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

    pub(super) fn bound(&self, place: &Place) -> Outcome {
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
    pub(super) fn maximum(&self, group: &[&Place], factor: &str, level: &str) -> Option<Outcome> {
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
