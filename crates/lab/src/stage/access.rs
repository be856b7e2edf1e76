//! The sender's own interface. A superpacket leaves a host in one instant; a real interface spreads it at its line rate, and
//! without that every queue behind it looks harsher than it is.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::StageEvents;
use crate::packet::Packet;
use crate::stage::timeline::PacketSchedule;
use crate::stage::{Stage, transmission_time};

/// Sends packets one after the other at a rate, and keeps as many waiting as there are.
#[derive(Debug)]
pub struct AccessRateStage {
    bits_per_second: Option<u64>,
    busy_until: Nanos,
    waiting: PacketSchedule,
}

impl AccessRateStage {
    /// An interface of `access_rate`; without one it takes no time.
    #[must_use]
    pub fn new(conditions: &Conditions) -> Self {
        let bits_per_second = conditions.access_rate.map(|rate| rate.bits_per_second());
        Self { bits_per_second, busy_until: 0, waiting: PacketSchedule::default() }
    }
}

impl Stage for AccessRateStage {
    fn push(&mut self, mut packet: Packet, _: &mut StageEvents) {
        self.busy_until = packet.at.max(self.busy_until) + transmission_time(packet.bytes, self.bits_per_second);
        packet.at = self.busy_until;
        self.waiting.insert(packet);
    }

    fn next_departure(&self) -> Option<Nanos> {
        self.waiting.next_due()
    }

    fn pop(&mut self, _: &mut StageEvents) -> Option<Packet> {
        self.waiting.pop()
    }

    fn packet_count(&self) -> usize {
        self.waiting.len()
    }

    fn set_conditions(&mut self, conditions: &Conditions, _: Nanos, _: &mut StageEvents) {
        self.bits_per_second = conditions.access_rate.map(|rate| rate.bits_per_second());
    }
}
