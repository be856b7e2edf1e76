//! Events of packets other than forwarding, and the counters of a direction. Every drop is recorded with its cause.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lateness::LatenessHistogram;
use crate::packet::Packet;
use crate::waits::QueueDelayHistogram;

/// Cause of a packet drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropCause {
    /// The link was down.
    Down,
    /// Random or patterned loss before the queue.
    IngressLoss,
    /// The queue was full.
    Full,
    /// Queue management dropped the packet before the queue was full.
    Early,
    /// Queue management dropped the packet because its average was above the highest threshold.
    Forced,
    /// Random or patterned loss behind the queue.
    WireLoss,
    /// The emulator had no memory left for the packet.
    Memory,
}

impl DropCause {
    /// Returns the cause in words, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "link down",
            Self::IngressLoss => "ingress loss",
            Self::Full => "queue full",
            Self::Early => "early",
            Self::Forced => "forced",
            Self::WireLoss => "wire loss",
            Self::Memory => "no memory",
        }
    }
}

/// A dropped packet and its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedPacket {
    /// The packet, with the time of the drop in `at`.
    pub packet: Packet,
    /// Cause of the drop.
    pub cause: DropCause,
}

/// Events recorded by stages. The driver of the stages reads and empties the lists after each step.
#[derive(Debug, Default)]
pub struct StageEvents {
    /// Packets dropped since the lists were last emptied.
    pub dropped: Vec<DroppedPacket>,
    /// Packets duplicated since the lists were last emptied. A copy has the number and tag of its original.
    pub duplicated: Vec<Packet>,
    /// Queueing delays of the packets sent onto the line. This histogram is cumulative.
    pub queue_delays: QueueDelayHistogram,
}

impl StageEvents {
    /// Records a drop at `packet.at`.
    pub fn record_drop(&mut self, packet: Packet, cause: DropCause) {
        self.dropped.push(DroppedPacket { packet, cause });
    }
}

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
