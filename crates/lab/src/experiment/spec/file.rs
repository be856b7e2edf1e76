//! The parts of an experiment file beside the lab, among them `[workload]`, with every default filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use super::factor::LevelFilter;
use super::group::{FlowGroup, ShortFlowSettings};
use crate::experiment::judge::gain::PublishedGrid;
use crate::program::agent::Agent;
use crate::program::server::{Protocol, ServerProgram};

/// The keys at the top of an experiment file that are not the lab's.
pub const TOP_LEVEL_KEYS: [&str; 8] =
    ["title", "source", "workload", "background", "treatment", "experiment", "factor", "expect"];

/// How long something takes in each size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizedDuration {
    /// The duration with `--quick`.
    pub quick: Span,
    /// The duration with `--full`.
    pub full: Span,
}

impl SizedDuration {
    /// In one of the two sizes.
    #[must_use]
    pub const fn for_size(&self, full: bool) -> Duration {
        if full { self.full.0 } else { self.quick.0 }
    }
}

/// `[[background]]`: cross traffic while the client works, made by iperf3.
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

/// `[experiment]`: the treatments, and how they are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSettings {
    /// The treatments in order; the first is the base of comparison.
    pub treatments: Vec<String>,
    /// How many times each treatment runs.
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
    /// The clocks that it may run with.
    #[serde(default)]
    pub clock: ExperimentClock,
    /// Two factors over which figures are drawn as a map: across and up.
    pub map: Option<[String; 2]>,
}

/// The clocks that an experiment may run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentClock {
    /// The experiment runs in virtual time only.
    Virtual,
    /// Only in real time: its figures depend on the time that processes take.
    Real,
    /// The experiment runs with either clock.
    #[default]
    Either,
}

impl ExperimentClock {
    /// The word in experiment files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Real => "real",
            Self::Either => "either",
        }
    }
}

/// How many times each treatment runs at each combination of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCounts {
    /// The number with `--quick`.
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

