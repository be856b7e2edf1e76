//! What the program counts.

use std::net::SocketAddr;

use serde::Serialize;

/// What the program has counted. In superpackets of a network card or of the kernel, one is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Of this host's own sockets: let through.
    pub own: u64,
    /// Not IP: let through.
    pub other: u64,
    /// Let through.
    pub passed: u64,
    /// Let through, marked.
    pub marked: u64,
    /// Dropped: no room.
    pub full: u64,
    /// Dropped by the law.
    pub early: u64,
    /// Dropped: the average was above every threshold.
    pub forced: u64,
    /// Packets let through, with those that superpackets will be cut into.
    pub packets: u64,
    /// Bytes let through.
    pub bytes: u64,
    /// The sum of what waited before each packet, in bytes.
    #[serde(skip)]
    pub waited: u64,
    /// What waited before the last packet, in bytes.
    #[serde(skip)]
    pub waiting: u64,
    /// Let through, for other processors were at it for too long.
    pub missed: u64,
}

/// What one connection was let to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// From where; the port is 0 where there is none.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Bytes let through; wraps, so that only differences say something.
    #[serde(skip)]
    pub bytes: u32,
    /// Bytes marked or dropped; wraps.
    #[serde(skip)]
    pub hit: u32,
}

/// What a connection did while it was watched.
pub(super) struct ConnectionDelta {
    /// It.
    pub(super) connection: Connection,
    /// Bytes let through.
    pub(super) bytes: u32,
    /// Bytes marked or dropped.
    pub(super) hit: u32,
}

impl Counters {
    /// Packets that have arrived.
    #[must_use]
    pub const fn arrived(&self) -> u64 {
        self.own + self.other + self.missed + self.judged()
    }

    /// Packets that were judged.
    const fn judged(&self) -> u64 {
        self.passed + self.marked + self.dropped()
    }

    /// Packets that were dropped.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.full + self.early + self.forced
    }

    /// What was counted since then.
    pub(super) const fn since(&self, before: &Self) -> Self {
        Self {
            own: self.own - before.own,
            other: self.other - before.other,
            passed: self.passed - before.passed,
            marked: self.marked - before.marked,
            full: self.full - before.full,
            early: self.early - before.early,
            forced: self.forced - before.forced,
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            waited: self.waited - before.waited,
            waiting: self.waiting,
            missed: self.missed - before.missed,
        }
    }
}

impl Connection {
    /// What makes it one.
    pub(super) const fn key(&self) -> (SocketAddr, SocketAddr, u8) {
        (self.source, self.destination, self.protocol)
    }
}
