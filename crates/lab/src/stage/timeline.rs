//! Packets in the order of the time they are due.

use std::collections::VecDeque;

use crate::Nanos;
use crate::packet::Packet;

/// Packets by the time in `at`; those due at the same time keep the order they came in.
#[derive(Debug, Default)]
pub struct PacketSchedule(VecDeque<Packet>);

impl PacketSchedule {
    /// Puts a packet in its place. Cheap if it is among the last.
    pub fn insert(&mut self, packet: Packet) {
        if self.0.back().is_none_or(|last| last.at <= packet.at) {
            self.0.push_back(packet);
        } else {
            let place = self.0.partition_point(|other| other.at <= packet.at);
            self.0.insert(place, packet);
        }
    }

    /// When the first is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.0.front().map(|packet| packet.at)
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<Packet> {
        self.0.pop_front()
    }

    /// When the last is due.
    #[must_use]
    pub fn last_due(&self) -> Option<Nanos> {
        self.0.back().map(|packet| packet.at)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
