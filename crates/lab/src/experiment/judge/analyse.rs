//! Analysis of runs: medians, and ratios paired within blocks.

use std::collections::BTreeSet;

use super::expect;
use super::floor::{self, ArithmeticFloor};
use super::gain;
use super::regret;
use crate::experiment::collect::metric::FIRST_BYTE;
use crate::experiment::collect::results::{
    CellSummary, CheckRow, ExtraMetricCells, FloorRow, Manifest, Metric, Results, Run, Summary,
};
use crate::experiment::spec::read::{self, CellKey, Experiment};
use crate::stats;
use crate::warnings::{MAX_INTERVAL_WIDTH, Warning};

/// Returns the values of a metric from the valid runs of a cell, with their blocks.
#[must_use]
pub fn metric_values(runs: &[Run], cell_key: &CellKey, metric: &str) -> Vec<(u32, f64)> {
    let is_in_cell =
        |run: &&Run| run.invalid.is_none() && run.treatment == cell_key.treatment && run.levels == cell_key.levels;
    let value = |run: &Run| run.metrics.get(metric).map(|value| (run.block, *value));
    runs.iter().filter(is_in_cell).filter_map(value).collect()
}

/// Returns the values of a metric from the valid runs of a cell.
#[must_use]
pub fn cell_values(runs: &[Run], cell_key: &CellKey, metric: &str) -> Vec<f64> {
    metric_values(runs, cell_key, metric).into_iter().map(|(_, value)| value).collect()
}

/// Summarises the ratio of a cell to the cell of the treatment `to` at the same levels, paired within blocks.
#[must_use]
pub fn ratio_to_treatment(runs: &[Run], cell_key: &CellKey, to: &str, metric: &str) -> Summary {
    ratio_between(runs, cell_key, &CellKey { levels: cell_key.levels.clone(), treatment: to.into() }, metric)
}

/// Summarises the ratio of a cell to `base`, paired within blocks.
#[must_use]
pub fn ratio_between(runs: &[Run], cell_key: &CellKey, base: &CellKey, metric: &str) -> Summary {
    stats::summarise(&stats::ratios(&metric_values(runs, cell_key, metric), &metric_values(runs, base, metric)))
}

/// Returns the ratio of a new run to the run of the first treatment in the same block. `None` for runs of the first
/// treatment, or without a valid base run so far.
#[must_use]
pub fn ratio_so_far(experiment: &Experiment, runs: &[Run], run: &Run) -> Option<f64> {
    let base = experiment.settings.treatments.first().filter(|base| **base != run.treatment)?;
    let base = CellKey { levels: run.levels.clone(), treatment: base.clone() };
    let key = &experiment.metric.key;
    let bases = metric_values(runs, &base, key);
    stats::ratios(&[(run.block, *run.metrics.get(key)?)], &bases).first().copied()
}

/// Builds the results of an experiment: summaries, floors, gains, outcomes of expectations, and warnings.
#[must_use]
pub fn build_results(experiment: &Experiment, manifest: &Manifest, runs: &[Run], checks: &[CheckRow]) -> Results {
    let full = manifest.size == "full";
    let runs = &regret::with_regret(experiment, runs)[..];
    let cells = |metric: &Metric| -> Vec<CellSummary> {
        experiment.selected_cells(full).map(|cell| cell_summary(experiment, &cell.key, runs, &metric.key)).collect()
    };
    let also = experiment
        .extra_metrics
        .iter()
        .map(|metric| ExtraMetricCells { metric: metric.clone(), cells: cells(metric) })
        .collect();
    let cells = cells(&experiment.metric);
    Results {
        also,
        floors: floor_rows(experiment, full, runs),
        gains: gain::gain_rows(experiment, full, runs),
        outcomes: expect::outcomes(experiment, full, runs),
        warnings: collect_warnings(experiment, full, &cells, runs, checks),
        manifest: manifest.clone(),
        runs: runs.to_vec(),
        checks: checks.to_vec(),
        cells,
    }
}

