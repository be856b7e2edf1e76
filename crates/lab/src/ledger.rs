//! What happened to packets other than passing: every drop has a cause, and none is silent.

use serde::{Deserialize, Serialize};

use crate::packet::Packet;
use crate::waits::QueueDelayHistogram;

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropCause {
    /// The link was down.
    Down,
    /// Random or patterned loss before the queue.
    IngressLoss,
    /// The queue was full.
    Full,
    /// Queue management dropped early, by its law.
    Early,
    /// Queue management dropped because its average was above the highest threshold.
    Forced,
    /// Random or patterned loss behind the queue.
    WireLoss,
    /// The emulator had no memory left to hold it.
    Memory,
}

impl DropCause {
    /// In words.
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

/// A drop: the packet, with `at` the time it was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedPacket {
    /// The packet as it was.
    pub packet: Packet,
    /// Why.
    pub cause: DropCause,
}

/// What stages write down. Whoever drives them reads it after each step, and empties it.
#[derive(Debug, Default)]
pub struct StageEvents {
    /// Packets that will not arrive.
    pub dropped: Vec<DroppedPacket>,
    /// Packets that were duplicated: the copy has the same number and tag.
    pub duplicated: Vec<Packet>,
    /// How long those that went onto the line had waited for it. Nobody empties this.
    pub queue_delays: QueueDelayHistogram,
}

impl StageEvents {
    /// Writes a drop down.
    pub fn record_drop(&mut self, packet: Packet, cause: DropCause) {
        self.dropped.push(DroppedPacket { packet, cause });
    }
}
