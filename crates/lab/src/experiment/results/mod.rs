//! What an experiment leaves behind: a manifest, one line for each run, and what was made of them. All of it is JSON.

mod run;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::stats::Summary;
pub use run::{GroupRun, Run, SessionRun};

/// Under what circumstances the runs were made: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The name of the experiment.
    pub name: String,
    /// One sentence on what it asks.
    pub title: String,
    /// Who published it: author, year, table.
    pub source: Option<String>,
    /// `quick` or `full`.
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
    /// The names of the treatments, in order; the first is what the others are compared with.
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
    /// The link.
    pub link: String,
    /// The direction, as in `client → server`; empty if it is about both.
    pub direction: String,
    /// What was measured, as in `fixed delay`.
    pub property: String,
    /// The statistic with its limit, as in `one-way error, p99 ≤ 250 µs`.
    pub wanted: String,
    /// What came out, with its unit.
    pub measured: String,
    /// Whether it is as wanted.
    pub pass: bool,
}

/// What came of one treatment at one combination of levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// Factor and level.
    pub levels: BTreeMap<String, String>,
    /// The treatment.
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
    /// The figure.
    pub metric: Metric,
    /// What came of every treatment at every combination of levels, by it.
    pub cells: Vec<CellSummary>,
}

/// The arithmetic floor of the first byte of one treatment at one combination of levels, and what came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloorRow {
    /// Factor and level.
    pub levels: BTreeMap<String, String>,
    /// The treatment.
    pub treatment: String,
    /// What the floor is made of.
    pub formula: String,
    /// The floor, in milliseconds.
    pub floor: f64,
    /// The time to the first byte over valid runs, in milliseconds.
    pub measured: Summary,
}

/// A gain that is expected, the published one, the limit, and what came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GainRow {
    /// Factor and level.
    pub levels: BTreeMap<String, String>,
    /// The treatment.
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
    /// What the slowest section can carry by arithmetic, in the unit of the metric.
    pub limit: f64,
    /// What bounds it there.
    pub bound: String,
    /// How many times the limit is enough where `to` is better than published.
    pub of_limit: f64,
    /// What the slowest section carried alone, if that was measured.
    pub ceiling: Option<Summary>,
    /// Whether it holds.
    pub verdict: ExpectationVerdict,
}

impl GainRow {
    /// The published ratio.
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

/// An expectation of the experiment file, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpectationOutcome {
    /// What is expected, in words: `squid, 25-25: at least 1.74 x direct`.
    pub expected: String,
    /// Where the expectation comes from: author, year, table; or the project's own bar.
    pub source: String,
    /// The published figure, with its unit, if there is one.
    pub published: Option<String>,
    /// Ours, with its unit.
    pub ours: Option<String>,
    /// Its 95 % confidence interval, as text.
    pub interval: Option<String>,
    /// What came of it.
    pub verdict: ExpectationVerdict,
    /// Why, or what is remarkable, if anything.
    pub remark: Option<String>,
}

/// What came of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectationVerdict {
    /// It holds.
    Met,
    /// It does not.
    Missed,
    /// There are no valid runs to tell by.
    Unknown,
}

/// Everything a report is made of: `report.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Results {
    /// Under what circumstances.
    pub manifest: Manifest,
    /// Every run, valid or not, in the order they were made.
    pub runs: Vec<Run>,
    /// What the check of the links said before the first run.
    pub checks: Vec<CheckRow>,
    /// Every treatment at every combination of levels.
    pub cells: Vec<CellSummary>,
    /// The same by further figures.
    pub also: Vec<ExtraMetricCells>,
    /// Arithmetic floors; empty if the first byte is not what the experiment is about.
    pub floors: Vec<FloorRow>,
    /// Gains beside published ones; empty if none is expected.
    #[serde(default)]
    pub gains: Vec<GainRow>,
    /// Every expectation.
    pub outcomes: Vec<ExpectationOutcome>,
    /// What a reader should know: each names a cause and a remedy.
    pub warnings: Vec<String>,
}

impl Results {
    /// The same results as they are by each further figure. Expectations name their own figure: they stay behind.
    pub fn by_extra_metrics(&self) -> impl Iterator<Item = Self> {
        self.also.iter().map(|also| Self {
            manifest: Manifest { metric: also.metric.clone(), ..self.manifest.clone() },
            runs: self.runs.clone(),
            cells: also.cells.clone(),
            ..Self::default()
        })
    }
}
