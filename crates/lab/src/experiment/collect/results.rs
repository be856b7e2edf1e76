//! The results of an experiment as JSON: a manifest, one line of `runs.jsonl` for each run, and the analysis.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sequence::SequencePlot;
use ekiden_emulator::ledger::DirectionReport;

pub use crate::stats::Summary;

/// The circumstances of the runs: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The name of the experiment.
    pub name: String,
    /// The question of the experiment, in one sentence.
    pub title: String,
    /// The publication: author, year, table.
    pub source: Option<String>,
    /// The size of the experiment: `quick` or `full`.
    pub size: String,
    /// The experiment file with every default filled in.
    pub file: String,
    /// A digest of the above: results are resumed only under the same.
    pub digest: String,
    /// The seed of the order of runs and of every emulated decision.
    pub seed: u64,
    /// How many blocks were asked for.
    pub blocks: u32,
    /// The names of the factors, in order, and their levels, in order.
    pub factors: Vec<(String, Vec<String>)>,
    /// The names of the treatments, in order; the first is the base of comparison.
    pub treatments: Vec<String>,
    /// The metric that verdicts are about.
    pub metric: Metric,
    /// Two factors over which figures are drawn as a map: across, and up.
    #[serde(default)]
    pub map: Option<[String; 2]>,
    /// When it started: RFC 3339, UTC.
    pub started: String,
    /// Kernel, processor, number of cores, memory, commit, privilege: name and value, in the order to be shown.
    pub machine: Vec<(String, String)>,
    /// Program and version, in the order to be shown.
    pub programs: Vec<(String, String)>,
    /// Settings of hosts that matter: name and value, in the order to be shown.
    pub settings: Vec<(String, String)>,
}

/// A figure that runs are compared by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metric {
    /// Its key in [`Run::metrics`], as in `mb_s`.
    pub key: String,
    /// Its unit, as in `MB/s`.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
}

/// A row of a link check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckRow {
    /// The name of the checked link.
    pub link: String,
    /// The direction, as in `client → server`; empty if it is about both.
    pub direction: String,
    /// The checked property, as in `fixed delay`.
    pub property: String,
    /// The statistic with its limit, as in `one-way error, p99 ≤ 250 µs`.
    pub wanted: String,
    /// The measured value, with its unit.
    pub measured: String,
    /// Whether it is as wanted.
    pub pass: bool,
}

/// The summary of one treatment at one combination of levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// The metric over valid runs.
    pub summary: Summary,
    /// Its ratio to the first treatment in the same block, over blocks where both are valid. None for the first treatment.
    pub ratio: Option<Summary>,
    /// How many runs were invalid.
    pub invalid: u32,
}

/// Cells by a further figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtraMetricCells {
    /// The metric that these cells summarise.
    pub metric: Metric,
    /// The summaries of every treatment at every combination of levels, by metric.
    pub cells: Vec<CellSummary>,
}

/// The arithmetic floor of the first byte of one treatment at one combination of levels, and the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloorRow {
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// The formula of the floor.
    pub formula: String,
    /// The floor, in milliseconds.
    pub floor: f64,
    /// The time to the first byte over valid runs, in milliseconds.
    pub measured: Summary,
}

/// An expected gain, the published one, the limit, and the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GainRow {
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// The treatment that it is compared with.
    pub to: String,
    /// The published figures without and with relays.
    pub published: [f64; 2],
    /// The figure of `to` over valid runs.
    pub base: Summary,
    /// The figure of the treatment over valid runs.
    pub measured: Summary,
    /// The ratio of the two in the same block.
    pub gain: Summary,
    /// The arithmetic limit of the slowest section, in the unit of the metric.
    pub limit: f64,
    /// The bound behind the limit.
    pub bound: String,
    /// How many times the limit is enough where `to` is better than published.
    pub of_limit: f64,
    /// The measured figure of the slowest section alone, if there is one.
    pub ceiling: Option<Summary>,
    /// Whether the measured gain meets the expectation.
    pub verdict: ExpectationVerdict,
}

impl GainRow {
    /// The ratio of the published figures with and without relays.
    #[must_use]
    pub fn published_gain(&self) -> f64 {
        self.published[1] / self.published[0]
    }

    /// Whether the limit is the bar, because the base is better than it was published.
    #[must_use]
    pub fn is_judged_by_limit(&self) -> bool {
        self.base.n > 0 && self.base.median > self.published[0]
    }
}

