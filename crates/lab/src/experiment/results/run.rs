//! One run: what came of a treatment once, as a line of `runs.jsonl`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::emulator::DirectionReport;
use crate::experiment::sequence::SequencePlot;

/// One run: one line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The block it belongs to, from 0.
    pub block: u32,
    /// Its place in the order of all runs, from 0.
    pub order: u32,
    /// Factor and level.
    pub levels: BTreeMap<String, String>,
    /// The treatment.
    pub treatment: String,
    /// Figures by key: `mb_s`, `seconds`, `first_byte_ms`, `bytes`, ...
    pub metrics: BTreeMap<String, f64>,
    /// Why it does not count, if it does not.
    pub invalid: Option<String>,
    /// What a reader should know about it.
    pub warnings: Vec<String>,
    /// What the groups that shared a bottleneck got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRun>,
    /// Each session, where a relay had a choice of paths, or downloads came all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionRun>,
    /// What the links did.
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

/// What came of one group of connections in a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupRun {
    /// Its name.
    pub name: String,
    /// The congestion control that its connections had, as the kernel said.
    pub congestion: String,
    /// Mbit/s over all its connections together.
    pub mbit_s: f64,
    /// Mbit/s over each connection; of short flows none.
    pub rates: Vec<f64>,
    /// Packets that were sent again, where somebody counted.
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
    /// The relays in order, joined by `-`, or `direct`; none if it failed, or nobody had a choice.
    pub path: Option<String>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
