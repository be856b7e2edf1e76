//! The gain by relays, compared with the published gain and with the arithmetic limit.
//!
//! Where the base is not better here than published, the gain must be at least the published gain. Where the base is
//! better, as with present-day congestion control, less can be gained; the treatment must then reach a share of the
//! [`limit`] of its slowest section.

use serde::{Deserialize, Serialize};

use super::{analyse, expect, limit};
use crate::experiment::collect::metric;
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, GainRow, Run, Summary};
use crate::experiment::spec::file::Expectation;
use crate::experiment::spec::read::{CellKey, Experiment};
use crate::stats;

/// Published figures at the levels of up to two factors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedGrid {
    /// The factor whose levels are the rows, in the order of the levels. `None`: there is one row.
    pub rows: Option<String>,
    /// The factor whose levels are the columns, in the order of the levels. `None`: there is one column.
    pub columns: Option<String>,
    /// The published figures without relays, by row and column.
    pub without: Vec<Vec<f64>>,
    /// The published figures with relays, by row and column.
    pub with: Vec<Vec<f64>>,
}

/// Validates the gains of an expectation.
pub fn validate(experiment: &Experiment, expectation: &Expectation, mut report: impl FnMut(String)) {
    let Some(grid) = &expectation.gain else {
        if expectation.of_limit.or(expectation.ceiling.as_ref().map(|_| 0.0)).is_some() {
            report("of_limit, ceiling: require gain".into());
        }
        return;
    };
    if expectation.ratio_to.is_none() || expectation.of_limit.is_none() {
        report("gain: requires ratio_to and of_limit".into());
    }
    for (what, factor, count) in
        [("rows", &grid.rows, grid.without.len()), ("columns", &grid.columns, column_count(grid))]
    {
        let levels = factor.as_ref().map_or(Some(1), |name| level_count(experiment, name));
        if levels != Some(count) {
            report(format!("gain: {what}: expected one for each level of the factor, or one without a factor"));
        }
    }
    let has_same_shape = [&grid.without, &grid.with]
        .iter()
        .all(|rows| rows.len() == grid.without.len() && rows.iter().all(|row| row.len() == column_count(grid)));
    if !has_same_shape {
        report("gain: without, with: expected the same number of rows, all of the same length".into());
    }
    if metric::rate_in_metric(experiment.metric_key(expectation), 0.0).is_none() {
        report("gain: requires a metric that is a rate".into());
    }
    let unknown = experiment
        .cells
        .iter()
        .find(|cell| expect::applies_to(expectation, &cell.key) && limit::throughput_limit(&cell.spec).is_none());
    if let Some(cell) = unknown {
        report(format!(
            "gain: no limit is known for {}: a sender on a link with loss needs congestion = \"reno\" or \"cubic\"",
            cell.key
        ));
    }
}

fn column_count(grid: &PublishedGrid) -> usize {
    grid.without.first().map_or(0, Vec::len)
}

fn level_count(experiment: &Experiment, factor: &str) -> Option<usize> {
    experiment.factors.iter().find(|other| other.name == factor).map(|factor| factor.levels.len())
}

