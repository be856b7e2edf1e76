//! Expectations: what should come of an experiment, and what came.

use std::collections::BTreeMap;

use crate::experiment::analyse;
use crate::experiment::file::Expect;
use crate::experiment::metric;
use crate::experiment::read::{Experiment, Place};
use crate::experiment::results::{Outcome, Run, Summary, Verdict};
use crate::stats;

/// Where an expectation comes from if the file does not say.
const OWN: &str = "ekiden's own bar";

/// Finds what is wrong with the expectations of an experiment.
pub fn check(experiment: &Experiment, mistakes: &mut Vec<String>) {
    for (number, expect) in experiment.expects.iter().enumerate() {
        let mut wrong = |text: String| mistakes.push(format!("expect {}: {text}", number + 1));
        let others = expect.ratio_to.iter().chain(&expect.ratio_to_best_of);
        for treatment in others.chain([&expect.treatment]) {
            if !experiment.settings.treatments.contains(treatment) {
                wrong(format!("there is no treatment {treatment:?}"));
            }
        }
        let maximum = expect.maximum_over.iter().zip(&expect.is);
        for (factor, level) in expect.levels.iter().chain(maximum) {
            let found = experiment.factors.iter().find(|other| other.name == *factor);
            if !found.is_some_and(|factor| factor.levels.iter().any(|other| other.name == *level)) {
                wrong(format!("there is no level {level:?} of a factor {factor:?}"));
            }
        }
        if expect.maximum_over.is_some() != expect.is.is_some() {
            wrong("maximum_over and is belong together".into());
        }
        if expect.at_least.or(expect.at_most).is_none() && expect.is.is_none() {
            wrong("at_least, at_most, or maximum_over and is".into());
        }
        if expect.ratio_to.is_some() && !expect.ratio_to_best_of.is_empty() {
            wrong("either ratio_to or ratio_to_best_of".into());
        }
        if let Some(Err(mistake)) = expect.metric.as_ref().map(|metric| metric::by_name(metric)) {
            wrong(mistake);
        }
        if places(experiment, true, expect).is_empty() {
            wrong("nothing that is run matches it".into());
        }
    }
}

