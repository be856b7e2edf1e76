//! Stages of an emulated link, in virtual time. Each stage models one effect. Callers pass the time; a stage reads no
//! clock.

use std::collections::VecDeque;

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::StageEvents;
use crate::packet::Packet;

pub mod delay;
pub mod line;
pub mod loss;

/// A stage of a pipeline. Conditions may change while packets are in the stage.
pub trait Stage: Send {
    /// Takes a packet that arrives at `packet.at`. Times never decrease.
    fn push(&mut self, packet: Packet, ledger: &mut StageEvents);

    /// Returns the time of the next departure without another push.
    fn next_departure(&self) -> Option<Nanos>;

    /// Removes the packet that leaves at [`next_departure`](Self::next_departure), with that time in `at`. Returns
    /// `None` if the stage drops it.
    fn pop(&mut self, ledger: &mut StageEvents) -> Option<Packet>;

    /// Returns the number of packets in the stage.
    fn packet_count(&self) -> usize;

    /// Applies new conditions from `now` on. Packets already scheduled keep their times.
    fn set_conditions(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut StageEvents);

    /// Returns the minimum time that the stage holds any packet, in nanoseconds. The driver may push packets late by up
    /// to this time.
    fn min_delay(&self) -> Nanos {
        0
    }
}

/// Returns the transmission time of a packet of `bytes`, rounded to the nearest nanosecond; 0 without a rate.
#[must_use]
pub fn transmission_time(bytes: u32, bits_per_second: Option<u64>) -> Nanos {
    // No overflow: 8e9 times the largest superpacket is far below 2^64.
    bits_per_second.map_or(0, |rate| (u64::from(bytes) * 8_000_000_000 + rate / 2) / rate)
}

/// Packets in order of the time in `at`. Packets with equal times keep their order of arrival.
#[derive(Debug, Default)]
pub struct PacketSchedule(VecDeque<Packet>);

impl PacketSchedule {
    /// Inserts a packet in order. Cheap near the end.
    pub fn insert(&mut self, packet: Packet) {
        if self.0.back().is_none_or(|last| last.at <= packet.at) {
            self.0.push_back(packet);
        } else {
            let index = self.0.partition_point(|other| other.at <= packet.at);
            self.0.insert(index, packet);
        }
    }

    /// Returns the time of the first packet.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.0.front().map(|packet| packet.at)
    }

    /// Removes the first packet.
    pub fn pop(&mut self) -> Option<Packet> {
        self.0.pop_front()
    }

    /// Returns the time of the last packet.
    #[must_use]
    pub fn last_due(&self) -> Option<Nanos> {
        self.0.back().map(|packet| packet.at)
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the schedule has no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
