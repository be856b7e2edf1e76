//! What an emulated wire does to packets, one thing each, in virtual time. A stage never asks for the time: it is told.

use std::collections::VecDeque;

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::StageEvents;
use crate::packet::Packet;

pub mod delay;
pub mod line;
pub mod loss;

/// A stage answers four questions, and may be changed while packets are in it.
pub trait Stage: Send {
    /// Takes a packet that reached it at `packet.at`. Times never go back.
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents);

    /// When the next packet leaves, if nothing else comes before.
    fn next_departure(&self) -> Option<Nanos>;

    /// The packet that leaves at `next()`, stamped with that time. `None` if there is none after all.
    fn pop(&mut self, ledger: &mut StageEvents) -> Option<Packet>;

    /// How many packets it holds.
    fn packet_count(&self) -> usize;

    /// New conditions, from `now` on. A packet already under way keeps what it was promised.
    fn set_conditions(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut StageEvents);

    /// The least time it holds any packet: so long may whoever drives it look away.
    fn min_delay(&self) -> Nanos {
        0
    }
}

/// How long a line sends a packet of `bytes`, to the nearest nanosecond; without a rate no time.
#[must_use]
pub fn transmission_time(bytes: u32, bits_per_second: Option<u64>) -> Nanos {
    // 8e9 times the largest superpacket is far below 2^64.
    bits_per_second.map_or(0, |rate| (u64::from(bytes) * 8_000_000_000 + rate / 2) / rate)
}

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

#[cfg(test)]
mod tests;
