//! The parts of an experiment file other than the lab, such as `[workload]`, with every default filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use super::factor::LevelFilter;
use super::group::{FlowGroup, ShortFlowSettings};
use crate::experiment::judge::gain::PublishedGrid;
use crate::program::agent::Agent;
use crate::program::server::{Protocol, ServerProgram};

/// The top-level keys of an experiment file that are not keys of the lab.
pub const TOP_LEVEL_KEYS: [&str; 8] =
    ["title", "source", "workload", "background", "treatment", "experiment", "factor", "expect"];

/// A duration for each size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizedDuration {
    /// The duration with `--quick`.
    pub quick: Span,
    /// The duration with `--full`.
    pub full: Span,
}

impl SizedDuration {
    /// Returns the duration for the full or the quick size.
    #[must_use]
    pub const fn for_size(&self, full: bool) -> Duration {
        if full { self.full.0 } else { self.quick.0 }
    }
}

/// `[[background]]`: cross traffic from iperf3 during the transfers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTraffic {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Number of TCP connections that always have data to send.
    #[serde(default)]
    pub flows: u32,
    /// Rate of UDP traffic, in place of TCP connections.
    pub rate: Option<Rate>,
    /// Time between the start of the traffic and the start of the transfers; ignored with `at`.
    #[serde(default = "two_seconds")]
    pub warm_up: Span,
    /// Start of the traffic during the transfers, since the start of the lab. Default: before the transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Span>,
}

const fn two_seconds() -> Span {
    Span(Duration::from_secs(2))
}

/// `[experiment]`: the treatments and the settings of the campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSettings {
    /// The treatments in order; the first is the base of comparison.
    pub treatments: Vec<String>,
    /// Number of runs of each treatment at each combination of levels, by size.
    pub blocks: BlockCounts,
    /// Timeout of a transfer.
    #[serde(default = "two_minutes")]
    pub timeout: Span,
    /// The key of the metric that runs are compared by.
    #[serde(default = "mb_s")]
    pub metric: String,
    /// The keys of further metrics, each with its own tables and charts.
    #[serde(default)]
    pub also: Vec<String>,
    /// A run is invalid if the emulator delivered more than 1 % of the packets of a link later than this.
    #[serde(default = "one_millisecond")]
    pub lateness_limit: Span,
    /// Approximate duration of a run in the quick size, for the estimate of the remaining time before the first run.
    #[serde(default = "ten_seconds")]
    pub run_takes: Span,
    /// Number of concurrent runs, each in its own sandbox.
    #[serde(default = "one")]
    pub jobs: u32,
    /// The clocks that the experiment may run with.
    #[serde(default)]
    pub clock: ExperimentClock,
    /// Factors on the horizontal and the vertical axis of a map of the figures.
    pub map: Option<[String; 2]>,
}

/// The clocks that an experiment may run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentClock {
    /// The experiment runs in virtual time only.
    Virtual,
    /// The experiment runs in real time only: its figures depend on the execution times of processes.
    Real,
    /// The experiment runs with either clock.
    #[default]
    Either,
}

impl ExperimentClock {
    /// Returns the value in experiment files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Real => "real",
            Self::Either => "either",
        }
    }
}

/// Number of runs of each treatment at each combination of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCounts {
    /// The number with `--quick`.
    pub quick: u32,
    /// The number with `--full`. A 95 % confidence interval of the median requires six or more.
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

/// `[[expect]]`: an expected result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The expectation in words. Default: generated from the other keys.
    pub what: Option<String>,
    /// The levels at which the result is expected. A factor that is not named may have any level; each matching
    /// combination of levels is then judged separately.
    #[serde(default, rename = "where")]
    pub levels: LevelFilter,
    /// The treatment that the expectation is about.
    pub treatment: String,
    /// The key of the metric. Default: the metric of the experiment.
    pub metric: Option<String>,
    /// Makes the figure the ratio to this treatment, paired within blocks.
    pub ratio_to: Option<String>,
    /// Makes the figure the ratio to the best of these treatments.
    #[serde(default)]
    pub ratio_to_best_of: Vec<String>,
    /// Makes the figure the ratio to the same treatment at these levels.
    #[serde(default)]
    pub ratio_to_level: BTreeMap<String, String>,
    /// Makes the figure the ratio to this metric of the same run.
    pub ratio_to_metric: Option<String>,
    /// Makes the figure the difference from this treatment.
    pub minus: Option<String>,
    /// Lower bound of the figure.
    pub at_least: Option<f64>,
    /// Upper bound of the figure.
    pub at_most: Option<f64>,
    /// Minimum share of the matching cells, from 0 to 1, in which the bounds must hold. Default: each cell is judged
    /// separately.
    pub share: Option<f64>,
    /// Upper bound of the figure as a multiple of the arithmetic [floor](crate::experiment::judge::floor) of the first
    /// or the last byte.
    pub over_floor: Option<f64>,
    /// Makes the figure this percentile, from 0 to 100, of the errors of
    /// [predictions](crate::experiment::judge::accuracy) over all matching cells.
    pub percentile: Option<f64>,
    /// Published figures without and with relays: the measured gain over `ratio_to` must be at least the published one.
    pub gain: Option<PublishedGrid>,
    /// Where `ratio_to` is better here than published, the figure must instead be at least this multiple of the
    /// [limit](crate::experiment::judge::limit).
    pub of_limit: Option<f64>,
    /// The treatment that measures only the slowest section; shown beside a gain.
    pub ceiling: Option<String>,
    /// The factor over whose levels the maximum of the figure is expected ...
    pub maximum_over: Option<String>,
    /// ... at this level.
    pub is: Option<String>,
    /// The published figure, with its unit.
    pub published: Option<String>,
    /// The published ratio, as a number.
    pub published_ratio: Option<f64>,
    /// A treatment shown beside `treatment` in the table of published figures: ekiden beside a present-day program, or
    /// the reverse.
    pub beside: Option<String>,
    /// The publication that the expectation comes from. Default: a requirement of the project itself.
    pub source: Option<String>,
    /// A remark for readers, such as the reason why the published figure cannot be reached here.
    pub remark: Option<String>,
}