/// Returns the number of runs of which all attempts were invalid.
#[must_use]
pub fn missing_runs(runs: &[Run]) -> usize {
    let key = |run: &Run| (run.block, run.treatment.clone(), run.levels.clone());
    let valid: BTreeSet<_> = runs.iter().filter(|run| run.invalid.is_none()).map(key).collect();
    let invalid: BTreeSet<_> = runs.iter().filter(|run| run.invalid.is_some()).map(key).collect();
    invalid.difference(&valid).count()
}

fn cell_summary(experiment: &Experiment, cell_key: &CellKey, runs: &[Run], key: &str) -> CellSummary {
    let base = experiment.settings.treatments.first().filter(|base| **base != cell_key.treatment);
    let invalid =
        |run: &&Run| run.invalid.is_some() && run.treatment == cell_key.treatment && run.levels == cell_key.levels;
    CellSummary {
        levels: cell_key.levels.clone(),
        treatment: cell_key.treatment.clone(),
        summary: stats::summarise(&cell_values(runs, cell_key, key)),
        ratio: base.map(|base| ratio_to_treatment(runs, cell_key, base, key)),
        invalid: u32::try_from(runs.iter().filter(invalid).count()).unwrap_or(u32::MAX),
    }
}

/// Returns the arithmetic floors of the first byte with the measurements. Empty unless the metric of the experiment is
/// the time to the first byte.
fn floor_rows(experiment: &Experiment, full: bool, runs: &[Run]) -> Vec<FloorRow> {
    let row = |cell: &read::ExperimentCell| {
        let ArithmeticFloor { formula, milliseconds } = floor::first_byte_floor(&cell.spec)?;
        Some(FloorRow {
            levels: cell.key.levels.clone(),
            treatment: cell.key.treatment.clone(),
            formula,
            floor: milliseconds,
            measured: stats::summarise(&cell_values(runs, &cell.key, FIRST_BYTE)),
        })
    };
    let is_first_byte = experiment.metric.key == FIRST_BYTE;
    experiment.selected_cells(full).filter(|_| is_first_byte).filter_map(row).collect()
}

fn check_warning(row: &CheckRow) -> Warning {
    let what = [&row.link, &row.direction, &row.property].map(String::as_str).join(" ");
    Warning::LinkCheckFailed { what, measured: row.measured.clone(), wanted: row.wanted.clone() }
}

