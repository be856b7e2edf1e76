//! The results of an experiment as JSON: a manifest, one line of `runs.jsonl` for each run, and the analysis.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sequence::SequencePlot;
use ekiden_emulator::ledger::DirectionReport;

pub use crate::stats::Summary;

/// The circumstances of the runs; stored in `manifest.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The name of the experiment.
    pub name: String,
    /// The question of the experiment, in one sentence.
    pub title: String,
    /// The publication that the experiment repeats: author, year, table. `None` if there is none.
    pub source: Option<String>,
    /// The size of the experiment: `quick` or `full`.
    pub size: String,
    /// The text of the experiment file.
    pub file: String,
    /// Digest of everything that a figure depends on: results are continued only if the digest is equal.
    pub digest: String,
    /// The seed of the order of runs and of the emulator's random decisions.
    pub seed: u64,
    /// Number of requested blocks.
    pub blocks: u32,
    /// The names of the factors, in order, and their levels, in order.
    pub factors: Vec<(String, Vec<String>)>,
    /// The names of the treatments, in order; the first is the base of comparison.
    pub treatments: Vec<String>,
    /// The metric that verdicts are about.
    pub metric: Metric,
    /// Factors on the horizontal and the vertical axis of a map of the figures.
    #[serde(default)]
    pub map: Option<[String; 2]>,
    /// When it started: RFC 3339, UTC.
    pub started: String,
    /// Clock, kernel, processor, number of cores, memory, version of the laboratory, privilege: name and value, in the
    /// order of display.
    pub machine: Vec<(String, String)>,
    /// Names and versions of programs, in the order of display.
    pub programs: Vec<(String, String)>,
    /// Relevant settings of hosts: name and value, in the order of display.
    pub settings: Vec<(String, String)>,
}

/// A metric that runs are compared by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metric {
    /// Key in [`Run::metrics`], such as `mb_s`.
    pub key: String,
    /// Unit, such as `MB/s`; empty for a number without a unit.
    pub unit: String,
    /// Whether higher values are better.
    pub higher_is_better: bool,
}

/// A row of a link check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckRow {
    /// The name of the checked link.
    pub link: String,
    /// The direction, such as `client → server`; empty for both directions.
    pub direction: String,
    /// The checked property, such as `fixed delay`.
    pub property: String,
    /// The statistic with its limit, such as `one-way error, p99 ≤ 250 µs`.
    pub wanted: String,
    /// The measured value, with its unit.
    pub measured: String,
    /// Whether the measured value is within the limit.
    pub pass: bool,
}

/// The summary of one treatment at one combination of levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// Summary of the metric over valid runs.
    pub summary: Summary,
    /// Ratio of the metric to that of the first treatment in the same block, over blocks in which both runs are valid.
    /// `None` for the first treatment.
    pub ratio: Option<Summary>,
    /// Number of invalid runs.
    pub invalid: u32,
}

#[cfg(test)]
impl CellSummary {
    /// The summary of a treatment without levels, ratio and invalid runs.
    pub fn for_test(treatment: &str, summary: Summary) -> Self {
        Self { levels: BTreeMap::new(), treatment: treatment.to_owned(), summary, ratio: None, invalid: 0 }
    }
}

/// Cells with a further metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtraMetricCells {
    /// The metric that these cells summarise.
    pub metric: Metric,
    /// The summaries of every treatment at every combination of levels.
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
    /// The base treatment of the gain.
    pub to: String,
    /// The published figures without and with relays.
    pub published: [f64; 2],
    /// The figure of `to` over valid runs.
    pub base: Summary,
    /// The figure of the treatment over valid runs.
    pub measured: Summary,
    /// The ratio of `measured` to `base`, paired within blocks.
    pub gain: Summary,
    /// The arithmetic limit of the slowest section, in the unit of the metric.
    pub limit: f64,
    /// The kind and the section of the bound that gives the limit.
    pub bound: String,
    /// Multiple of the limit that is sufficient where `to` is better here than published.
    pub of_limit: f64,
    /// The measured figure of only the slowest section; `None` if not measured.
    pub ceiling: Option<Summary>,
    /// Whether the measured gain meets the expectation.
    pub verdict: ExpectationVerdict,
}

