//! Parser of experiment files: reads and validates the file for every combination of levels and treatment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::factor::Factor;
use super::file::{BackgroundTraffic, Expectation, ExperimentSettings, Workload};
use super::overrides;
use super::treatment::Treatment;
use crate::experiment::collect::metric;
use crate::experiment::collect::results::Metric;
use crate::experiment::judge::expect;
use crate::topology::file::words::{self, KeyProblem};
use crate::topology::{self, Lab};

mod errors;

/// A validated experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The name of the experiment.
    pub name: String,
    /// The text of the experiment file.
    pub text: String,
    /// The seed of the order of runs and of the emulator's random decisions.
    pub seed: u64,
    /// The question of the experiment, in one sentence.
    pub title: String,
    /// The publication that the experiment repeats; `None` if there is none.
    pub source: Option<String>,
    /// The settings of the campaign: treatments, blocks, timeout, and others.
    pub settings: ExperimentSettings,
    /// The metric that runs are compared by.
    pub metric: Metric,
    /// Further metrics, each with its own tables and charts.
    pub extra_metrics: Vec<Metric>,
    /// The factors in the order of the file.
    pub factors: Vec<Factor>,
    /// The expected results in the order of the file.
    pub expectations: Vec<Expectation>,
    /// The cells of all combinations of levels and treatments that can run, in the order of the file.
    pub cells: Vec<ExperimentCell>,
    /// Combinations that are not run because they are meaningless, with the reason.
    pub skipped: Vec<(CellKey, String)>,
}

/// Identity of a cell: a combination of levels and a treatment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
}

impl fmt::Display for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.treatment)?;
        self.levels.values().try_for_each(|level| write!(f, ", {level}"))
    }
}

/// One cell: a combination of levels and a treatment.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentCell {
    /// The levels and the treatment of the cell.
    pub key: CellKey,
    /// Whether the cell is part of the quick size.
    pub quick: bool,
    /// The file's settings for the cell, with every default filled in.
    pub spec: RunSpec,
}

/// The settings that a run depends on, apart from its seed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct RunSpec {
    /// The hosts and links.
    pub lab: Lab,
    /// The transfers of the run.
    pub workload: Workload,
    /// The cross traffic beside the transfers.
    pub background: Vec<BackgroundTraffic>,
    /// The programs between client and server, with the chain of this cell.
    pub treatment: Treatment,
}

impl Experiment {
    /// Parses and validates the text of an experiment file.
    ///
    /// # Errors
    /// All mistakes in the text, at all combinations of levels.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<String>> {
        let document: Table =
            text.parse().map_err(|error: toml::de::Error| vec![error.to_string().trim().to_owned()])?;
        let mut mistakes = Vec::new();
        errors::validate_top_level_keys(&document, &mut mistakes);
        let settings: Option<ExperimentSettings> = parse_part(&document, "experiment", &mut mistakes);
        let title: Option<String> = parse_part(&document, "title", &mut mistakes);
        let mut factors: Vec<Factor> = parse_parts(&document, "factor", &mut mistakes);
        factors.iter_mut().for_each(|factor| mistakes.extend(factor.draw_levels().err().into_iter().flatten()));
        let expectations: Vec<Expectation> = parse_parts(&document, "expect", &mut mistakes);
        let source = document.contains_key("source").then(|| parse_part(&document, "source", &mut mistakes)).flatten();
        let (Some(settings), Some(title)) = (settings, title) else { return Err(mistakes) };
        errors::validate_settings(&settings, &document, &mut mistakes);
        errors::validate_quick_rules(&factors, &mut mistakes);
        errors::validate_level_names(&settings, &factors, &document, &mut mistakes);
        let mut metric =
            |name: &String| metric::by_name(name).map_err(|mistake| mistakes.push(mistake)).unwrap_or_default();
        let (main_metric, further_metrics) = (metric(&settings.metric), settings.also.iter().map(metric).collect());
        let mut experiment = Self {
            name: name.into(),
            text: text.into(),
            seed: 0,
            title,
            source,
            settings,
            metric: main_metric,
            extra_metrics: further_metrics,
            factors,
            expectations,
            cells: Vec::new(),
            skipped: Vec::new(),
        };
        experiment.build_cells(&document, &mut mistakes);
        if mistakes.is_empty() {
            expect::validate(&experiment, &mut mistakes);
        }
        if mistakes.is_empty() { Ok(experiment) } else { Err(mistakes) }
    }

    /// Builds the cells of all combinations. A mistake that several combinations share is reported once.
    fn build_cells(&mut self, document: &Table, mistakes: &mut Vec<String>) {
        let mut reported: BTreeSet<String> = mistakes.iter().cloned().collect();
        for (levels, sets) in combinations(&self.factors) {
            let quick = self.is_quick(&levels);
            for treatment in self.settings.treatments.clone() {
                if document.get("treatment").is_none_or(|tables| tables.get(&treatment).is_none()) {
                    continue;
                }
                let cell_key = CellKey { levels: levels.clone(), treatment };
                match build_spec(document, &sets, &cell_key) {
                    Ok(spec) if !spec.treatment.at.is_empty() && spec.treatment.override_at(&levels).is_none() => {}
                    Ok(spec) => {
                        self.seed = spec.lab.seed;
                        match errors::skip_reason(&spec) {
                            Some(reason) => self.skipped.push((cell_key, reason)),
                            None => self.cells.push(ExperimentCell { key: cell_key, quick, spec }),
                        }
                    }
                    Err(found) => mistakes.extend(found.into_iter().filter(|mistake| reported.insert(mistake.clone()))),
                }
            }
        }
    }

    /// Returns the key of the metric of an expectation: its own, or that of the experiment.
    #[must_use]
    pub fn metric_key<'a>(&'a self, expectation: &'a Expectation) -> &'a str {
        expectation.metric.as_deref().unwrap_or(&self.metric.key)
    }

    /// Whether a combination of levels is part of the quick size.
    #[must_use]
    pub fn is_quick(&self, levels: &BTreeMap<String, String>) -> bool {
        self.factors.iter().all(|factor| factor.is_quick_at(levels))
    }

    /// Returns the approximate duration of a run: `run_takes`, plus the longest additional stream time of the full
    /// size.
    #[must_use]
    pub fn estimated_run_time(&self, full: bool) -> Duration {
        let times = self.cells.iter().filter_map(|cell| cell.spec.workload.time);
        let longer = times.map(|time| time.for_size(full).saturating_sub(time.quick.0)).max();
        self.settings.run_takes.0 + longer.unwrap_or_default()
    }

    /// Returns the cells of a size.
    pub fn selected_cells(&self, full: bool) -> impl Iterator<Item = &ExperimentCell> {
        self.cells.iter().filter(move |cell| full || cell.quick)
    }
}

