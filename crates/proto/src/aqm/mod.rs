//! Queue management in integers: which packet is let in, which is marked, which is dropped, and why.
//!
//! The laboratory's queues and the tc programs of `ekiden aqm` decide by the same numbers: what is here is mirrored line
//! by line in C, and a replay of the same arrivals gives the same decisions, packet by packet. That asks for plainness:
//! integers of 64 bits, no signed division, no allocation, loops with small bounds. Whatever needs a power or a
//! floating-point number is computed once, from the settings, and is in a `Params` of plain fields, which the C program
//! is handed as they are; a `State` has plain fields, too.
//!
//! Nothing here holds packets. What waits is the caller's: a real queue, or a [`virtual_queue`].

pub mod auto;
pub mod dice;
pub mod flow;
pub mod fraction;
pub mod history;
pub mod priority;
pub mod red;
pub mod virtual_queue;

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Backlog {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

/// A packet that arrives, and what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ArrivingPacket {
    /// When, in nanoseconds. Never earlier than the arrival before.
    pub now: u64,
    /// Which packet it is, counted from 0: chance is by this number.
    pub number: u64,
    /// What waits before it, without what is on the line.
    pub backlog: Backlog,
    /// For how long nothing has waited, in nanoseconds, counted from the previous arrival at the earliest; 0 if
    /// something waits.
    pub idle: u64,
    /// The connection: [`flow::connection_hash`].
    pub flow: u32,
    /// The sender: [`flow::source_key`].
    pub source: u32,
    /// The packet's size, in bytes.
    pub bytes: u32,
    /// Whether a mark may stand for a drop (RFC 3168 section 5); 0 or 1.
    pub ecn_capable: u32,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is let in.
    Pass,
    /// It is let in, marked "congestion experienced".
    Mark,
    /// It is dropped.
    Drop(DropReason),
}

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// There is no room for it.
    Full,
    /// By the law of queue management.
    Early,
    /// The average is above the highest threshold: every packet is dropped.
    Forced,
}

/// How much may wait, and in which unit levels are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct QueueLimit {
    /// How much, at most [`MAX_LEVEL`].
    pub limit: u64,
    /// Whether it is bytes (1) or packets (0).
    pub in_bytes: u64,
}

/// The highest level there may be, in bytes or packets: 512 GiB. Products of levels and fractions fit 64 bits up to here.
pub const MAX_LEVEL: u64 = 1 << 39;

impl QueueLimit {
    /// What waits, in the unit of the limit.
    #[must_use]
    pub const fn level(&self, waiting: Backlog) -> u64 {
        if self.in_bytes != 0 { waiting.bytes } else { waiting.packets }
    }

    /// Whether the limit holds with the packet.
    #[must_use]
    pub const fn fits(&self, arrival: &ArrivingPacket) -> bool {
        let size = if self.in_bytes != 0 { arrival.bytes as u64 } else { 1 };
        self.level(arrival.backlog) + size <= self.limit
    }
}