impl GainRow {
    /// Returns the ratio of the published figures with and without relays.
    #[must_use]
    pub fn published_gain(&self) -> f64 {
        self.published[1] / self.published[0]
    }

    /// Whether the gain is judged by the limit, because the base is better here than published.
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
    /// Source of the expectation: author, year and table of a publication, or the project itself.
    pub source: String,
    /// The published figure, with its unit; `None` if there is none.
    pub published: Option<String>,
    /// The measured figure, with its unit; `None` without valid runs.
    pub ours: Option<String>,
    /// 95 % confidence interval of the measured figure, as text; `None` without valid runs, for shares and percentiles,
    /// and for a ratio whose base is 0.
    pub interval: Option<String>,
    /// Whether the expectation is met.
    pub verdict: ExpectationVerdict,
    /// The reason for the verdict, or a remark.
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
    /// There are no valid runs to judge by, or, for a maximum over levels, none at a level.
    Unknown,
}

/// All data of a report; stored in `report.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// The circumstances of the runs.
    pub manifest: Manifest,
    /// All runs, valid or not, in the order of execution.
    pub runs: Vec<Run>,
    /// The check of the links before the first run.
    pub checks: Vec<CheckRow>,
    /// Summaries of every treatment at every combination of levels.
    pub cells: Vec<CellSummary>,
    /// The same summaries with further metrics.
    pub also: Vec<ExtraMetricCells>,
    /// Arithmetic floors; empty if the experiment does not measure the first byte.
    pub floors: Vec<FloorRow>,
    /// Measured gains beside published ones; empty if the experiment expects none.
    #[serde(default)]
    pub gains: Vec<GainRow>,
    /// Every expectation of the file with its outcome.
    pub outcomes: Vec<ExpectationOutcome>,
    /// Warnings for readers, each with a cause and a remedy.
    pub warnings: Vec<String>,
}

impl Results {
    /// Returns the results for each further metric as the main metric. Expectations have their own metrics, so they are
    /// left out.
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
    /// Number of the block, from 0.
    pub block: u32,
    /// Position of the run in the order of all runs, from 0.
    pub order: u32,
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// Metrics by key: `mb_s`, `seconds`, `first_byte_ms`, `bytes`, ...
    pub metrics: BTreeMap<String, f64>,
    /// The reason why the run is invalid and excluded from summaries; `None` if it is valid.
    pub invalid: Option<String>,
    /// Conditions that readers of the results must know.
    pub warnings: Vec<String>,
    /// The results of groups that shared a bottleneck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRun>,
    /// All sessions, if a relay selected paths or downloads began at fixed intervals; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionRun>,
    /// Reports of the links, one for each direction.
    pub links: Vec<DirectionReport>,
    /// Sequence numbers over time, on the links whose packets are logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<SequencePlot>,
    /// Bytes received by the client over time: seconds since the request, bytes so far.
    pub timeline: Vec<(f64, u64)>,
    /// Share of all cores that was busy during the transfers, from 0 to 1.
    pub cpu_busy: f64,
    /// Duration of the run with set-up and clean-up, in seconds.
    pub took: f64,
    /// When it started: RFC 3339, UTC.
    pub started: String,
}

impl Run {
    /// Returns the duration of the run by its clock, real or virtual.
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
    /// The congestion control of the connections, as reported by the kernel.
    pub congestion: String,
    /// Total rate of the connections, in Mbit/s.
    pub mbit_s: f64,
    /// Rate of each connection, in Mbit/s; empty for short flows.
    pub rates: Vec<f64>,
    /// Number of retransmitted packets; `None` if not counted.
    pub retransmits: Option<u64>,
    /// Pairs of seconds since the start and bytes received by then.
    pub timeline: Vec<(f64, u64)>,
    /// Duration of each short flow, in milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completions: Vec<f64>,
}

/// One download, with its path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionRun {
    /// Start of the download, in seconds since the start of the lab.
    pub at: f64,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Time from the start to the last byte, in milliseconds; 0 if the download failed.
    pub ms: f64,
    /// The relays in order, joined by `-`, or `direct`; `None` if the session failed, or if no relay selected a path.
    pub path: Option<String>,
    /// The cause of the failure; `None` if the download succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
