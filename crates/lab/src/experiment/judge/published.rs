//! Published figures beside those of today's programs and of ekiden.
//!
//! Each expectation with a publication as its source gives a row for each combination of levels. The treatment that its
//! `beside` names is judged by the same expectation at the same levels.

use serde::{Deserialize, Serialize};

use super::{analyse, expect};
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Run};
use crate::experiment::spec::factor::LevelNames;
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use crate::experiment::spec::treatment::RelayProgram;
use crate::stats;

/// A published figure, and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRow {
    /// The levels, or the claim.
    pub cell: String,
    /// The publication, with the number of the table or figure.
    pub source: String,
    /// The published figure or claim as text.
    pub published: String,
    /// The figure of the published program, or of its successor, with its name.
    pub today: Option<String>,
    /// The figure of ekiden, with the name of the treatment.
    pub ekiden: Option<String>,
    /// The figure of ekiden divided by that of today's program, median over the blocks.
    pub ratio: Option<f64>,
    /// Whether the treatment of the expectation meets it.
    pub verdict: ExpectationVerdict,
    /// The reason why the figures differ.
    pub why: Option<String>,
}

/// The rows of an experiment, from all runs of the full size.
#[must_use]
pub fn published_rows(experiment: &Experiment, runs: &[Run]) -> Vec<PublishedRow> {
    let published = experiment.expectations.iter().filter(|expect| is_published(expect));
    published.flat_map(|expect| rows_of(experiment, runs, expect)).collect()
}

/// Whether an expectation comes from a publication and has its figure.
#[must_use]
pub fn is_published(expect: &Expectation) -> bool {
    let has_figure = expect.published.is_some() || expect.published_ratio.is_some();
    expect.source.is_some() && (has_figure || expect.gain.is_some() || expect.is.is_some())
}

fn rows_of(experiment: &Experiment, runs: &[Run], expect: &Expectation) -> Vec<PublishedRow> {
    if expect.maximum_over.is_some() {
        let outcomes = expect::outcomes_of(experiment, true, runs, expect);
        return outcomes.into_iter().map(|outcome| row_of_claim(&expect.treatment, outcome)).collect();
    }
    let places = expect::matching_keys(experiment, true, expect);
    places.into_iter().filter_map(|place| row_of_place(experiment, runs, expect, place)).collect()
}

fn row_of_claim(treatment: &str, outcome: ExpectationOutcome) -> PublishedRow {
    PublishedRow {
        cell: outcome.expected,
        source: outcome.source,
        published: outcome.published.unwrap_or_else(|| "as the claim says".into()),
        today: outcome.ours.map(|ours| format!("{treatment}: {ours}")),
        ekiden: None,
        ratio: None,
        verdict: outcome.verdict,
        why: outcome.remark,
    }
}

fn row_of_place(experiment: &Experiment, runs: &[Run], expect: &Expectation, place: &CellKey) -> Option<PublishedRow> {
    let outcome_at = |place: &CellKey| outcome_at(experiment, runs, expect, place);
    let own = outcome_at(place)?;
    let text = |place: &CellKey, outcome: &ExpectationOutcome| figure_text(experiment, runs, expect, place, outcome);
    let beside = expect.beside.as_ref().map(|treatment| CellKey { treatment: treatment.clone(), ..place.clone() });
    let beside = beside.and_then(|place| Some((outcome_at(&place)?, place)));
    let mut figures = [text(place, &own), beside.as_ref().and_then(|(outcome, place)| text(place, outcome))];
    let key = metric_key(experiment, expect);
    let mut places = [Some(place), beside.as_ref().map(|(_, place)| place)];
    if is_ekiden(experiment, place) {
        figures.reverse();
        places.reverse();
    }
    let ratio = match places {
        [Some(today), Some(ekiden)] => Some(analyse::ratio_between(runs, ekiden, today, key)),
        _ => None,
    };
    let [today, ekiden] = figures;
    Some(PublishedRow {
        cell: cell_name(experiment, place),
        published: own.published?,
        source: own.source,
        today,
        ekiden,
        ratio: ratio.filter(|ratio| ratio.n > 0).map(|ratio| ratio.median),
        verdict: own.verdict,
        why: own.remark,
    })
}

/// The outcome of an expectation for one cell, which need not be of the treatment that the file names.
fn outcome_at(
    experiment: &Experiment,
    runs: &[Run],
    expect: &Expectation,
    place: &CellKey,
) -> Option<ExpectationOutcome> {
    let levels = place.levels.iter().map(|(factor, level)| (factor.clone(), LevelNames::One(level.clone()))).collect();
    let narrowed = Expectation { levels, treatment: place.treatment.clone(), ..expect.clone() };
    expect::outcomes_of(experiment, true, runs, &narrowed).into_iter().next()
}

/// The figure of a cell as text, with the name of its treatment: the metric, and the ratio if the expectation has one.
fn figure_text(
    experiment: &Experiment,
    runs: &[Run],
    expect: &Expectation,
    place: &CellKey,
    outcome: &ExpectationOutcome,
) -> Option<String> {
    let ours = outcome.ours.as_ref()?;
    let key = metric_key(experiment, expect);
    let unit = metric::by_name(key).map(|metric| metric.unit).unwrap_or_default();
    let value = |place: &CellKey| {
        let values: Vec<f64> = analyse::metric_values(runs, place, key).into_iter().map(|(_, value)| value).collect();
        expect::format_number(stats::median(&values))
    };
    let base = expect.ratio_to.as_ref().map(|to| CellKey { treatment: to.clone(), ..place.clone() });
    let text = match base {
        Some(base) => {
            let ratio = expect::format_number(analyse::ratio_between(runs, place, &base, key).median);
            format!("{} → {} {unit}, {ratio} x", value(&base), value(place))
        }
        None if expect.ratio_to_level.is_empty() => ours.clone(),
        None => format!("{} {unit}, {ours}", value(place)),
    };
    Some(format!("{}: {text}", place.treatment))
}

fn metric_key<'a>(experiment: &'a Experiment, expect: &'a Expectation) -> &'a str {
    expect.metric.as_deref().unwrap_or(&experiment.metric.key)
}

fn is_ekiden(experiment: &Experiment, place: &CellKey) -> bool {
    let cell = experiment.cells.iter().find(|cell| cell.key == *place);
    cell.is_some_and(|cell| cell.spec.treatment.program == RelayProgram::Ekiden)
}

/// The levels of a cell in the order of the factors, each with the name of its factor.
fn cell_name(experiment: &Experiment, place: &CellKey) -> String {
    let level = |name: &String| place.levels.get(name).map(|level| format!("{name} {level}"));
    experiment.factors.iter().filter_map(|factor| level(&factor.name)).collect::<Vec<_>>().join(", ")
}