/// An expectation of the experiment file, and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpectationOutcome {
    /// The expectation, in words: `squid, 25-25: at least 1.74 x direct`.
    pub expected: String,
    /// Where the expectation comes from: author, year, table; or the project's own bar.
    pub source: String,
    /// The published figure, with its unit, if there is one.
    pub published: Option<String>,
    /// Ours, with its unit.
    pub ours: Option<String>,
    /// Its 95 % confidence interval, as text.
    pub interval: Option<String>,
    /// Whether the expectation is met.
    pub verdict: ExpectationVerdict,
    /// The reason, or a remark.
    pub remark: Option<String>,
}

/// The verdict on an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectationVerdict {
    /// The measurement meets the expectation.
    Met,
    /// The measurement does not meet the expectation.
    Missed,
    /// There are no valid runs to tell by.
    Unknown,
}

/// Everything a report is made of: `report.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// The circumstances of the runs.
    pub manifest: Manifest,
    /// Every run, valid or not, in the order they were made.
    pub runs: Vec<Run>,
    /// The check of the links before the first run.
    pub checks: Vec<CheckRow>,
    /// Every treatment at every combination of levels.
    pub cells: Vec<CellSummary>,
    /// The same by further figures.
    pub also: Vec<ExtraMetricCells>,
    /// Arithmetic floors; empty if the experiment does not measure the first byte.
    pub floors: Vec<FloorRow>,
    /// Gains beside published ones; empty if none is expected.
    #[serde(default)]
    pub gains: Vec<GainRow>,
    /// Every expectation of the file with its outcome.
    pub outcomes: Vec<ExpectationOutcome>,
    /// Warnings for readers: each names a cause and a remedy.
    pub warnings: Vec<String>,
}

impl Results {
    /// The same results as they are by each further figure. Expectations name their own figure, so they are left out.
    pub fn by_extra_metrics(&self) -> impl Iterator<Item = Self> {
        self.also.iter().map(|extra| Self {
            manifest: Manifest { metric: extra.metric.clone(), ..self.manifest.clone() },
            runs: self.runs.clone(),
            cells: extra.cells.clone(),
            ..Self::default()
        })
    }
}

/// One run: one line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The block it belongs to, from 0.
    pub block: u32,
    /// Its place in the order of all runs, from 0.
    pub order: u32,
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// Figures by key: `mb_s`, `seconds`, `first_byte_ms`, `bytes`, ...
    pub metrics: BTreeMap<String, f64>,
    /// Why it does not count, if it does not.
    pub invalid: Option<String>,
    /// Conditions that a reader of the result has to know.
    pub warnings: Vec<String>,
    /// The results of groups that shared a bottleneck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRun>,
    /// Each session, where a relay had a choice of paths, or downloads came all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionRun>,
    /// The packets of the links.
    pub links: Vec<DirectionReport>,
    /// Sequence numbers over time, on the links whose packets are logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<SequencePlot>,
    /// Bytes received by the client over time: seconds since the request, bytes so far.
    pub timeline: Vec<(f64, u64)>,
    /// Share of all cores that was busy during the transfer, from 0 to 1.
    pub cpu_busy: f64,
    /// How long the run took with set-up and clean-up, in seconds.
    pub took: f64,
    /// When it started: RFC 3339, UTC.
    pub started: String,
}

impl Run {
    /// How long the run took, on its clock.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::try_from_secs_f64(self.took).unwrap_or_default()
    }
}

/// The result of one group of connections in a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupRun {
    /// The name of the group.
    pub name: String,
    /// The congestion control that its connections had, as the kernel said.
    pub congestion: String,
    /// Mbit/s over all its connections together.
    pub mbit_s: f64,
    /// Mbit/s over each connection; of short flows none.
    pub rates: Vec<f64>,
    /// Retransmitted packets, if they were counted.
    pub retransmits: Option<u64>,
    /// Seconds since the start, bytes received by then.
    pub timeline: Vec<(f64, u64)>,
    /// How long each short flow took, in milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completions: Vec<f64>,
}

/// One download, and the path it took.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionRun {
    /// When it began, in seconds since the lab started.
    pub at: f64,
    /// How large the file was.
    pub bytes: u64,
    /// From start to the last byte, in milliseconds; 0 if it failed.
    pub ms: f64,
    /// The relays in order, joined by `-`, or `direct`; `None` if the session failed, or had no choice.
    pub path: Option<String>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