/// Returns every combination of levels: the names of the levels, and their changes to the file.
fn combinations(factors: &[Factor]) -> Vec<(BTreeMap<String, String>, Vec<Table>)> {
    let mut rows = vec![(BTreeMap::new(), Vec::new())];
    for factor in factors {
        let mut extended_rows = Vec::new();
        for (names, sets) in &rows {
            for level in &factor.levels {
                let (mut names, mut sets) = (names.clone(), sets.clone());
                names.insert(factor.name.clone(), level.name.clone());
                sets.push(level.set.clone());
                extended_rows.push((names, sets));
            }
        }
        rows = extended_rows;
    }
    rows
}

/// Applies the changes of the levels and of the treatment to the document, and reads the result.
fn build_spec(document: &Table, sets: &[Table], cell_key: &CellKey) -> Result<RunSpec, Vec<String>> {
    let mut document = document.clone();
    let mut mistakes: Vec<String> = sets.iter().flat_map(|set| overrides::apply(&mut document, set)).collect();
    let treatments = document["treatment"].as_table().cloned().unwrap_or_default();
    let mut found = Vec::new();
    let read = parse_part::<Treatment>(&treatments, &cell_key.treatment, &mut found);
    mistakes.extend(found.into_iter().map(|mistake| format!("treatment.{mistake}")));
    for set in
        read.iter().flat_map(|treatment| std::iter::once(&treatment.set).chain(treatment.override_at(&cell_key.levels)))
    {
        mistakes.extend(overrides::apply(&mut document, set));
    }
    let workload: Option<Workload> = parse_part(&document, "workload", &mut mistakes);
    let background = parse_parts(&document, "background", &mut mistakes);
    document.retain(|key, _| topology::file::LAB_KEYS.contains(&key));
    let lab = topology::file::parse_lab(document);
    let lab = lab.map_err(|found| mistakes.extend(found.iter().map(ToString::to_string))).ok();
    let (Some(workload), Some(mut treatment), Some(lab)) = (workload, read, lab) else { return Err(mistakes) };
    if treatment.chain.is_empty() {
        treatment.chain.clone_from(&workload.chain);
    }
    let spec = RunSpec { lab, workload, background, treatment };
    errors::validate_spec(&spec, &mut mistakes);
    if mistakes.is_empty() { Ok(spec) } else { Err(mistakes) }
}

/// Reads one part of a document. Mistakes are reported with their key.
fn parse_part<T: DeserializeOwned>(document: &Table, key: &str, mistakes: &mut Vec<String>) -> Option<T> {
    let Some(value) = document.get(key) else {
        mistakes.push(format!("{key}: missing"));
        return None;
    };
    words::read_value(key, value).map_err(|problems| mistakes.extend(format_problems(problems))).ok()
}

/// Reads a list of tables, each separately, so that the mistakes of all are reported.
fn parse_parts<T: DeserializeOwned>(document: &Table, key: &str, mistakes: &mut Vec<String>) -> Vec<T> {
    let values = match document.get(key) {
        None => return Vec::new(),
        Some(Value::Array(values)) => values,
        Some(_) => {
            mistakes.push(format!("{key}: expected a list of tables, [[{key}]]"));
            return Vec::new();
        }
    };
    let read = |(number, value): (usize, &Value)| {
        words::read_value(&format!("{key} {}", number + 1), value)
            .map_err(|problems| mistakes.extend(format_problems(problems)))
            .ok()
    };
    values.iter().enumerate().filter_map(read).collect()
}

fn format_problems(problems: Vec<KeyProblem>) -> impl Iterator<Item = String> {
    problems.into_iter().map(|(key, problem)| format!("{key}: {}", problem.trim().replace('\n', " ")))
}

#[cfg(test)]
mod tests;
