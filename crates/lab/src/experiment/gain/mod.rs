//! The gain by relays, beside a published one, and beside what arithmetic allows.
//!
//! Where the base is no better here than it was when it was published, the gain has to be at least the published one. Where
//! it is better, as with today's congestion control, there is less to gain: then the treatment has to reach a share of the
//! [`limit`] of its slowest section.

use serde::{Deserialize, Serialize};

use crate::experiment::file::Expectation;
use crate::experiment::read::{CellKey, Experiment};
use crate::experiment::results::{ExpectationOutcome, ExpectationVerdict, GainRow, Run, Summary};
use crate::experiment::{analyse, expect, limit, metric};
use crate::stats;

/// Published figures at the levels of up to two factors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedGrid {
    /// The factor whose levels the rows are, in their order. None: there is one row.
    pub rows: Option<String>,
    /// The factor whose levels the columns are. None: there is one column.
    pub columns: Option<String>,
    /// Without relays.
    pub without: Vec<Vec<f64>>,
    /// With relays.
    pub with: Vec<Vec<f64>>,
}

/// Finds what is wrong with the gains that an expectation names.
pub fn validate(experiment: &Experiment, expect: &Expectation, mut wrong: impl FnMut(String)) {
    let Some(grid) = &expect.gain else {
        if expect.of_limit.or(expect.ceiling.as_ref().map(|_| 0.0)).is_some() {
            wrong("of_limit and ceiling: with gain only".into());
        }
        return;
    };
    if expect.ratio_to.is_none() || expect.of_limit.is_none() {
        wrong("gain: with ratio_to, and of_limit for where that is better here than published".into());
    }
    for (what, factor, count) in
        [("rows", &grid.rows, grid.without.len()), ("columns", &grid.columns, column_count(grid))]
    {
        let levels = factor.as_ref().map_or(Some(1), |name| level_count(experiment, name));
        if levels != Some(count) {
            wrong(format!("gain: {what}: as many as the factor has levels, or one without a factor"));
        }
    }
    let same_shape = [&grid.without, &grid.with]
        .iter()
        .all(|rows| rows.len() == grid.without.len() && rows.iter().all(|row| row.len() == column_count(grid)));
    if !same_shape {
        wrong("gain: without and with: rows of the same length, and as many".into());
    }
    if metric::rate_in_metric(metric_key(experiment, expect), 0.0).is_none() {
        wrong("gain: of a rate only".into());
    }
    let unknown = experiment
        .cells
        .iter()
        .find(|cell| expect::applies_to(expect, &cell.key) && limit::throughput_limit(&cell.spec).is_none());
    if let Some(cell) = unknown {
        wrong(format!("gain: no limit is known for {}: a sender on a link with loss pins reno or cubic", cell.key));
    }
}

fn column_count(grid: &PublishedGrid) -> usize {
    grid.without.first().map_or(0, Vec::len)
}

fn level_count(experiment: &Experiment, factor: &str) -> Option<usize> {
    experiment.factors.iter().find(|other| other.name == factor).map(|factor| factor.levels.len())
}

fn metric_key<'a>(experiment: &'a Experiment, expect: &'a Expectation) -> &'a str {
    expect.metric.as_deref().unwrap_or(&experiment.metric.key)
}

