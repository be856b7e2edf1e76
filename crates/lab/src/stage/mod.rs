//! What an emulated wire does to packets, one thing each, in virtual time. A stage never asks for the time: it is told.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::StageEvents;
use crate::packet::Packet;

pub mod access;
pub mod delay;
pub mod duplicate;
pub mod gate;
pub mod line;
pub mod loss;
pub mod reorder;
pub mod timeline;

#[cfg(test)]
mod tests;

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
