//! Results in display order, and the names of conditions and metrics.

use std::collections::BTreeMap;

use crate::experiment::collect::metric::CPU_PREFIX;
use crate::experiment::collect::results::{CellSummary, ExpectationOutcome, ExpectationVerdict, Results, Run};
use crate::report::number::pluralized;

/// The level of each factor, by the factor's name.
pub type Levels = BTreeMap<String, String>;

/// Results, and the order of their treatments and levels.
pub struct ReportView<'a> {
    /// Results of an experiment, unordered.
    pub results: &'a Results,
    /// Treatments: those of the manifest, then any that only cells or runs have.
    pub treatments: Vec<String>,
    /// Combinations of levels that have cells, in the order of the manifest.
    pub combinations: Vec<Levels>,
}

impl<'a> ReportView<'a> {
    /// Orders the treatments and the combinations of levels.
    #[must_use]
    pub fn new(results: &'a Results) -> Self {
        let mut treatments = results.manifest.treatments.clone();
        let others =
            results.cells.iter().map(|cell| &cell.treatment).chain(results.runs.iter().map(|run| &run.treatment));
        for other in others {
            if !treatments.contains(other) {
                treatments.push(other.clone());
            }
        }
        let mut combinations: Vec<Levels> = Vec::new();
        for cell in &results.cells {
            if !combinations.contains(&cell.levels) {
                combinations.push(cell.levels.clone());
            }
        }
        combinations.sort_by_key(|levels| level_positions(results, levels));
        Self { results, treatments, combinations }
    }