/// Returns a row for each expected gain and matching cell of a size.
#[must_use]
pub fn gain_rows(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<GainRow> {
    let expectations = experiment.expectations.iter().filter(|expectation| expectation.gain.is_some());
    expectations.flat_map(|expectation| rows_of_expectation(experiment, full, runs, expectation)).collect()
}

/// Returns a row for each cell of a size that matches the expectation.
#[must_use]
pub fn rows_of_expectation(
    experiment: &Experiment,
    full: bool,
    runs: &[Run],
    expectation: &Expectation,
) -> Vec<GainRow> {
    let cell_keys = expect::matching_keys(experiment, full, expectation);
    cell_keys.into_iter().filter_map(|cell_key| gain_row(experiment, runs, expectation, cell_key)).collect()
}

fn gain_row(experiment: &Experiment, runs: &[Run], expectation: &Expectation, cell_key: &CellKey) -> Option<GainRow> {
    let (grid, to, of_limit) = (expectation.gain.as_ref()?, expectation.ratio_to.as_ref()?, expectation.of_limit?);
    let key = experiment.metric_key(expectation);
    let level = |factor: &Option<String>| {
        let Some(name) = factor else { return Some(0) };
        let factor = experiment.factors.iter().find(|other| other.name == *name)?;
        factor.levels.iter().position(|level| cell_key.levels.get(name) == Some(&level.name))
    };
    let (row, column) = (level(&grid.rows)?, level(&grid.columns)?);
    let spec = experiment.cells.iter().find(|cell| cell.key == *cell_key).map(|cell| &cell.spec)?;
    let limit = limit::throughput_limit(spec)?;
    let summary = |treatment: &String| -> Summary {
        let cell_key = CellKey { levels: cell_key.levels.clone(), treatment: treatment.clone() };
        stats::summarise(&analyse::cell_values(runs, &cell_key, key))
    };
    let mut result = GainRow {
        levels: cell_key.levels.clone(),
        treatment: cell_key.treatment.clone(),
        to: to.clone(),
        published: [*grid.without.get(row)?.get(column)?, *grid.with.get(row)?.get(column)?],
        base: summary(to),
        measured: summary(&cell_key.treatment),
        gain: analyse::ratio_to_treatment(runs, cell_key, to, key),
        limit: metric::rate_in_metric(key, limit.bytes_per_second)?,
        bound: limit.bound,
        of_limit,
        ceiling: expectation.ceiling.as_ref().map(summary).filter(|ceiling| ceiling.n > 0),
        verdict: ExpectationVerdict::Unknown,
    };
    result.verdict = gain_verdict(&result);
    Some(result)
}

fn gain_verdict(row: &GainRow) -> ExpectationVerdict {
    let holds = if row.is_judged_by_limit() {
        row.measured.median >= row.of_limit * row.limit
    } else {
        row.gain.median >= row.published_gain()
    };
    expect::verdict(row.gain.n > 0, holds)
}

/// Returns the outcome of an expected gain, as text.
#[must_use]
pub fn gain_outcome(experiment: &Experiment, expectation: &Expectation, row: &GainRow) -> ExpectationOutcome {
    let number = expect::format_number;
    let unit = metric::by_name(experiment.metric_key(expectation)).map(|metric| metric.unit).unwrap_or_default();
    let cell_key = CellKey { levels: row.levels.clone(), treatment: row.treatment.clone() };
    let (criterion, figure, shown_unit) = if row.is_judged_by_limit() {
        let criterion = format!("at least {} of the limit {} {unit} ({})", row.of_limit, number(row.limit), row.bound);
        (criterion, &row.measured, unit.clone())
    } else {
        (format!("at least {} x {}", number(row.published_gain()), row.to), &row.gain, format!("x {}", row.to))
    };
    let [without, with] = row.published.map(number);
    let is_known = row.verdict != ExpectationVerdict::Unknown;
    let base_remark = format!("{} is better here than published: {} {unit}", row.to, number(row.base.median));
    let ceiling =
        row.ceiling.map(|ceiling| format!("the slowest section alone carries {} {unit}", number(ceiling.median)));
    let remarks: Vec<String> = row
        .is_judged_by_limit()
        .then_some(base_remark)
        .into_iter()
        .chain(ceiling)
        .chain(expectation.remark.clone())
        .collect();
    ExpectationOutcome {
        expected: format!("{cell_key}: {criterion}"),
        source: expectation.source.clone().unwrap_or_else(|| expect::OWN_SOURCE.into()),
        published: Some(format!("{without} → {with} {unit}, {} x", number(row.published_gain()))),
        ours: is_known.then(|| format!("{} {shown_unit}", number(figure.median))),
        interval: expect::format_interval(figure).filter(|_| is_known),
        verdict: row.verdict,
        remark: (!remarks.is_empty()).then(|| remarks.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::judge::expect::outcomes;

    /// A client section of 0 or 1 ms in each direction, with or without loss, and a line with a round trip of 28.6 ms.
    const PAIR: &str = r#"
lab = 1
name = "pair"
title = "A pair"
[host.client]
congestion = "reno"
window = "64KiB"
[host.relay]
forward = true
[host.server]
[link.lan]
ends = ["client", "relay"]
[link.line]
ends = ["relay", "server"]
delay = "14.3ms"
rate = "1Gbit/s"
count = "wire"
[workload]
protocol = "stream"
time = { quick = "1s", full = "1s" }
chain = ["relay"]
[treatment.direct]
program = "direct"
[treatment.section]
program = "direct"
set = { "link.line.delay" = "0ms" }
[treatment.pair]
program = "haproxy"
transparent = true
[experiment]
treatments = ["direct", "section", "pair"]
metric = "mbit_s"
blocks = { quick = 1, full = 1 }
[[factor]]
name = "loss"
levels = [{ name = "0" }, { name = "0.1%", set = { "link.lan.loss" = { model = "bernoulli", p = 0.001 } } }]
[[factor]]
name = "delay"
levels = [{ name = "0ms" }, { name = "1ms", set = { "link.lan.delay" = "1ms" } }]
[[expect]]
treatment = "pair"
ratio_to = "direct"
of_limit = 0.9
ceiling = "section"
source = "them"
[expect.gain]
rows = "loss"
columns = "delay"
without = [[18.3, 16.1], [7.62, 6.85]]
with = [[806, 201], [472, 133]]
"#;

    fn run([treatment, loss, delay]: [&str; 3], mbit_s: f64) -> Run {
        Run {
            treatment: treatment.to_owned(),
            levels: [("loss", loss), ("delay", delay)]
                .map(|(factor, level)| (factor.to_owned(), level.to_owned()))
                .into(),
            metrics: [("mbit_s".to_owned(), mbit_s)].into(),
            ..Run::default()
        }
    }

    /// The row and the outcome at one combination of levels, for a direct and a relayed rate in Mbit/s.
    fn judged(loss: &str, delay: &str, [direct, pair]: [f64; 2]) -> (GainRow, ExpectationOutcome) {
        let experiment = Experiment::parse("pair", PAIR).unwrap();
        let runs = [
            run(["direct", loss, delay], direct),
            run(["pair", loss, delay], pair),
            run(["section", loss, delay], 950.0),
        ];
        let row = gain_rows(&experiment, true, &runs)
            .into_iter()
            .find(|row| row.verdict != ExpectationVerdict::Unknown)
            .unwrap();
        let outcome =
            outcomes(&experiment, true, &runs).into_iter().find(|found| found.verdict != ExpectationVerdict::Unknown);
        (row, outcome.unwrap())
    }

    #[test]
    fn published_gain_is_the_bound_if_the_base_is_not_better() {
        // 806 / 18.3 is 44.04.
        let (row, outcome) = judged("0", "0ms", [18.0, 794.0]);
        assert_eq!((row.verdict, row.published), (ExpectationVerdict::Met, [18.3, 806.0]));
        assert_eq!(outcome.expected, "pair, 0ms, 0: at least 44.0 x direct");
        assert_eq!(outcome.published.as_deref(), Some("18.3 → 806 Mbit/s, 44.0 x"));
        assert_eq!(outcome.ours.as_deref(), Some("44.1 x direct"));
        assert_eq!(outcome.interval.as_deref(), Some("44.1 to 44.1, range of 1"));
        assert_eq!(outcome.remark.as_deref(), Some("the slowest section alone carries 950 Mbit/s"));
        assert_eq!(judged("0", "0ms", [18.0, 791.0]).0.verdict, ExpectationVerdict::Missed);
    }

    #[test]
    fn share_of_the_limit_is_the_bound_if_the_base_is_better() {
        // 65,535 bytes in 2 ms are 262.1 Mbit/s; nine tenths of it 235.9.
        let (row, outcome) = judged("0", "1ms", [17.0, 236.0]);
        assert_eq!((row.verdict, row.bound.as_str()), (ExpectationVerdict::Met, "window, client → relay"));
        assert_eq!(outcome.expected, "pair, 1ms, 0: at least 0.9 of the limit 262 Mbit/s (window, client → relay)");
        assert_eq!(outcome.ours.as_deref(), Some("236 Mbit/s"));
        assert!(outcome.remark.unwrap().starts_with("direct is better here than published: 17.0 Mbit/s"));
        assert_eq!(judged("0", "1ms", [17.0, 235.0]).0.verdict, ExpectationVerdict::Missed);
        // 1.22 / sqrt(0.001) packets of 1460 bytes in 2 ms are 225.3 Mbit/s.
        assert_eq!(judged("0.1%", "1ms", [14.0, 203.0]).0.verdict, ExpectationVerdict::Met);
    }

    #[test]
    fn gains_are_unknown_without_runs() {
        let experiment = Experiment::parse("pair", PAIR).unwrap();
        let rows = gain_rows(&experiment, true, &[run(["direct", "0", "0ms"], 18.0)]);
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.verdict == ExpectationVerdict::Unknown && row.ceiling.is_none()));
    }

    #[test]
    fn invalid_gains_are_rejected() {
        let wrong = [
            ("of_limit = 0.9\n", "", "gain: requires ratio_to and of_limit"),
            ("rows = \"loss\"\n", "", "gain: rows: expected one for each level of the factor"),
            ("[806, 201]", "[806]", "gain: without, with: expected the same number of rows, all of the same length"),
            ("metric = \"mbit_s\"", "metric = \"seconds\"", "gain: requires a metric that is a rate"),
            ("congestion = \"reno\"", "congestion = \"bbr\"", "no limit is known for pair, 0ms, 0.1%"),
            ("ceiling = \"section\"", "ceiling = \"sky\"", "there is no treatment \"sky\""),
        ];
        for (from, to, wanted) in wrong {
            let mistakes = Experiment::parse("pair", &PAIR.replace(from, to)).unwrap_err();
            assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:?}");
        }
    }
}