/// What came of every expectation about what is run in a size.
#[must_use]
pub fn outcomes(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<Outcome> {
    let judge = |expect| -> Vec<Outcome> {
        let judge = Judge { experiment, runs, expect };
        let places = places(experiment, full, expect);
        match expect.maximum_over.as_ref().zip(expect.is.as_ref()) {
            Some((factor, level)) => {
                groups(&places, factor).iter().filter_map(|group| judge.maximum(group, factor, level)).collect()
            }
            None => places.iter().map(|place| judge.bound(place)).collect(),
        }
    };
    experiment.expects.iter().flat_map(judge).collect()
}

/// Where an expectation holds or not.
fn places<'a>(experiment: &'a Experiment, full: bool, expect: &Expect) -> Vec<&'a Place> {
    let meant = |place: &&Place| {
        place.treatment == expect.treatment
            && expect.levels.iter().all(|(factor, level)| place.levels.get(factor) == Some(level))
    };
    experiment.cells_of(full).map(|cell| &cell.place).filter(meant).collect()
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
        let to = self.expect.ratio_to.clone().or_else(|| self.best(place));
        let summary = match &to {
            Some(to) => analyse::ratio(self.runs, place, to, key),
            None => {
                let values = analyse::values(self.runs, place, key);
                stats::summary(&values.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
            }
        };
        let unit = match (&to, metric::by_name(key)) {
            (None, Ok(metric)) => format!(" {}", metric.unit),
            _ => " x".into(),
        };
        Figure { summary, unit, to }
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
        let expect = self.expect;
        let holds = expect.at_least.is_none_or(|least| summary.median >= least)
            && expect.at_most.is_none_or(|most| summary.median <= most);
        let inside = |bound: Option<f64>| bound.is_some_and(|bound| summary.low < bound && bound < summary.high);
        let close = (inside(expect.at_least) || inside(expect.at_most)).then_some("the interval contains the bound");
        let words = self.words(place, &figure);
        self.outcome(words, &figure, verdict(summary.n > 0, holds), close.map(str::to_owned))
    }

    fn words(&self, place: &Place, figure: &Figure) -> String {
        let expect = self.expect;
        if let Some(what) = &expect.what {
            let named = place.levels.iter().filter(|(factor, _)| !expect.levels.contains_key(*factor));
            let others: String = named.map(|(_, level)| format!(", {level}")).collect();
            return format!("{what}{others}");
        }
        let bounds = [("at least", expect.at_least), ("at most", expect.at_most)];
        let bounds = bounds.into_iter().filter_map(|(word, bound)| Some(format!("{word} {}", number(bound?))));
        let bounds: Vec<String> = bounds.collect();
        let to = figure.to.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        format!("{place}: {}{}{to}", bounds.join(", "), figure.unit)
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

const fn verdict(known: bool, holds: bool) -> Verdict {
    match (known, holds) {
        (false, _) => Verdict::Unknown,
        (true, true) => Verdict::Met,
        (true, false) => Verdict::Missed,
    }
}

/// A figure with three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::examples_for_tests::small;

    /// Runs of three blocks, in which a treatment has so many MB/s at each delay, over HTTP.
    fn runs(table: &[(&str, &str, f64)]) -> Vec<Run> {
        let one = |block: u32, (treatment, delay, value): &(&str, &str, f64)| Run {
            block,
            levels: [("delay", *delay), ("protocol", "http")].map(|(f, l)| (f.to_owned(), l.to_owned())).into(),
            treatment: (*treatment).to_owned(),
            metrics: [("mb_s".to_owned(), value + f64::from(block) / 100.0)].into(),
            ..Run::default()
        };
        (0..3).flat_map(|block| table.iter().map(move |row| one(block, row))).collect()
    }

    fn judged(expectation: &str, table: &[(&str, &str, f64)]) -> Vec<Outcome> {
        let experiment = small(&format!("[[expect]]\n{expectation}")).unwrap();
        outcomes(&experiment, true, &runs(table))
    }

    const TABLE: [(&str, &str, f64); 6] = [
        ("direct", "short", 10.0),
        ("direct", "long", 5.0),
        ("dante", "short", 17.0),
        ("dante", "long", 6.0),
        ("haproxy", "short", 15.0),
        ("haproxy", "long", 9.0),
    ];

    #[test]
    fn a_ratio_is_judged_at_every_combination_that_matches() {
        let http = "treatment = \"dante\"\nwhere = { protocol = \"http\" }\nratio_to = \"direct\"\nat_least = 1.5\n\
                    published = \"17.7 MB/s\"\npublished_ratio = 1.7\nsource = \"them\"";
        let outcomes = judged(http, &TABLE);
        assert_eq!(outcomes.iter().map(|outcome| outcome.verdict).collect::<Vec<_>>(), [Verdict::Met, Verdict::Missed]);
        let first = &outcomes[0];
        assert_eq!(first.expected, "dante, short, http: at least 1.50 x direct");
        assert_eq!((first.ours.as_deref(), first.source.as_str()), (Some("1.70 x direct"), "them"));
        assert_eq!(first.published.as_deref(), Some("17.7 MB/s, 1.70 x"));
    }

    #[test]
    fn the_best_of_others_is_the_best_where_it_stands() {
        let outcomes = judged(
            "treatment = \"direct\"\nwhere = { protocol = \"http\" }\n\
            ratio_to_best_of = [\"dante\", \"haproxy\"]\nat_most = 0.6",
            &TABLE,
        );
        let ours: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.ours.clone()).collect();
        assert_eq!(ours, ["0.59 x dante", "0.56 x haproxy"]);
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Met));
    }

    #[test]
    fn a_shape_is_where_the_maximum_is() {
        let shape = |level: &str| {
            let text = format!(
                "treatment = \"dante\"\nwhere = {{ protocol = \"http\" }}\nmaximum_over = \"delay\"\nis = \"{level}\""
            );
            judged(&text, &TABLE).remove(0)
        };
        assert_eq!(shape("short").verdict, Verdict::Met);
        assert_eq!(shape("short").expected, "dante, http: largest at delay short");
        assert_eq!(shape("long").verdict, Verdict::Missed);
        assert!(shape("long").remark.unwrap().contains("17.0 MB/s, at short"));
    }

    #[test]
    fn without_runs_nothing_is_known() {
        let outcomes = judged("what = \"all well\"\ntreatment = \"dante\"\nat_least = 1", &[]);
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Unknown && outcome.ours.is_none()));
        assert_eq!(outcomes[0].expected, "all well, short, http");
    }

    #[test]
    fn expectations_of_nothing_are_mistakes() {
        let wrong = [
            ("treatment = \"best\"\nat_least = 1", "there is no treatment \"best\""),
            ("treatment = \"dante\"", "at_least, at_most, or maximum_over and is"),
            ("treatment = \"dante\"\nwhere = { delay = \"none\" }\nat_least = 1", "there is no level \"none\""),
            ("treatment = \"haproxy\"\nwhere = { protocol = \"ftp\" }\nat_least = 1", "nothing that is run matches it"),
            ("treatment = \"dante\"\nmaximum_over = \"delay\"\nat_least = 1", "belong together"),
        ];
        for (text, wanted) in wrong {
            let mistakes = small(&format!("[[expect]]\n{text}")).unwrap_err();
            assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{text}: {mistakes:?}");
        }
    }
}