    /// Returns the cell of a treatment at a combination of levels.
    #[must_use]
    pub fn cell(&self, levels: &Levels, treatment: &str) -> Option<&'a CellSummary> {
        self.results.cells.iter().find(|cell| cell.treatment == treatment && cell.levels == *levels)
    }

    /// Returns the valid runs of a treatment at a combination of levels.
    pub fn valid_runs<'b>(&'b self, levels: &'b Levels, treatment: &'b str) -> impl Iterator<Item = &'a Run> + 'b {
        let runs = self.results.runs.iter().filter(|run| run.invalid.is_none());
        runs.filter(move |run| run.treatment == treatment && run.levels == *levels)
    }

    /// Returns the label of a combination of levels without the factor `except`, such as `50 ms, 100 MB, sections 2`.
    /// If no level is left, returns the name of the experiment.
    #[must_use]
    pub fn condition_label(&self, levels: &Levels, except: Option<&str>) -> String {
        let names =
            self.results.manifest.factors.iter().map(|(name, _)| name).filter(|name| Some(name.as_str()) != except);
        let parts: Vec<String> =
            names.filter_map(|name| levels.get(name).map(|level| level_with_factor(name, level))).collect();
        if parts.is_empty() { self.results.manifest.name.clone() } else { parts.join(", ") }
    }

    /// Returns the base of all ratios: the first treatment.
    #[must_use]
    pub fn baseline(&self) -> &str {
        self.treatments.first().map_or("the first treatment", String::as_str)
    }

    /// Returns the name of the metric in charts and tables.
    #[must_use]
    pub fn metric_name(&self) -> String {
        match self.results.manifest.metric.key.as_str() {
            "mb_s" | "mbit_s" => "goodput".to_owned(),
            "steady_mb_s" | "steady_mbit_s" => "steady goodput".to_owned(),
            "seconds" => "time".to_owned(),
            "completion_ms" => "time to completion".to_owned(),
            "first_byte_ms" => "time to the first byte".to_owned(),
            "completion_s" => "time until the last byte has arrived".to_owned(),
            "write_s" => "time to write".to_owned(),
            "write_mbit_s" => "rate of writing".to_owned(),
            "block_ms" => "time of a block".to_owned(),
            "block_p99_ms" => "time of a block, 99 %".to_owned(),
            "ratio" => "ratio of rates".to_owned(),
            "jain" => "Jain's index".to_owned(),
            "queueing_ms" => "mean time in the queue".to_owned(),
            "queueing_p95_ms" => "time in the queue, 95 %".to_owned(),
            "queueing_p99_ms" => "time in the queue, 99 %".to_owned(),
            "window_packets" => "mean window".to_owned(),
            key => match key.strip_prefix(CPU_PREFIX) {
                Some(host) => format!("processor time at {host}"),
                None => key.replace('_', " "),
            },
        }
    }

    /// Returns the unit of the metric; empty for a plain number.
    #[must_use]
    pub fn unit(&self) -> &'a str {
        &self.results.manifest.metric.unit
    }

    /// Returns the expectations: missed, then unknown, then met; each kind in the order of the file.
    #[must_use]
    pub fn outcomes(&self) -> Vec<&'a ExpectationOutcome> {
        let rank = |verdict: ExpectationVerdict| match verdict {
            ExpectationVerdict::Missed => 0,
            ExpectationVerdict::Unknown => 1,
            ExpectationVerdict::Met => 2,
        };
        let mut outcomes: Vec<&ExpectationOutcome> = self.results.outcomes.iter().collect();
        outcomes.sort_by_key(|outcome| rank(outcome.verdict));
        outcomes
    }

    /// Returns the number of expectations with this verdict.
    #[must_use]
    pub fn count_with_verdict(&self, verdict: ExpectationVerdict) -> usize {
        self.results.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count()
    }

    /// Returns the reason why the results are invalid: a failed link check, or no valid run. Returns `None` for valid
    /// results.
    #[must_use]
    pub fn invalid_reason(&self) -> Option<String> {
        let failed: Vec<_> = self.results.checks.iter().filter(|row| !row.pass).collect();
        if let Some(first) = failed.first() {
            let (n, of) = (failed.len(), pluralized(self.results.checks.len(), "link check"));
            return Some(format!("{n} of {of} failed, first {} of {}", first.property, first.link));
        }
        let runs = &self.results.runs;
        if runs.is_empty() {
            return Some("there are no runs".to_owned());
        }
        let reasons: Vec<&String> = runs.iter().filter_map(|run| run.invalid.as_ref()).collect();
        match reasons.first() {
            Some(why) if reasons.len() == runs.len() => {
                Some(format!("none of {} is valid, the first because: {why}", pluralized(runs.len(), "run")))
            }
            _ => None,
        }
    }

    /// Returns the warnings of the results, then each warning of runs with the number of runs that have it.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut by_text: Vec<(&String, usize)> = Vec::new();
        for warning in self.results.runs.iter().flat_map(|run| &run.warnings) {
            match by_text.iter_mut().find(|(text, _)| *text == warning) {
                Some((_, n)) => *n += 1,
                None => by_text.push((warning, 1)),
            }
        }
        let of = pluralized(self.results.runs.len(), "run");
        let general = self.results.warnings.iter().cloned();
        let run_warnings = by_text.into_iter().filter(|(text, _)| !self.results.warnings.contains(text));
        general.chain(run_warnings.map(|(text, n)| format!("{text} ({n} of {of})"))).collect()
    }

    /// Returns the last line of a report: the number of met and missed expectations, or the reason why the results are
    /// invalid.
    #[must_use]
    pub fn verdict_line(&self) -> String {
        if let Some(why) = self.invalid_reason() {
            return format!("run invalid: {why}");
        }
        if self.results.outcomes.is_empty() {
            return format!("no expectations, {}", pluralized(self.results.runs.len(), "run"));
        }
        self.outcome_line()
    }

    /// Returns the number of met, missed and unknown expectations, as text.
    #[must_use]
    pub fn outcome_line(&self) -> String {
        let unknown = match self.count_with_verdict(ExpectationVerdict::Unknown) {
            0 => String::new(),
            n => format!(", {n} unknown"),
        };
        let (met, missed) =
            (self.count_with_verdict(ExpectationVerdict::Met), self.count_with_verdict(ExpectationVerdict::Missed));
        format!("{}: {met} met, {missed} missed{unknown}", pluralized(self.results.outcomes.len(), "expectation"))
    }
}

/// Returns a level that is a bare number with its factor (`sections 2`), and any other level (`50ms`, `http`) alone.
fn level_with_factor(factor: &str, level: &str) -> String {
    if level.parse::<f64>().is_ok() { format!("{factor} {level}") } else { level.to_owned() }
}

fn level_positions(results: &Results, levels: &Levels) -> Vec<usize> {
    let index = |(name, order): &(String, Vec<String>)| {
        levels.get(name).and_then(|level| order.iter().position(|other| other == level)).unwrap_or(usize::MAX)
    };
    results.manifest.factors.iter().map(index).collect()
}
