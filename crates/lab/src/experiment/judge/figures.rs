//! The figures of an experiment that may be published: summaries of all runs of the full size, each with a valid
//! result.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::published::{self, PublishedRow};
use crate::experiment::collect::manifest;
use crate::experiment::collect::results::{
    CellSummary, ExpectationOutcome, ExtraMetricCells, FloorRow, GainRow, Manifest, Results, Run,
};
use crate::experiment::spec::file::ExperimentClock;
use crate::experiment::spec::read::{CellKey, Experiment};

/// Minimum number of blocks: a 95 % confidence interval of a median requires at least this number.
pub const MIN_BLOCKS: u32 = 6;

/// The content of `docs/results/NAME.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigures {
    /// The circumstances of the runs, without the text of the experiment file.
    pub manifest: Manifest,
    /// The digest of the cells: the figures are valid only while the cells of the experiment have this digest.
    pub cells_digest: String,
    /// The number of planned runs, each of which has a valid result.
    pub runs: usize,
    /// Summaries of every treatment at every combination of levels.
    pub cells: Vec<CellSummary>,
    /// The same summaries with further metrics.
    pub also: Vec<ExtraMetricCells>,
    /// Arithmetic floors of the first byte.
    pub floors: Vec<FloorRow>,
    /// Measured gains beside published ones.
    pub gains: Vec<GainRow>,
    /// Every expectation with its outcome.
    pub outcomes: Vec<ExpectationOutcome>,
    /// Published figures beside those of present-day programs and of ekiden.
    pub published: Vec<PublishedRow>,
    /// Warnings that readers of the figures must know.
    pub warnings: Vec<String>,
}

impl PublishedFigures {
    /// Summarises results, provided that they may be published.
    ///
    /// # Errors
    /// All reasons why these results must not be published.
    pub fn summarise(experiment: &Experiment, results: &Results) -> Result<Self, Vec<String>> {
        let mut reasons = circumstances_against(experiment, &results.manifest);
        reasons.extend(runs_against(experiment, results));
        if !reasons.is_empty() {
            return Err(reasons);
        }
        let results = results.clone();
        Ok(Self {
            cells_digest: manifest::cells_digest(experiment),
            runs: planned_runs(experiment, &results.manifest),
            published: published::published_rows(experiment, &results.runs),
            manifest: Manifest { file: String::new(), ..results.manifest },
            cells: results.cells,
            also: results.also,
            floors: results.floors,
            gains: results.gains,
            outcomes: results.outcomes,
            warnings: results.warnings,
        })
    }

    /// Returns all reasons why the stored figures must not be published as those of `experiment`.
    #[must_use]
    pub fn reasons_against(&self, experiment: &Experiment) -> Vec<String> {
        let mut reasons = circumstances_against(experiment, &self.manifest);
        if self.cells_digest != manifest::cells_digest(experiment) {
            reasons.push("the experiment has changed since its runs".into());
        }
        let expected = planned_runs(experiment, &self.manifest);
        if self.runs != expected {
            reasons.push(format!("{} runs, not {expected}", self.runs));
        }
        reasons
    }

    /// Converts the figures to results without runs, for tables and charts.
    #[must_use]
    pub fn to_results(&self) -> Results {
        let figures = self.clone();
        Results {
            manifest: figures.manifest,
            cells: figures.cells,
            also: figures.also,
            floors: figures.floors,
            gains: figures.gains,
            outcomes: figures.outcomes,
            warnings: figures.warnings,
            ..Results::default()
        }
    }

    /// Whether the runs were made in virtual time.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        is_virtual(&self.manifest)
    }
}

fn is_virtual(manifest: &Manifest) -> bool {
    manifest.machine.iter().any(|(name, value)| name == "clock" && value.starts_with("virtual"))
}

fn circumstances_against(experiment: &Experiment, manifest: &Manifest) -> Vec<String> {
    let mut reasons = Vec::new();
    if manifest.size != "full" {
        reasons.push(format!("size {}, expected full", manifest.size));
    }
    if manifest.blocks < MIN_BLOCKS {
        reasons.push(format!("{} blocks, fewer than {MIN_BLOCKS}", manifest.blocks));
    }
    if experiment.settings.clock != ExperimentClock::Real && !is_virtual(manifest) {
        reasons.push("real time, although the experiment can run in virtual time".into());
    }
    reasons
}

fn planned_runs(experiment: &Experiment, manifest: &Manifest) -> usize {
    experiment.cells.len() * manifest.blocks as usize
}

