//! Flow queueing with `CoDel`: RFC 8290 sections 4.1 and 4.2. Every queue is in the list, used or not, and the fattest
//! queue is found by computing the size of each.

use super::codel::CodelModelState;
use super::{OutcomeLog, QueueModel, amount, bytes, limit_value};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{FqCodelSettings, QueueLimit};
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::Packet;

/// Largest number of packets that an overflow drops from the fattest queue (section 4.1).
const BATCH: usize = 64;

struct ModelFlowQueue {
    waiting: Vec<Packet>,
    codel: CodelModelState,
    credits: i64,
}

pub struct FqCodelModel {
    limit: QueueLimit,
    quantum: i64,
    flows: Vec<ModelFlowQueue>,
    new_flows: Vec<usize>,
    old_flows: Vec<usize>,
}

impl FqCodelModel {
    pub fn new(settings: FqCodelSettings) -> Self {
        let law = CodelModelState::new(
            ekiden_emulator::nanos(settings.target),
            ekiden_emulator::nanos(settings.interval),
            settings.ecn,
        );
        Self {
            limit: settings.limit,
            quantum: i64::try_from(settings.quantum.0.max(1)).unwrap_or(i64::MAX),
            flows: (0..settings.flows.max(1))
                .map(|_| ModelFlowQueue { waiting: Vec::new(), codel: law, credits: 0 })
                .collect(),
            new_flows: Vec::new(),
            old_flows: Vec::new(),
        }
    }

    fn is_over_limit(&self) -> bool {
        self.flows.iter().map(|flow| amount(&flow.waiting, self.limit)).sum::<u64>() > limit_value(self.limit)
    }

    /// Drops half of the packets of the fattest queue, from its head.
    fn drop_from_fattest(&mut self, now: Nanos, journal: &mut OutcomeLog) {
        let most = self.flows.iter().map(|flow| bytes(&flow.waiting)).max();
        let fattest = self.flows.iter_mut().find(|flow| Some(bytes(&flow.waiting)) == most);
        if let Some(flow) = fattest {
            let half = flow.waiting.len().div_ceil(2);
            for packet in flow.waiting.drain(..half.min(BATCH)) {
                journal.record_drop(&packet, now, DropCause::Full);
            }
        }
    }
}

impl QueueModel for FqCodelModel {
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog) {
        let index = packet.flow as usize % self.flows.len();
        self.flows[index].waiting.push(packet);
        if !self.new_flows.contains(&index) && !self.old_flows.contains(&index) {
            self.flows[index].credits = self.quantum;
            self.new_flows.push(index);
        }
        while self.is_over_limit() {
            self.drop_from_fattest(packet.at, journal);
        }
    }

    fn take(&mut self, now: Nanos, journal: &mut OutcomeLog) -> Option<Packet> {
        loop {
            let is_new = !self.new_flows.is_empty();
            let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
            let index = *list.first()?;
            let flow = &mut self.flows[index];
            if flow.credits <= 0 {
                flow.credits += self.quantum;
                list.remove(0);
                self.old_flows.push(index);
                continue;
            }
            if let Some(packet) = flow.codel.dequeue(&mut flow.waiting, now, journal) {
                flow.credits -= i64::from(packet.bytes);
                return Some(packet);
            }
            list.remove(0);
            if is_new {
                self.old_flows.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::super::{ReferenceOutcome, simulate_line};
    use super::*;
    use ekiden_emulator::conditions::QueueKind;
    use ekiden_emulator::rng::SeededRng;
    use ekiden_proto::units::Bytes;

    fn settings(limit: u64, quantum: u64) -> FqCodelSettings {
        FqCodelSettings {
            limit: QueueLimit::Packets(limit),
            target: "5ms".parse().unwrap(),
            interval: "100ms".parse().unwrap(),
            ecn: false,
            flows: 16,
            quantum: Bytes(quantum),
        }
    }

    fn order(arrivals: &[Packet], settings: FqCodelSettings) -> Vec<u64> {
        let outcomes =
            simulate_line(arrivals, "12Mbit/s".parse().unwrap(), &QueueKind::FqCodel(settings), SeededRng::new(1));
        let mut sent: Vec<(Nanos, u64)> = outcomes
            .iter()
            .zip(arrivals)
            .filter_map(|(outcome, packet)| match outcome {
                ReferenceOutcome::Sent { at, .. } => Some((*at, packet.number)),
                ReferenceOutcome::Dropped { .. } => None,
            })
            .collect();
        sent.sort_unstable();
        sent.iter().map(|(_, number)| *number).collect()
    }

    fn of_flow(number: u64, at: Nanos, flow: u32, bytes: u32) -> Packet {
        Packet { flow, ..packet(number, at, bytes) }
    }

    /// Flow 1 sends packets of one quantum, flow 2 of half a quantum: two packets of flow 2 for each of flow 1. Flow 3
    /// arrives while they are served, and is served next.
    #[test]
    fn flows_share_by_bytes_and_new_flows_are_served_first() {
        let mut arrivals: Vec<Packet> = (0..4).map(|n| of_flow(n, 0, 1, 1500)).collect();
        arrivals.extend((4..10).map(|n| of_flow(n, 0, 2, 750)));
        arrivals.push(of_flow(10, 3_400_000, 3, 1500));
        assert_eq!(order(&arrivals, settings(100, 1500)), [0, 4, 5, 1, 6, 10, 7, 2, 8, 9, 3]);
    }

    #[test]
    fn overflow_drops_half_of_the_largest_queue_from_the_head() {
        let mut arrivals: Vec<Packet> = (0..9).map(|n| of_flow(n, 0, 1, 1500)).collect();
        arrivals.extend((9..12).map(|n| of_flow(n, 0, 2, 750)));
        // One packet is on the line, 8 packets of flow 1 and 2 of flow 2 wait. The last arrival exceeds the limit, and
        // packets 1 to 4 are dropped.
        assert_eq!(order(&arrivals, settings(10, 3000)), [0, 5, 9, 10, 11, 6, 7, 8]);
        let many: Vec<Packet> = (0..202).map(|n| of_flow(n, 0, 1, 1500)).collect();
        let left = order(&many, settings(200, 3000));
        assert_eq!(left[..2], [0, 65], "at most 64 packets are dropped");
        assert!(
            order(&[of_flow(0, 0, 1, 100), of_flow(1, 9, 1, 100)], settings(0, 1500)).is_empty(),
            "a limit of 0 drops every packet"
        );
    }
}
