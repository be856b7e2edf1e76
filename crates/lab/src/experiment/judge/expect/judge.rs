//! Evaluation of an expectation for one cell or for the cells of one factor.

use super::{OWN_SOURCE, floor_at, format_interval, format_number, verdict};
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

/// A figure, its text, its unit, and the name of the base that it is compared with.
struct MeasuredValue {
    summary: Summary,
    text: String,
    unit: String,
    base_name: Option<String>,
}

impl ExpectationEvaluator<'_> {
    fn metric_key(&self) -> &str {
        self.experiment.metric_key(self.expectation)
    }

    fn measured_value(&self, cell_key: &CellKey) -> MeasuredValue {
        let key = self.metric_key();
        let own = analyse::metric_values(self.runs, cell_key, key);
        let (base, base_name) = self.comparison_base(cell_key).unzip();
        let base_key = self.expectation.ratio_to_metric.as_deref().unwrap_or(key);
        let base = base.map(|base| analyse::metric_values(self.runs, &base, base_key));
        let values_of = |values: &[(u32, f64)]| -> Vec<f64> { values.iter().map(|(_, value)| *value).collect() };
        let is_ratio = base.is_some() && self.expectation.minus.is_none();
        let summary = stats::summarise(&match &base {
            Some(base) if is_ratio => stats::ratios_with_zero_bases(&own, base),
            Some(base) => stats::differences(&own, base),
            None => values_of(&own),
        });
        let metric_unit = metric::by_name(key).map(|metric| metric.unit).unwrap_or_default();
        let metric_unit = if metric_unit.is_empty() { metric_unit } else { format!(" {metric_unit}") };
        let unit = if is_ratio { " x".to_owned() } else { metric_unit.clone() };
        let median_of = |values: &[(u32, f64)]| format_number(stats::median(&values_of(values)));
        let text = match (&base, &base_name) {
            (Some(base), Some(name)) if summary.median.is_infinite() => {
                format!("{}{metric_unit} against {} ({name})", median_of(&own), median_of(base))
            }
            (_, Some(name)) => format!("{}{unit} {name}", format_number(summary.median)),
            (_, None) => format!("{}{unit}", format_number(summary.median)),
        };
        MeasuredValue { summary, text, unit, base_name }
    }

    /// Returns the base of the comparison and its name; `None` if the expectation has no base.
    fn comparison_base(&self, cell_key: &CellKey) -> Option<(CellKey, String)> {
        if let Some(metric) = &self.expectation.ratio_to_metric {
            return Some((cell_key.clone(), metric.clone()));
        }
        let level = &self.expectation.ratio_to_level;
        if !level.is_empty() {
            let mut base = cell_key.clone();
            base.levels.extend(level.clone());
            let names: Vec<&str> = level.values().map(String::as_str).collect();
            return Some((base, format!("that at {}", names.join(", "))));
        }
        let key_of = |treatment: &String| CellKey { levels: cell_key.levels.clone(), treatment: treatment.clone() };
        if let Some(other) = &self.expectation.minus {
            return Some((key_of(other), format!("more than {other}")));
        }
        let to = self.expectation.ratio_to.clone().or_else(|| self.best_treatment(cell_key))?;
        Some((key_of(&to), to))
    }

    /// Whether the base cell of a ratio to another level is run in this size.
    pub(super) fn has_base_cell(&self, cell_key: &CellKey, full: bool) -> bool {
        let base = self.comparison_base(cell_key).filter(|_| !self.expectation.ratio_to_level.is_empty());
        base.is_none_or(|(base, _)| self.experiment.selected_cells(full).any(|cell| cell.key == base))
    }

    /// Returns the treatment of `ratio_to_best_of` with the best median at the levels of the cell.
    fn best_treatment(&self, cell_key: &CellKey) -> Option<String> {
        let key = self.metric_key();
        let higher_is_better = metric::by_name(key).is_ok_and(|metric| metric.higher_is_better);
        let median = |treatment: &&String| {
            let cell_key = CellKey { levels: cell_key.levels.clone(), treatment: (*treatment).clone() };
            let values = analyse::cell_values(self.runs, &cell_key, key);
            let median = stats::median(&values);
            if values.is_empty() {
                f64::NEG_INFINITY
            } else if higher_is_better {
                median
            } else {
                -median
            }
        };
        let treatments = self.expectation.ratio_to_best_of.iter();
        treatments.max_by(|a, b| median(a).total_cmp(&median(b))).cloned()
    }

    pub(super) fn evaluate_bound(&self, cell_key: &CellKey) -> ExpectationOutcome {
        let figure = self.measured_value(cell_key);
        let summary = figure.summary;
        let (least, floor) = (self.expectation.at_least, self.floor_bound(cell_key));
        let most =
            [self.expectation.at_most, floor.as_ref().map(|(bar, _)| *bar)].into_iter().flatten().reduce(f64::min);
        let holds = least.is_none_or(|least| summary.median >= least) && most.is_none_or(|most| summary.median <= most);
        let is_inside = |bound: Option<f64>| bound.is_some_and(|bound| summary.low < bound && bound < summary.high);
        let remark = (is_inside(least) || is_inside(most)).then_some("the interval contains the bound");
        let text = self.describe(cell_key, &figure, floor);
        self.build_outcome(text, &figure, verdict(summary.n > 0, holds), remark.map(str::to_owned))
    }

    /// Returns the upper bound, in milliseconds, that is a multiple of the floor, and the floor.
    fn floor_bound(&self, cell_key: &CellKey) -> Option<(f64, ArithmeticFloor)> {
        let (times, floor) = self.expectation.over_floor.zip(floor_at(self.experiment, cell_key, self.metric_key()))?;
        Some((times * floor.milliseconds, floor))
    }

    fn describe(&self, cell_key: &CellKey, figure: &MeasuredValue, floor: Option<(f64, ArithmeticFloor)>) -> String {
        let expectation = self.expectation;
        if let Some(what) = &expectation.what {
            let is_single = |factor: &String| matches!(expectation.levels.get(factor), Some(LevelNames::One(_)));
            let named = cell_key.levels.iter().filter(|(factor, _)| !is_single(factor));
            let others: String = named.map(|(_, level)| format!(", {level}")).collect();
            return format!("{what}{others}");
        }
        let bounds = [("at least", expectation.at_least), ("at most", expectation.at_most)];
        let bounds = bounds.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", format_number(bound?))));
        let mut bounds: Vec<String> = bounds.collect();
        if let (Some((bar, floor)), Some(times)) = (floor, expectation.over_floor) {
            let ArithmeticFloor { formula, milliseconds } = floor;
            bounds.push(format!(
                "at most {bar:.1} ms, {} x the floor {formula} = {milliseconds:.1}",
                format_number(times)
            ));
        }
        let to = figure.base_name.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        // The text of a ratio does not show its metric, so a metric other than the experiment's is named.
        let other = expectation.metric.as_ref().filter(|metric| **metric != self.experiment.metric.key);
        let other = other.filter(|_| figure.base_name.is_some() || figure.unit.is_empty());
        let other = other.map(|metric| format!("{metric} ")).unwrap_or_default();
        format!("{cell_key}: {other}{}{}{to}", bounds.join(", "), figure.unit)
    }

    /// Evaluates whether the figure is largest at `level` of `factor`. `None` if the level is not in `group`. The
    /// expectation is met only if every level of `group` has a figure; one larger figure is enough for a miss.
    pub(super) fn evaluate_maximum(&self, group: &[&CellKey], factor: &str, level: &str) -> Option<ExpectationOutcome> {
        let level_of = |cell_key: &CellKey| cell_key.levels.get(factor).cloned().unwrap_or_default();
        let expected = group.iter().find(|cell_key| level_of(cell_key) == level)?;
        let figure = self.measured_value(expected);
        let others = group.iter().map(|cell_key| (level_of(cell_key), self.measured_value(cell_key)));
        let (known, missing): (Vec<_>, Vec<_>) =
            others.filter(|(name, _)| name != level).partition(|(_, other)| other.summary.n > 0);
        let largest = known.iter().max_by(|(_, a), (_, b)| a.summary.median.total_cmp(&b.summary.median));
        let larger = largest.filter(|(_, other)| other.summary.median > figure.summary.median);
        let is_decided = larger.is_some() || (missing.is_empty() && !known.is_empty());
        let text = self.expectation.what.clone().unwrap_or_else(|| {
            let others: Vec<&String> = expected.levels.iter().filter(|(f, _)| *f != factor).map(|(_, l)| l).collect();
            let others: String = others.iter().map(|level| format!(", {level}")).collect();
            format!("{}{others}: largest at {factor} {level}", expected.treatment)
        });
        let missing: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
        let remark = match larger {
            Some((name, other)) => Some(format!("the largest is {}, at {name}", other.text)),
            None => (!missing.is_empty()).then(|| format!("no valid run at {}", missing.join(", "))),
        };
        let verdict = verdict(figure.summary.n > 0 && is_decided, larger.is_none());
        Some(self.build_outcome(text, &figure, verdict, remark))
    }

    fn build_outcome(
        &self,
        expected: String,
        figure: &MeasuredValue,
        verdict: ExpectationVerdict,
        remark: Option<String>,
    ) -> ExpectationOutcome {
        let MeasuredValue { summary, text, .. } = figure;
        let expectation = self.expectation;
        let ratio = expectation.published_ratio.map(|ratio| format!("{} x", format_number(ratio)));
        let published: Vec<String> = expectation.published.clone().into_iter().chain(ratio).collect();
        ExpectationOutcome {
            expected,
            source: expectation.source.clone().unwrap_or_else(|| OWN_SOURCE.into()),
            published: (!published.is_empty()).then(|| published.join(", ")),
            ours: (summary.n > 0).then(|| text.clone()),
            interval: format_interval(summary),
            verdict,
            remark: match (expectation.remark.clone(), remark) {
                (Some(a), Some(b)) => Some(format!("{a}; {b}")),
                (a, b) => a.or(b),
            },
        }
    }
}