/// Returns the failed link checks, and the number of missing or invalid runs, as reasons against publication.
fn runs_against(experiment: &Experiment, results: &Results) -> Vec<String> {
    let mut reasons: Vec<String> = results
        .checks
        .iter()
        .filter(|row| !row.pass)
        .map(|row| format!("link check failed: {} of {}", row.property, row.link))
        .collect();
    let key =
        |run: &Run| (CellKey { levels: run.levels.clone(), treatment: run.treatment.clone() }.to_string(), run.block);
    let valid: BTreeSet<_> = results.runs.iter().filter(|run| run.invalid.is_none()).map(key).collect();
    let planned = planned_runs(experiment, &results.manifest);
    if valid.len() < planned {
        let invalid = results.runs.iter().find(|run| run.invalid.is_some() && !valid.contains(&key(run)));
        let first = invalid.map(|run| {
            let reason = run.invalid.as_deref().unwrap_or_default();
            format!("; first invalid: {}, block {}: {reason}", key(run).0, run.block + 1)
        });
        reasons.push(format!("{} of {planned} runs are valid{}", valid.len(), first.unwrap_or_default()));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::results::CheckRow;
    use crate::experiment::examples_for_tests::small_experiment;
    use crate::experiment::judge::analyse;

    /// The small experiment, and its results with all runs of [`MIN_BLOCKS`] blocks in virtual time.
    fn complete() -> (Experiment, Results) {
        let experiment = small_experiment("").unwrap();
        let run = |block: u32, cell: &CellKey| Run {
            block,
            levels: cell.levels.clone(),
            treatment: cell.treatment.clone(),
            metrics: [("mb_s".to_owned(), f64::from(block + 1))].into(),
            ..Run::default()
        };
        let runs: Vec<Run> =
            (0..MIN_BLOCKS).flat_map(|block| experiment.cells.iter().map(move |cell| run(block, &cell.key))).collect();
        let clock = ("clock".to_owned(), "virtual: Linux 7.2".to_owned());
        let manifest =
            Manifest { size: "full".into(), blocks: MIN_BLOCKS, machine: vec![clock], ..Manifest::default() };
        let results = analyse::build_results(&experiment, &manifest, &runs, &[]);
        (experiment, results)
    }

    /// The reasons to refuse complete results after `change`.
    fn refusal(change: impl FnOnce(&mut Results)) -> String {
        let (experiment, mut results) = complete();
        change(&mut results);
        PublishedFigures::summarise(&experiment, &results).unwrap_err().join("; ")
    }

    #[test]
    fn complete_runs_are_published() {
        let (experiment, results) = complete();
        let figures = PublishedFigures::summarise(&experiment, &results).unwrap();
        assert_eq!((figures.runs, figures.cells[0].summary.n), (results.runs.len(), MIN_BLOCKS));
        assert!(figures.reasons_against(&experiment).is_empty() && figures.is_virtual());
    }

    #[test]
    fn incomplete_and_invalid_results_are_refused() {
        assert_eq!(refusal(|results| results.manifest.size = "quick".into()), "size quick, expected full");
        assert!(refusal(|results| results.manifest.blocks = 5).starts_with("5 blocks, fewer than 6"));
        assert!(refusal(|results| results.manifest.machine.clear()).starts_with("real time"));
        assert!(refusal(|results| drop(results.runs.pop())).contains(" runs are valid"));
        let invalid = refusal(|results| results.runs[7].invalid = Some("it died".into()));
        assert!(invalid.ends_with("it died") && invalid.contains("first invalid"), "{invalid}");
        let check = CheckRow {
            link: "wan".into(),
            direction: String::new(),
            property: "rate".into(),
            wanted: String::new(),
            measured: String::new(),
            pass: false,
        };
        assert_eq!(refusal(|results| results.checks.push(check)), "link check failed: rate of wan");
    }

    #[test]
    fn figures_of_another_version_of_the_experiment_are_refused() {
        let (experiment, results) = complete();
        let figures = PublishedFigures::summarise(&experiment, &results).unwrap();
        let mut changed = experiment.clone();
        changed.cells[0].spec.workload.transfers += 1;
        assert_eq!(figures.reasons_against(&changed), ["the experiment has changed since its runs"]);
        let fewer = PublishedFigures { runs: figures.runs - 1, ..figures };
        assert_eq!(fewer.reasons_against(&experiment).len(), 1);
    }
}
