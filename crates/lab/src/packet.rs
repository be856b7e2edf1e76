//! What a stage sees of a packet: one frame of the wire, or one segment of a superpacket that will become one.

use crate::Nanos;

/// Explicit congestion notification in the IP header (RFC 3168 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// The transport does not understand marks; congestion is told by drops.
    #[default]
    NotCapable,
    /// A mark may stand for a drop.
    Capable,
    /// Marked "congestion experienced".
    Marked,
}

/// One packet on its way through a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Which packet of its direction it is, counted from 0 at ingress. Random decisions are made by this number.
    pub number: u64,
    /// Where it is in time: when it reached the stage it is handed to, when it left the one that handed it out.
    pub at: Nanos,
    /// Its size as the link counts it, in bytes.
    pub bytes: u32,
    /// A hash of its addresses, protocol and ports: the same for all packets of a connection.
    pub flow: u32,
    /// Who sent it: its IPv4 address, or a hash of its IPv6 address ([`ekiden_proto::aqm::flow::source_key`]).
    pub source: u32,
    /// What congestion marks it carries.
    pub ecn: Ecn,
    /// The emulator's own: which bytes these are. Stages pass it on.
    pub tag: u64,
}
