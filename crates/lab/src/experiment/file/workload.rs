//! `[workload]`: who transfers what, when, and what is done to relays meanwhile.

use std::time::Duration;

use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use super::{SizedDuration, one};
use crate::experiment::group::{FlowGroup, ShortFlowSettings};
use crate::program::agent::Agent;
use crate::program::server::{Protocol, ServerProgram};

/// `[workload]`: who transfers what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The host of the client.
    #[serde(default = "client")]
    pub client: String,
    /// The host of the server.
    #[serde(default = "server")]
    pub server: String,
    /// What they speak.
    pub protocol: Protocol,
    /// The server program. Default: nginx for HTTP, vsftpd for FTP, iperf3 for streams, the laboratory's own for blocks.
    pub program: Option<ServerProgram>,
    /// What fetches files.
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
    /// After how long writing is stopped, and counts as having taken that long; a file counts as if the rest had come as fast.
    /// Default: who takes too long has failed.
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
    /// How many small transfers come before them and do not count: programs that keep connections have some by then.
    #[serde(default)]
    pub warm_up_transfers: u32,
    /// What is fetched before them and does not count: so a relay that chooses has something to choose by.
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
    /// What the first relay is to name as what held the transfer back: `"down:loss"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<String>,
    /// The links whose packets are written down; the first is where the client sends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packet_log: Vec<String>,
    /// Who shares the bottleneck.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<FlowGroup>,
    /// The group whose rates are compared, and the one they are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[String; 2]>,
    /// How much of the time, at its start, does not count where several share, or of flows. Default: none of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Span>,
}

impl Workload {
    /// The server program.
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
    /// One begins every so often, whatever became of those before it.
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
