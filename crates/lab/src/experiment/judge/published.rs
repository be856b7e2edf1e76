//! Published figures beside those of present-day programs and of ekiden.
//!
//! Each expectation with a publication as its source gives a row for each combination of levels. The treatment in its
//! `beside` is judged by the same expectation at the same levels.

use serde::{Deserialize, Serialize};

use super::{analyse, expect};
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Run};
use crate::experiment::spec::factor::LevelNames;
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use crate::experiment::spec::treatment::RelayProgram;
use crate::stats;

/// A published figure, and the measured figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRow {
    /// The levels of the cell, or the claim as text.
    pub cell: String,
    /// The publication, with the number of the table or figure.
    pub source: String,
    /// The published figure or claim as text.
    pub published: String,
    /// The figure of the published program, or of its successor, with its name.
    pub today: Option<String>,
    /// The figure of ekiden, with the name of the treatment.
    pub ekiden: Option<String>,
    /// The figure of ekiden divided by that of the present-day program, median over the blocks.
    pub ratio: Option<f64>,
    /// Whether the treatment of the expectation meets it.
    pub verdict: ExpectationVerdict,
    /// The remark of the outcome, such as the reason why the figures differ.
    pub why: Option<String>,
}

/// Returns the rows of an experiment, from all runs of the full size.
#[must_use]
pub fn published_rows(experiment: &Experiment, runs: &[Run]) -> Vec<PublishedRow> {
    let published = experiment.expectations.iter().filter(|expect| is_published(expect));
    published.flat_map(|expect| rows_of(experiment, runs, expect)).collect()
}

/// Whether an expectation has a publication as its source, and the published figure or claim.
#[must_use]
pub fn is_published(expectation: &Expectation) -> bool {
    let has_figure = expectation.published.is_some() || expectation.published_ratio.is_some();
    expectation.source.is_some() && (has_figure || expectation.gain.is_some() || expectation.is.is_some())
}

fn rows_of(experiment: &Experiment, runs: &[Run], expectation: &Expectation) -> Vec<PublishedRow> {
    if expectation.maximum_over.is_some() {
        let outcomes = expect::outcomes_of(experiment, true, runs, expectation);
        return outcomes.into_iter().map(|outcome| row_of_claim(&expectation.treatment, outcome)).collect();
    }
    let cell_keys = expect::matching_keys(experiment, true, expectation);
    cell_keys.into_iter().filter_map(|cell_key| row_of_cell(experiment, runs, expectation, cell_key)).collect()
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

fn row_of_cell(
    experiment: &Experiment,
    runs: &[Run],
    expectation: &Expectation,
    cell_key: &CellKey,
) -> Option<PublishedRow> {
    let outcome_at = |cell_key: &CellKey| outcome_at(experiment, runs, expectation, cell_key);
    let own_outcome = outcome_at(cell_key)?;
    let text = |cell_key: &CellKey, outcome: &ExpectationOutcome| {
        figure_text(experiment, runs, expectation, cell_key, outcome)
    };
    let other =
        expectation.beside.as_ref().map(|treatment| CellKey { treatment: treatment.clone(), ..cell_key.clone() });
    let other = other.and_then(|cell_key| Some((outcome_at(&cell_key)?, cell_key)));
    let mut figures =
        [text(cell_key, &own_outcome), other.as_ref().and_then(|(outcome, cell_key)| text(cell_key, outcome))];
    let key = experiment.metric_key(expectation);
    let mut cell_keys = [Some(cell_key), other.as_ref().map(|(_, cell_key)| cell_key)];
    if is_ekiden(experiment, cell_key) {
        figures.reverse();
        cell_keys.reverse();
    }
    let ratio = match cell_keys {
        [Some(today), Some(ekiden)] => Some(analyse::ratio_between(runs, ekiden, today, key)),
        _ => None,
    };
    let [today, ekiden] = figures;
    Some(PublishedRow {
        cell: cell_name(experiment, cell_key),
        published: own_outcome.published?,
        source: own_outcome.source,
        today,
        ekiden,
        ratio: ratio.filter(|ratio| ratio.n > 0).map(|ratio| ratio.median),
        verdict: own_outcome.verdict,
        why: own_outcome.remark,
    })
}

/// Returns the outcome of an expectation for one cell, which may be a cell of another treatment than that of the
/// expectation.
fn outcome_at(
    experiment: &Experiment,
    runs: &[Run],
    expectation: &Expectation,
    cell_key: &CellKey,
) -> Option<ExpectationOutcome> {
    let levels =
        cell_key.levels.iter().map(|(factor, level)| (factor.clone(), LevelNames::One(level.clone()))).collect();
    let narrowed = Expectation { levels, treatment: cell_key.treatment.clone(), ..expectation.clone() };
    expect::outcomes_of(experiment, true, runs, &narrowed).into_iter().next()
}

/// Returns the figure of a cell as text, with the name of its treatment: the metric, and the ratio if the expectation
/// has one.
fn figure_text(
    experiment: &Experiment,
    runs: &[Run],
    expectation: &Expectation,
    cell_key: &CellKey,
    outcome: &ExpectationOutcome,
) -> Option<String> {
    let ours = outcome.ours.as_ref()?;
    let key = experiment.metric_key(expectation);
    let unit = metric::by_name(key).map(|metric| metric.unit).unwrap_or_default();
    let value = |cell_key: &CellKey| expect::format_number(stats::median(&analyse::cell_values(runs, cell_key, key)));
    let base = expectation.ratio_to.as_ref().map(|to| CellKey { treatment: to.clone(), ..cell_key.clone() });
    let text = match base {
        Some(base) => {
            let ratio = analyse::ratio_between(runs, cell_key, &base, key);
            // There is no ratio if the base is 0 in every block.
            let ratio = (ratio.n > 0).then(|| format!(", {} x", expect::format_number(ratio.median)));
            format!("{} → {} {unit}{}", value(&base), value(cell_key), ratio.unwrap_or_default())
        }
        None if expectation.ratio_to_level.is_empty() => ours.clone(),
        None => format!("{} {unit}, {ours}", value(cell_key)),
    };
    Some(format!("{}: {text}", cell_key.treatment))
}

fn is_ekiden(experiment: &Experiment, cell_key: &CellKey) -> bool {
    let cell = experiment.cells.iter().find(|cell| cell.key == *cell_key);
    cell.is_some_and(|cell| cell.spec.treatment.program == RelayProgram::Ekiden)
}

/// Returns the levels of a cell in the order of the factors, each with the name of its factor.
fn cell_name(experiment: &Experiment, cell_key: &CellKey) -> String {
    let level = |name: &String| cell_key.levels.get(name).map(|level| format!("{name} {level}"));
    experiment.factors.iter().filter_map(|factor| level(&factor.name)).collect::<Vec<_>>().join(", ")
}
