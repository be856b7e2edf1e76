//! What an emulated wire does to packets, one thing each, in virtual time. A stage never asks for the time: it is told.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::Ledger;
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
    fn push(&mut self, packet: Packet, ledger: &mut Ledger);

    /// When the next packet leaves, if nothing else comes before.
    fn next(&self) -> Option<Nanos>;

    /// The packet that leaves at `next()`, stamped with that time. `None` if there is none after all.
    fn pop(&mut self, ledger: &mut Ledger) -> Option<Packet>;

    /// How many packets it holds.
    fn held(&self) -> usize;

    /// New conditions, from `now` on. A packet already under way keeps what it was promised.
    fn change(&mut self, conditions: &Conditions, now: Nanos, ledger: &mut Ledger);

    /// The least time it holds any packet: so long may whoever drives it look away.
    fn least(&self) -> Nanos {
        0
    }
}

/// How long a line sends a packet of `bytes`, to the nearest nanosecond; without a rate no time.
#[must_use]
pub fn transmission(bytes: u32, bits_per_second: Option<u64>) -> Nanos {
    // 8e9 times the largest superpacket is far below 2^64.
    bits_per_second.map_or(0, |rate| (u64::from(bytes) * 8_000_000_000 + rate / 2) / rate)
}
