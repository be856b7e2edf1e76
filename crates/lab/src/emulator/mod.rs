//! The one place with a real clock.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::ledger::Cause;
use crate::packet::Packet;
use crate::topology::Link;

/// Where an end of a link is plugged in.
#[derive(Debug, Clone)]
pub enum Port {
    /// An interface of this network namespace (the wire room), by name.
    Interface(String),
    /// A TUN device of the host itself; each packet begins with a `virtio_net_hdr`.
    Tun(Arc<OwnedFd>),
}

/// One emulated link.
#[derive(Debug, Clone)]
pub struct Wire {
    /// The name of the link.
    pub name: String,
    /// Where it is plugged in, in the order of the link's ends.
    pub ports: [Port; 2],
    /// What it is like.
    pub link: Link,
}

/// What a direction of a link did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The link.
    pub link: String,
    /// From which host.
    pub from: String,
    /// To which host.
    pub to: String,
    /// Whether packets were handed over one by one.
    pub exact: bool,
    /// Packets of the wire that came in.
    pub packets_in: u64,
    /// Bytes that came in, as the link counts them.
    pub bytes_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Frames read and written: superpackets count once.
    pub frames_in: u64,
    /// See `frames_in`.
    pub frames_out: u64,
    /// Packets dropped, by cause.
    pub dropped: BTreeMap<Cause, u64>,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets copied.
    pub copied: u64,
    /// Packets that the kernel dropped before the emulator, or refused from it. Not zero: the run is invalid.
    pub hidden: u64,
    /// How late packets were handed over.
    pub lateness: Lateness,
}

/// How late packets left the emulator, against their ideal time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// The upper bounds of the buckets, in nanoseconds, ascending; the last is open.
    pub bounds: Vec<Nanos>,
    /// How many packets are in each.
    pub counts: Vec<u64>,
    /// The latest of all.
    pub max: Nanos,
}

impl Lateness {
    /// The lateness that a share `q` of the packets did not exceed: an upper bound of its bucket.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Nanos {
        let total: u64 = self.counts.iter().sum();
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        let wanted = (total as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            seen += count;
            if seen >= wanted {
                return (*bound).min(self.max);
            }
        }
        self.max
    }
}

/// What became of one packet, for those who check the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The packet as it arrived: `at` is the arrival.
    pub packet: Packet,
    /// Which segment of its superpacket it was, and of how many.
    pub segment: (u16, u16),
    /// What became of it.
    pub fate: Fate,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was handed over.
    Delivered {
        /// When it should have been.
        ideal: Nanos,
        /// When it was.
        actual: Nanos,
        /// Whether it arrived marked.
        marked: bool,
    },
    /// It was dropped at this time.
    Dropped(Cause, Nanos),
}