/// `[workload]`: the transfers of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The host of the client.
    #[serde(default = "client")]
    pub client: String,
    /// The host of the server.
    #[serde(default = "server")]
    pub server: String,
    /// The protocol between client and server.
    pub protocol: Protocol,
    /// The server program. Default: nginx for HTTP, vsftpd for FTP, iperf3 for streams, the laboratory's own for blocks.
    pub program: Option<ServerProgram>,
    /// The program that fetches or sends.
    #[serde(default)]
    pub agent: Agent,
    /// Size of the file of one transfer. Only for files.
    pub file: Option<Bytes>,
    /// Amount that is written in blocks. Only for blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Bytes>,
    /// Size of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Bytes>,
    /// Pause between two blocks. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Span>,
    /// Time after which a transfer is stopped. A transfer in blocks is recorded with this duration; the duration of a
    /// file is extrapolated from the rate so far. Default: no cap; a transfer fails at the timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Span>,
    /// Number of concurrent bulk flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Short flows beside the bulk flows, one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<ShortFlowSettings>,
    /// Duration of a stream, of concurrent flows or of arrivals. Not for a single file.
    pub time: Option<SizedDuration>,
    /// Number of transfers of a run, one after another, each on its own connection.
    #[serde(default = "one")]
    pub transfers: u32,
    /// Idle time of the client between two transfers. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// Number of small unmeasured transfers before the measured ones, so that programs that keep idle connections
    /// already have some.
    #[serde(default)]
    pub warm_up_transfers: u32,
    /// Unmeasured transfers before the measured ones: samples for a relay that selects paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prime: Option<PrimeSettings>,
    /// Downloads that begin at fixed intervals for `time`, in place of transfers one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<ArrivalProcess>,
    /// Start of the transfers, since the start of the lab, like the times of events. Default: as soon as all programs
    /// are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Span>,
    /// Relays that are killed during the transfers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kill: Vec<RelayKill>,
    /// The relay whose path becomes worse during the transfers: a session whose first hop is this relay counts as not
    /// having left the path. Default: the path that most sessions use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worse: Option<String>,
    /// The hosts of the relays, in order from the client to the server.
    #[serde(default)]
    pub chain: Vec<String>,
    /// Rate limit of curl. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_rate: Option<Rate>,
    /// Rate limit of nginx. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_rate: Option<Rate>,
    /// The limit that the first relay is expected to report, such as `"down:loss"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<String>,
    /// The links whose packets are logged in both directions; the first is the link that the client sends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packet_log: Vec<String>,
    /// The groups that share the bottleneck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<FlowGroup>,
    /// Two groups: the metric `ratio` is the rate of the first divided by the rate of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[String; 2]>,
    /// Time at the start that is not measured, for groups and concurrent flows. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Span>,
    /// Upper bound of the random delay, drawn with the seed of the block, before the transfers or each group start.
    /// Default: no delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stagger: Option<Span>,
}

impl Workload {
    /// Returns the upper bound of the random delay before the transfers or a group.
    #[must_use]
    pub fn longest_start_delay(&self) -> Duration {
        self.stagger.map_or(Duration::ZERO, |stagger| stagger.0)
    }

    /// Returns the server program, by default that of the protocol.
    #[must_use]
    pub fn server_program(&self) -> ServerProgram {
        self.program.unwrap_or(ServerProgram::for_protocol(self.protocol))
    }

    /// Returns the sizes of all files that are fetched.
    pub fn file_sizes(&self) -> impl Iterator<Item = Bytes> {
        let primed = self.prime.iter().flat_map(|prime| prime.files.iter().copied());
        self.file.into_iter().chain(primed).chain(self.arrivals.iter().map(|arrivals| arrivals.file))
    }

    /// Returns the size of blocks that carry a timestamp, in bytes; `None` for blocks without a pause, which carry
    /// none.
    #[must_use]
    pub fn stamped_block_size(&self) -> Option<u64> {
        self.pause.and(self.block).map(|block| block.0)
    }
}

/// `prime`: files that are fetched repeatedly, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrimeSettings {
    /// Sizes of the files, in the order of fetching. Default: the file of the workload.
    #[serde(default)]
    pub files: Vec<Bytes>,
    /// Maximum number of fetched files. Default: no limit other than `time`.
    pub sessions: Option<usize>,
    /// Time in which fetches begin; the last file is fetched completely.
    pub time: Span,
    /// Pause between two fetches. Default: none.
    #[serde(default = "no_time")]
    pub pause: Span,
}

/// `[[workload.arrivals]]`: downloads of one size at fixed intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalProcess {
    /// Size of the file.
    pub file: Bytes,
    /// Interval between starts, independent of earlier transfers.
    pub every: Span,
}

/// `[[workload.kill]]`: a relay that is killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayKill {
    /// The host of the relay.
    pub relay: String,
    /// Time of the kill, since the start of the lab.
    pub at: Span,
}

const fn no_time() -> Span {
    Span(Duration::ZERO)
}
fn client() -> String {
    "client".into()
}
fn server() -> String {
    "server".into()
}
