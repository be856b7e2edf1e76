//! Records of the packets of a direction, for checks of the emulator and for packet logs.

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::frame::TcpHeader;
use crate::ledger::DropCause;
use crate::packet::Packet;

/// Records per chunk. Growth of a single list would occasionally copy all records, which takes milliseconds.
const CHUNK_LEN: usize = 1024;

/// Record of one packet, for checks of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// The packet, with its arrival in `at`.
    pub packet: Packet,
    /// Index of the packet in its superpacket, and number of segments of the superpacket.
    pub segment: (u16, u16),
    /// TCP header, of TCP packets.
    pub tcp: Option<TcpHeader>,
    /// Outcome of the packet so far.
    pub outcome: PacketOutcome,
}

/// Outcome of a packet. Times are nanoseconds since the start of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketOutcome {
    /// Neither sent nor dropped yet.
    InFlight,
    /// Sent to the receiving host.
    Delivered {
        /// Ideal time of the departure.
        ideal: Nanos,
        /// Actual time of the departure.
        actual: Nanos,
        /// Whether the packet was marked on the way.
        marked: bool,
    },
    /// Dropped for this cause at this time.
    Dropped(DropCause, Nanos),
}

/// Selection of the packets to record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Recording {
    /// No packets, at no cost.
    #[default]
    None,
    /// All packets on all links, as long as memory lasts.
    All,
    /// Packets of these links, the first [`MAX_LOGGED_PACKETS`] of each direction.
    Links(Vec<String>),
}

/// Maximum number of packets in the log of a direction, about 30 MB.
pub const MAX_LOGGED_PACKETS: usize = 200_000;

impl Recording {
    /// Returns the maximum number of records for each direction of a link.
    pub(crate) fn limit_for(&self, link: &str) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Links(links) if links.iter().any(|name| name == link) => MAX_LOGGED_PACKETS,
            Self::None | Self::Links(_) => 0,
        }
    }
}

/// Records in order of packet numbers.
#[derive(Debug)]
pub struct RecordBuffer {
    chunks: Vec<Vec<PacketRecord>>,
    /// Number of records that still fit.
    remaining: usize,
}

impl RecordBuffer {
    /// Creates a buffer for `capacity` packets, or `None` if `capacity` is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Option<Self> {
        (capacity > 0).then_some(Self { chunks: Vec::new(), remaining: capacity })
    }

    /// Appends a record if there is room. Its packet number must be greater than all earlier numbers.
    pub fn push(&mut self, record: PacketRecord) {
        let Some(remaining) = self.remaining.checked_sub(1) else { return };
        self.remaining = remaining;
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_LEN => chunk.push(record),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_LEN);
                chunk.push(record);
                self.chunks.push(chunk);
            }
        }
    }

    /// Returns the record of packet `number`.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut PacketRecord> {
        let starts_by = |chunk: &Vec<PacketRecord>| chunk.first().is_some_and(|record| record.packet.number <= number);
        let chunk = self.chunks.partition_point(starts_by).checked_sub(1)?;
        let index = self.chunks[chunk].binary_search_by_key(&number, |record| record.packet.number).ok()?;
        self.chunks[chunk].get_mut(index)
    }

    /// Returns all records, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<PacketRecord> {
        self.chunks.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;

    fn record(number: u64) -> PacketRecord {
        let packet = Packet { number, at: 0, bytes: 1, flow: 0, source: 0, ecn: Ecn::NotCapable, tag: 0 };
        PacketRecord { packet, segment: (0, 1), tcp: None, outcome: PacketOutcome::InFlight }
    }

    #[test]
    fn record_buffer_is_limited_to_its_length() {
        assert!(RecordBuffer::new(0).is_none(), "without recording there is no cost per packet");
        let mut records = RecordBuffer::new(3).unwrap();
        (0..9).for_each(|number| records.push(record(number)));
        assert_eq!(records.to_vec().iter().map(|record| record.packet.number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(records.get_mut(2).is_some() && records.get_mut(3).is_none());
    }

    #[test]
    fn every_record_is_found_by_its_number() {
        let mut records = RecordBuffer::new(usize::MAX).unwrap();
        assert!(records.get_mut(0).is_none());
        // Superpackets that are not segmented leave gaps between numbers.
        let numbers: Vec<u64> = (0..3 * CHUNK_LEN as u64).map(|index| 3 * index).collect();
        for number in &numbers {
            records.push(record(*number));
        }
        assert!(
            numbers.iter().all(|number| records.get_mut(*number).is_some_and(|found| found.packet.number == *number))
        );
        assert!(records.get_mut(1).is_none() && records.get_mut(9 * CHUNK_LEN as u64).is_none());
        assert_eq!(records.to_vec().len(), numbers.len());
    }
}
