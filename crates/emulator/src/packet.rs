//! A packet as stages see it: a frame on the wire, or a segment of a superpacket before segmentation.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Explicit congestion notification in the IP header (RFC 3168 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Ecn {
    /// The transport does not support ECN; congestion is signalled by drops.
    #[default]
    NotCapable,
    /// The transport supports ECN; a mark may replace a drop.
    Capable,
    /// Marked with "congestion experienced".
    Marked,
}

/// A packet in a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Number of the packet in its direction, from 0 at ingress. Random decisions depend on it.
    pub number: u64,
    /// Time of arrival at the stage that takes the packet, or of departure from the stage that returns it.
    pub at: Nanos,
    /// Size in the link's [`SizeAccounting`](crate::conditions::SizeAccounting), in bytes.
    pub bytes: u32,
    /// Hash of addresses, protocol and ports, equal for all packets of a connection.
    pub flow: u32,
    /// IPv4 address of the sender, or a hash of its IPv6 address ([`ekiden_proto::aqm::source_key`]).
    pub source: u32,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Reference to the bytes of the packet in the emulator. Stages do not interpret it.
    pub tag: u64,
}