/// A row for every gain that is expected of what is run in a size.
#[must_use]
pub fn gain_rows(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<GainRow> {
    let expects = experiment.expectations.iter().filter(|expect| expect.gain.is_some());
    expects.flat_map(|expect| rows_of_expectation(experiment, full, runs, expect)).collect()
}

/// A row for every place that one expectation is about.
#[must_use]
pub fn rows_of_expectation(experiment: &Experiment, full: bool, runs: &[Run], expect: &Expectation) -> Vec<GainRow> {
    let places = expect::matching_keys(experiment, full, expect);
    places.into_iter().filter_map(|place| gain_row(experiment, runs, expect, place)).collect()
}

fn gain_row(experiment: &Experiment, runs: &[Run], expect: &Expectation, place: &CellKey) -> Option<GainRow> {
    let (grid, to, of_limit) = (expect.gain.as_ref()?, expect.ratio_to.as_ref()?, expect.of_limit?);
    let key = metric_key(experiment, expect);
    let level = |factor: &Option<String>| {
        let Some(name) = factor else { return Some(0) };
        let factor = experiment.factors.iter().find(|other| other.name == *name)?;
        factor.levels.iter().position(|level| place.levels.get(name) == Some(&level.name))
    };
    let (row, column) = (level(&grid.rows)?, level(&grid.columns)?);
    let spec = experiment.cells.iter().find(|cell| cell.key == *place).map(|cell| &cell.spec)?;
    let limit = limit::throughput_limit(spec)?;
    let summary = |treatment: &String| -> Summary {
        let place = CellKey { levels: place.levels.clone(), treatment: treatment.clone() };
        let values = analyse::metric_values(runs, &place, key).into_iter().map(|(_, value)| value);
        stats::summarise(&values.collect::<Vec<_>>())
    };
    let mut found = GainRow {
        levels: place.levels.clone(),
        treatment: place.treatment.clone(),
        to: to.clone(),
        published: [*grid.without.get(row)?.get(column)?, *grid.with.get(row)?.get(column)?],
        base: summary(to),
        measured: summary(&place.treatment),
        gain: analyse::ratio_to_treatment(runs, place, to, key),
        limit: metric::rate_in_metric(key, limit.bytes_per_second)?,
        bound: limit.bound,
        of_limit,
        ceiling: expect.ceiling.as_ref().map(summary).filter(|ceiling| ceiling.n > 0),
        verdict: ExpectationVerdict::Unknown,
    };
    found.verdict = gain_verdict(&found);
    Some(found)
}

fn gain_verdict(row: &GainRow) -> ExpectationVerdict {
    let holds = if row.is_judged_by_limit() {
        row.measured.median >= row.of_limit * row.limit
    } else {
        row.gain.median >= row.published_gain()
    };
    match (row.gain.n > 0, holds) {
        (false, _) => ExpectationVerdict::Unknown,
        (true, true) => ExpectationVerdict::Met,
        (true, false) => ExpectationVerdict::Missed,
    }
}

/// What came of an expected gain, in words.
#[must_use]
pub fn gain_outcome(experiment: &Experiment, expect: &Expectation, row: &GainRow) -> ExpectationOutcome {
    let number = expect::format_number;
    let unit = metric::by_name(metric_key(experiment, expect)).map(|metric| metric.unit).unwrap_or_default();
    let place = CellKey { levels: row.levels.clone(), treatment: row.treatment.clone() };
    let (bar, figure, shown) = if row.is_judged_by_limit() {
        let bar = format!("at least {} of the limit {} {unit} ({})", row.of_limit, number(row.limit), row.bound);
        (bar, &row.measured, unit.clone())
    } else {
        (format!("at least {} x {}", number(row.published_gain()), row.to), &row.gain, format!("x {}", row.to))
    };
    let [without, with] = row.published.map(number);
    let known = row.verdict != ExpectationVerdict::Unknown;
    let better = format!("{} is better here than published: {} {unit}", row.to, number(row.base.median));
    let ceiling =
        row.ceiling.map(|ceiling| format!("the slowest section alone carries {} {unit}", number(ceiling.median)));
    let remarks: Vec<String> =
        row.is_judged_by_limit().then_some(better).into_iter().chain(ceiling).chain(expect.remark.clone()).collect();
    ExpectationOutcome {
        expected: format!("{place}: {bar}"),
        source: expect.source.clone().unwrap_or_else(|| expect::OWN_SOURCE.into()),
        published: Some(format!("{without} → {with} {unit}, {} x", number(row.published_gain()))),
        ours: known.then(|| format!("{} {shown}", number(figure.median))),
        interval: known.then(|| format!("{} to {}", number(figure.low), number(figure.high))),
        verdict: row.verdict,
        remark: (!remarks.is_empty()).then(|| remarks.join("; ")),
    }
}

#[cfg(test)]
mod tests;
