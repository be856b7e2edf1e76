//! Counters of one direction of a link.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lateness::LatenessHistogram;
use crate::ledger::DropCause;
use crate::waits::QueueDelayHistogram;

/// Counters of one direction of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Name of the link.
    pub link: String,
    /// Name of the sending host.
    pub from: String,
    /// Name of the receiving host.
    pub to: String,
    /// Whether packets were sent one by one.
    pub exact: bool,
    /// Packets received from the wire.
    pub packets_in: u64,
    /// Bytes received, in the link's accounting.
    pub bytes_in: u64,
    /// Packets sent to the wire.
    pub packets_out: u64,
    /// Bytes sent, in the link's accounting.
    pub bytes_out: u64,
    /// Frames received. A superpacket counts as one frame.
    pub frames_in: u64,
    /// Frames sent. A superpacket counts as one frame.
    pub frames_out: u64,
    /// Dropped packets, by cause.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Duplicates of packets created.
    pub copied: u64,
    /// Packets dropped by the kernel before the emulator or refused from it. The run is invalid unless this is 0.
    pub hidden: u64,
    /// Lateness of sent packets.
    pub lateness: LatenessHistogram,
    /// Queueing delays of packets.
    #[serde(default)]
    pub waits: QueueDelayHistogram,
}