/// `[[expect]]`: an expected result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// In words. Default: made of the rest.
    pub what: Option<String>,
    /// At which levels; factors that are absent may have any: then this is one expectation for each.
    #[serde(default, rename = "where")]
    pub levels: LevelFilter,
    /// The treatment that the expectation is about.
    pub treatment: String,
    /// By which figure. Default: the experiment's.
    pub metric: Option<String>,
    /// The figure is the ratio to this treatment, paired within blocks.
    pub ratio_to: Option<String>,
    /// The figure is the ratio to the best of these treatments.
    #[serde(default)]
    pub ratio_to_best_of: Vec<String>,
    /// The figure is the ratio to the same treatment at these levels.
    #[serde(default)]
    pub ratio_to_level: BTreeMap<String, String>,
    /// The figure is the ratio to this metric of the same run.
    pub ratio_to_metric: Option<String>,
    /// The figure is the difference to this treatment.
    pub minus: Option<String>,
    /// It is at least this.
    pub at_least: Option<f64>,
    /// It is at most this.
    pub at_most: Option<f64>,
    /// It holds in at least this share of the places it is about, from 0 to 1. Default: it is judged at each.
    pub share: Option<f64>,
    /// It is at most so many times the arithmetic [floor](crate::experiment::judge::floor) of the first byte.
    pub over_floor: Option<f64>,
    /// It is this percentile over all places together, of the error of [predictions](crate::experiment::judge::accuracy).
    pub percentile: Option<f64>,
    /// It is at least the gain that was published, over `ratio_to`.
    pub gain: Option<PublishedGrid>,
    /// Where `ratio_to` is better here than published, the figure is at least so many times the
    /// [limit](crate::experiment::judge::limit) instead.
    pub of_limit: Option<f64>,
    /// The treatment that measures the slowest section alone, shown beside a gain.
    pub ceiling: Option<String>,
    /// It is largest, over the levels of this factor, ...
    pub maximum_over: Option<String>,
    /// ... at this one.
    pub is: Option<String>,
    /// The published figure, with its unit.
    pub published: Option<String>,
    /// The ratio that was published.
    pub published_ratio: Option<f64>,
    /// A treatment shown beside this one in the table of published figures: ekiden beside a program of today, or a
    /// program of today beside ekiden.
    pub beside: Option<String>,
    /// Where. Default: the project's own bar.
    pub source: Option<String>,
    /// A remark for readers, as why the published figure cannot be reached here.
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
    /// How much the client fetches in one transfer. Not of streams.
    pub file: Option<Bytes>,
    /// How much is written in blocks. Not of anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Bytes>,
    /// How large a block is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Bytes>,
    /// How long after each block the next one is written. Default: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Span>,
    /// Time after which writing stops and counts as completed; a file counts as if the rest had come at that rate.
    /// Default: a transfer that takes too long fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Span>,
    /// How many flows there are at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Short flows beside them, one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<ShortFlowSettings>,
    /// How long a stream is. Not of files.
    pub time: Option<SizedDuration>,
    /// How many transfers a run is, one after the other, each on a connection of its own.
    #[serde(default = "one")]
    pub transfers: u32,
    /// How long the client does nothing between two transfers. Default: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// How many small transfers come before them and do not count: programs that keep connections have some by then.
    #[serde(default)]
    pub warm_up_transfers: u32,
    /// Transfers before those that count: samples for a relay that selects paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prime: Option<PrimeSettings>,
    /// Downloads that begin every so often, for the time, rather than one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<ArrivalProcess>,
    /// When they begin, since the lab started, as events tell their time. Default: when all is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Span>,
    /// Relays that are killed while transfers are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kill: Vec<RelayKill>,
    /// The relay whose way becomes worse then: sessions that go to it first have not left. Default: the path most take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worse: Option<String>,
    /// The hosts at which relays stand, from the client's end.
    #[serde(default)]
    pub chain: Vec<String>,
    /// How fast curl reads. Default: as fast as it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_rate: Option<Rate>,
    /// How fast nginx writes. Default: as fast as it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_rate: Option<Rate>,
    /// The limit that the first relay should report: `"down:loss"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<String>,
    /// The links whose packets are written down; the first is where the client sends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packet_log: Vec<String>,
    /// The groups that share the bottleneck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<FlowGroup>,
    /// The group whose rates are compared, and the one they are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[String; 2]>,
    /// How much of the time, at its start, does not count where several share, or of flows. Default: none of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Span>,
    /// The transfers, or each group that shares, start after a delay below this, which the seed of the block gives.
    /// Default: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stagger: Option<Span>,
}

impl Workload {
    /// The longest delay before the transfers, or a group that shares.
    #[must_use]
    pub fn longest_start_delay(&self) -> Duration {
        self.stagger.map_or(Duration::ZERO, |stagger| stagger.0)
    }

    /// The server program, by default that of the protocol.
    #[must_use]
    pub fn server_program(&self) -> ServerProgram {
        self.program.unwrap_or(ServerProgram::for_protocol(self.protocol))
    }

    /// The sizes of all files that are fetched.
    pub fn file_sizes(&self) -> impl Iterator<Item = Bytes> {
        let primed = self.prime.iter().flat_map(|prime| prime.files.iter().copied());
        self.file.into_iter().chain(primed).chain(self.arrivals.iter().map(|arrivals| arrivals.file))
    }

    /// The size of blocks that carry their time, in bytes.
    #[must_use]
    pub fn stamped_block_size(&self) -> Option<u64> {
        self.pause.and(self.block).map(|block| block.0)
    }
}

/// `prime`: files fetched one after the other, again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrimeSettings {
    /// How large they are, in this order. Default: the file of the workload.
    #[serde(default)]
    pub files: Vec<Bytes>,
    /// How many at most. Default: as many as there is time for.
    pub sessions: Option<usize>,
    /// For how long; the last is fetched to its end.
    pub time: Span,
    /// How long it is quiet between two. Default: not at all.
    #[serde(default = "no_time")]
    pub pause: Span,
}

/// `[[workload.arrivals]]`: downloads of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalProcess {
    /// How large the file is.
    pub file: Bytes,
    /// Interval between starts, independent of earlier transfers.
    pub every: Span,
}

/// `[[workload.kill]]`: a relay that ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayKill {
    /// The host at which it stands.
    pub relay: String,
    /// When, since the lab started.
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
