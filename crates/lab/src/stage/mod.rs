//! What an emulated wire does to packets, one thing each, in virtual time. A stage never asks for the time: it is told.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::Ledger;
use crate::packet::Packet;

/// A stage answers four questions, and may be changed while packets are in it.
pub trait Stage: Send {
    /// Takes a packet that reached it at `packet.at`. Times never go back.
    fn push(&mut self, packet: Packet, ledger: &mut Ledger);

    /// When the next packet leaves, if nothing else comes before.
    fn next(&self) -> Option<Nanos>;

    /// The packet that leaves at `next()`, stamped with that time. Called only when there is one.
    fn pop(&mut self, ledger: &mut Ledger) -> Option<Packet>;

    /// How many packets it holds.
    fn held(&self) -> usize;

    /// New conditions, from `now` on. Packets already inside keep what they were promised.
    fn change(&mut self, conditions: &Conditions, now: Nanos);
}
