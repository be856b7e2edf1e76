//! The parts of an experiment file that are not the lab: what a person writes, with every default filled in.

mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::experiment::factor::LevelFilter;
use crate::experiment::gain::PublishedGrid;

pub use workload::{ArrivalProcess, PrimeSettings, RelayKill, Workload};

/// How long something takes in each size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizedDuration {
    /// With `--quick`.
    pub quick: Span,
    /// With `--full`.
    pub full: Span,
}

impl SizedDuration {
    /// In one of the two sizes.
    #[must_use]
    pub const fn for_size(&self, full: bool) -> Duration {
        if full { self.full.0 } else { self.quick.0 }
    }
}

/// `[[background]]`: what else is on the links while the client works. Made by iperf3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTraffic {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// How many TCP connections send all the time.
    #[serde(default)]
    pub flows: u32,
    /// UDP at this rate instead.
    pub rate: Option<Rate>,
    /// How long it is alone before the transfer begins.
    #[serde(default = "two_seconds")]
    pub warm_up: Span,
    /// When it begins, since the lab started, while transfers are made. Default: before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Span>,
}

const fn two_seconds() -> Span {
    Span(Duration::from_secs(2))
}

/// `[experiment]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSettings {
    /// What is compared, in this order; the first is what the others are compared with.
    pub treatments: Vec<String>,
    /// How often.
    pub blocks: BlockCounts,
    /// How long a transfer may take.
    #[serde(default = "two_minutes")]
    pub timeout: Span,
    /// The figure that runs are compared by.
    #[serde(default = "mb_s")]
    pub metric: String,
    /// Further figures that have tables and charts of their own.
    #[serde(default)]
    pub also: Vec<String>,
    /// A run is invalid if the emulator handed over more than one packet in a hundred later than this.
    #[serde(default = "one_millisecond")]
    pub lateness_limit: Span,
    /// How long a run takes, roughly: for the estimate before the first is made.
    #[serde(default = "ten_seconds")]
    pub run_takes: Span,
    /// How many runs are made at once, each in a sandbox of its own.
    #[serde(default = "one")]
    pub jobs: u32,
    /// Two factors over which figures are drawn as a map: across and up.
    pub map: Option<[String; 2]>,
}

/// How many times each treatment runs at each combination of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCounts {
    /// With `--quick`.
    pub quick: u32,
    /// With `--full`; six or more make a 95 % confidence interval of the median.
    pub full: u32,
}

const fn one() -> u32 {
    1
}
const fn two_minutes() -> Span {
    Span(Duration::from_secs(120))
}
fn mb_s() -> String {
    "mb_s".into()
}
const fn one_millisecond() -> Span {
    Span(Duration::from_millis(1))
}
const fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

/// `[[expect]]`: what should come of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// In words. Default: made of the rest.
    pub what: Option<String>,
    /// At which levels; factors that are absent may have any: then this is one expectation for each.
    #[serde(default, rename = "where")]
    pub levels: LevelFilter,
    /// Of which treatment.
    pub treatment: String,
    /// By which figure. Default: the experiment's.
    pub metric: Option<String>,
    /// The figure is the ratio to this treatment, paired within blocks.
    pub ratio_to: Option<String>,
    /// The figure is the ratio to whichever of these treatments is best.
    #[serde(default)]
    pub ratio_to_best_of: Vec<String>,
    /// The figure is the ratio to the same treatment at these levels.
    #[serde(default)]
    pub ratio_to_level: BTreeMap<String, String>,
    /// The figure is what it has more than this treatment.
    pub minus: Option<String>,
    /// It is at least this.
    pub at_least: Option<f64>,
    /// It is at most this.
    pub at_most: Option<f64>,
    /// It holds in at least this share of the places it is about, from 0 to 1. Default: it is judged at each.
    pub share: Option<f64>,
    /// It is at most so many times the arithmetic [floor](crate::experiment::floor) of the first byte.
    pub over_floor: Option<f64>,
    /// It is this percentile over all places together, of the error of [predictions](crate::experiment::accuracy).
    pub percentile: Option<f64>,
    /// It is at least the gain that was published, over `ratio_to`.
    pub gain: Option<PublishedGrid>,
    /// Where `ratio_to` is better here than published, the figure is at least so many times the
    /// [limit](crate::experiment::limit) instead.
    pub of_limit: Option<f64>,
    /// The treatment that measures what the slowest section carries alone, to be shown beside a gain.
    pub ceiling: Option<String>,
    /// It is largest, over the levels of this factor, ...
    pub maximum_over: Option<String>,
    /// ... at this one.
    pub is: Option<String>,
    /// What was published, with its unit.
    pub published: Option<String>,
    /// The ratio that was published.
    pub published_ratio: Option<f64>,
    /// Where. Default: the project's own bar.
    pub source: Option<String>,
    /// What a reader should know, as why the published figure cannot be reached here.
    pub remark: Option<String>,
}