fn collect_warnings(
    experiment: &Experiment,
    full: bool,
    cells: &[CellSummary],
    runs: &[Run],
    checks: &[CheckRow],
) -> Vec<String> {
    let mut warnings: Vec<Warning> = checks.iter().filter(|row| !row.pass).map(check_warning).collect();
    let fewest = cells.iter().map(|cell| cell.summary).filter(|summary| summary.n > 0).min_by_key(|summary| summary.n);
    if let Some(few) = fewest.filter(|few| few.confidence < 0.95) {
        warnings.push(Warning::FewBlocks { blocks: few.n });
    }
    for cell in cells {
        let spread = stats::relative_interval_width(&cell.summary);
        if spread > MAX_INTERVAL_WIDTH {
            let cell_key = CellKey { levels: cell.levels.clone(), treatment: cell.treatment.clone() };
            warnings.push(Warning::WideInterval { place: cell_key.to_string(), spread });
        }
    }
    let reasons: Vec<&String> = runs.iter().filter_map(|run| run.invalid.as_ref()).collect();
    if let Some(first) = reasons.first() {
        warnings.push(Warning::RunsRepeated { runs: reasons.len(), reason: (*first).clone() });
    }
    let planned = |cell_key: &CellKey| full || experiment.is_quick(&cell_key.levels);
    let skipped = experiment.skipped.iter().filter(|(cell_key, _)| planned(cell_key));
    warnings.extend(
        skipped.map(|(cell_key, reason)| Warning::CellSkipped { place: cell_key.to_string(), reason: reason.clone() }),
    );
    warnings.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::examples_for_tests::{TEXT, small_experiment};

    fn place(treatment: &str) -> CellKey {
        let levels = [("delay", "short"), ("protocol", "http")].map(|(f, l)| (f.to_owned(), l.to_owned()));
        CellKey { levels: levels.into(), treatment: treatment.into() }
    }

    fn run(block: u32, treatment: &str, value: Option<f64>) -> Run {
        let metrics = value.map(|value| ("mb_s".to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>();
        let invalid = value.is_none().then(|| "it died".to_owned());
        let place = place(treatment);
        Run { block, levels: place.levels, treatment: place.treatment, metrics, invalid, ..Run::default() }
    }

    #[test]
    fn ratios_pair_valid_runs_of_the_same_block() {
        let runs = [
            run(0, "direct", Some(1.0)),
            run(0, "dante", Some(2.0)),
            run(1, "direct", Some(10.0)),
            run(1, "dante", Some(30.0)),
            run(2, "direct", None),
            run(2, "dante", Some(99.0)),
        ];
        let ratio = ratio_to_treatment(&runs, &place("dante"), "direct", "mb_s");
        assert_eq!((ratio.n, ratio.min, ratio.max), (2, 2.0, 3.0));
        assert_eq!(metric_values(&runs, &place("dante"), "mb_s").len(), 3);
    }

    #[test]
    fn results_have_every_cell_of_the_size_and_warnings() {
        let experiment = small_experiment("").unwrap();
        let runs =
            [run(0, "direct", Some(1.0)), run(0, "dante", None), run(0, "dante", Some(2.0)), run(1, "dante", None)];
        let manifest = Manifest { size: "quick".into(), ..Manifest::default() };
        let results = build_results(&experiment, &manifest, &runs, &[]);
        assert_eq!(results.cells.len(), 5);
        let dante = results.cells.iter().find(|cell| cell.treatment == "dante" && cell.summary.n > 0).unwrap();
        assert_eq!((dante.invalid, dante.ratio.unwrap().median), (2, 2.0));
        assert!(results.cells[0].ratio.is_none());
        let warned = |part: &str| results.warnings.iter().any(|warning| warning.contains(part));
        assert!(warned("blocks are too few") && warned("because: it died") && warned("haproxy, short, ftp is not run"));
        assert!(!warned("long"), "cells outside the size cause no warning: {:?}", results.warnings);
        assert_eq!(missing_runs(&runs), 1);
    }

    #[test]
    fn extra_metrics_have_cells_and_the_first_byte_has_floors() {
        let text = TEXT.replace("blocks =", "metric = \"first_byte_ms\"\nalso = [\"completion_ms\"]\nblocks =");
        let experiment = Experiment::parse("small", &text).unwrap();
        let measured = |block, treatment, first_byte| Run {
            metrics: [("first_byte_ms".to_owned(), first_byte), ("completion_ms".to_owned(), 2.0 * first_byte)].into(),
            ..run(block, treatment, Some(0.0))
        };
        let runs = [measured(0, "direct", 5.0), measured(0, "dante", 6.0)];
        let manifest = Manifest { size: "quick".into(), ..Manifest::default() };
        let results = build_results(&experiment, &manifest, &runs, &[]);
        let dante = results.also[0].cells.iter().find(|cell| cell.treatment == "dante" && cell.summary.n > 0).unwrap();
        assert_eq!(
            (results.also[0].metric.unit.as_str(), dante.summary.median, dante.ratio.unwrap().median),
            ("ms", 12.0, 1.2)
        );
        // FTP has no floor.
        let floors: Vec<_> =
            results.floors.iter().map(|row| (row.treatment.as_str(), row.floor, row.measured.n)).collect();
        assert_eq!(floors, [("direct", 4.0, 1), ("dante", 8.0, 1), ("haproxy", 4.0, 0)]);
    }

    #[test]
    fn ratio_so_far_needs_a_base_run_and_skips_the_base() {
        let experiment = small_experiment("").unwrap();
        let runs = [run(0, "direct", Some(2.0))];
        assert_eq!(ratio_so_far(&experiment, &runs, &run(0, "dante", Some(3.0))), Some(1.5));
        assert_eq!(ratio_so_far(&experiment, &runs, &run(1, "dante", Some(3.0))), None);
        assert_eq!(ratio_so_far(&experiment, &runs, &runs[0]), None);
    }
}
