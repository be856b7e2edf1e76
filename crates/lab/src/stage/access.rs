//! The sender's own interface. A superpacket leaves a host in one instant; a real interface spreads it at its line rate, and
//! without that every queue behind it looks harsher than it is.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::stage::timeline::Timeline;
use crate::stage::{Stage, transmission};

/// Sends packets one after the other at a rate, and keeps as many waiting as there are.
#[derive(Debug)]
pub struct Access {
    bits_per_second: Option<u64>,
    busy_until: Nanos,
    waiting: Timeline,
}

impl Access {
    /// An interface of `access_rate`; without one it takes no time.
    #[must_use]
    pub fn new(conditions: &Conditions) -> Self {
        let bits_per_second = conditions.access_rate.map(|rate| rate.bits_per_second());
        Self { bits_per_second, busy_until: 0, waiting: Timeline::default() }
    }
}

impl Stage for Access {
    fn push(&mut self, mut packet: Packet, _: &mut Ledger) {
        self.busy_until = packet.at.max(self.busy_until) + transmission(packet.bytes, self.bits_per_second);
        packet.at = self.busy_until;
        self.waiting.insert(packet);
    }

    fn next(&self) -> Option<Nanos> {
        self.waiting.next()
    }

    fn pop(&mut self, _: &mut Ledger) -> Option<Packet> {
        self.waiting.pop()
    }

    fn held(&self) -> usize {
        self.waiting.len()
    }

    fn change(&mut self, conditions: &Conditions, _: Nanos, _: &mut Ledger) {
        self.bits_per_second = conditions.access_rate.map(|rate| rate.bits_per_second());
    }
}
