//! A FIFO queue: a packet that does not fit is dropped.

use super::{OutcomeLog, QueueModel, fits};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::QueueLimit;
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::Packet;

pub struct TailDropModel {
    limit: QueueLimit,
    waiting: Vec<Packet>,
}

impl TailDropModel {
    pub const fn new(limit: QueueLimit) -> Self {
        Self { limit, waiting: Vec::new() }
    }
}

impl QueueModel for TailDropModel {
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog) {
        if fits(&self.waiting, &packet, self.limit) {
            self.waiting.push(packet);
        } else {
            journal.record_drop(&packet, packet.at, DropCause::Full);
        }
    }

    fn take(&mut self, _now: Nanos, _journal: &mut OutcomeLog) -> Option<Packet> {
        if self.waiting.is_empty() { None } else { Some(self.waiting.remove(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::*;

    #[test]
    fn small_packet_fits_where_a_large_packet_does_not() {
        let (mut queue, mut journal) = (TailDropModel::new(QueueLimit::Bytes(1600)), OutcomeLog::default());
        for (number, bytes) in [(0, 1500), (1, 101), (2, 100), (3, 1)] {
            queue.arrive(packet(number, 0, bytes), &mut journal);
        }
        let waiting: Vec<u64> = queue.waiting.iter().map(|packet| packet.number).collect();
        assert_eq!(waiting, [0, 2]);
        assert_eq!(queue.take(0, &mut journal).map(|packet| packet.number), Some(0));
    }
}
