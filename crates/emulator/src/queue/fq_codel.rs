//! Flow queueing with controlled delay (RFC 8290): one `CoDel` queue per flow, served round robin, new flows first.
//!
//! # Specification
//!
//! There are `flows` queues (at least one). Each has packets, a `CoDel` state as specified in [`codel`](super::codel)
//! and a deficit, in bytes. Two lists of queues, new and old, are served from their heads; a queue on neither is idle.
//! Initially all queues are idle.
//!
//! On arrival (RFC 8290 section 4.1):
//!
//! 1. The packet goes to the tail of queue `packet.flow % flows`.
//! 2. If that queue is idle, its deficit becomes `quantum` and it goes to the end of the new list. Its `CoDel` state
//!    persists while it is idle.
//! 3. While the limit does not hold, over all queues: of the queue with the most bytes (of several, the one with the
//!    lowest index) with `n` packets, the first `ceil(n / 2)`, but no more than 64, are dropped as [`DropCause::Full`],
//!    at the time of the arrival. The packet that has just arrived may be among them. `CoDel` states do not change.
//!
//! On departure (RFC 8290 section 4.2):
//!
//! 1. The queue at the head of the new list is selected; if that list is empty, the head of the old list; if both are
//!    empty, there is no packet.
//! 2. If its deficit is 0 or less, `quantum` (at least one byte) is added to the deficit, the queue moves to the end of
//!    the old list, and the procedure restarts at 1.
//! 3. `CoDel` takes a packet from the queue, perhaps dropping or marking. The backlog behind a packet is the backlog of
//!    this queue.
//! 4. If there was a packet, its size is subtracted from the deficit, and it departs. The queue stays in its place.
//! 5. If there was none: a queue of the new list moves to the end of the old list; a queue of the old list becomes
//!    idle. The procedure restarts at 1.
//!
//! # Differences from the Linux kernel's `fq_codel`
//!
//! | | here | Linux |
//! |---|---|---|
//! | flow | the hash of the packet, equal in every run | a hash with a random key |
//! | overflow | half of the packets, at most 64 (section 4.1), again until the limit holds | half of the bytes, at most 64 packets |
//! | `count` after an overflow | unchanged | grows by the packets dropped |
//! | backlog behind a packet | of this queue | of all queues |
//! | memory limit | none | 32 MiB |
//!
//! The differences listed in [`codel`](super::codel) apply as well.

use std::cmp::Reverse;
use std::collections::VecDeque;

use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::codel::{CodelParams, CodelState, default_interval, default_target};
use crate::queue::kind::{QueueErrors, QueueLimit, QueueSettings};
use crate::queue::{Backlog, Fifo, Queue};
use crate::rng::SeededRng;
use crate::{Nanos, nanos};

/// Maximum number of packets dropped before the longest queue is determined again (RFC 8290 section 4.1).
const BATCH: u64 = 64;

/// Settings of FQ-CoDel (RFC 8290 section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FqCodelSettings {
    /// Capacity of all queues together, in packets or bytes.
    pub limit: QueueLimit,
    /// Acceptable standing queueing delay.
    #[serde(default = "default_target")]
    pub target: Span,
    /// Time for which the delay may exceed `target` before drops begin.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    #[serde(default)]
    pub ecn: bool,
    /// Number of queues for flows.
    #[serde(default = "default_flows")]
    pub flows: u32,
    /// Bytes that a queue may send in a round.
    #[serde(default = "default_quantum")]
    pub quantum: Bytes,
}

const fn default_flows() -> u32 {
    1024
}

const fn default_quantum() -> Bytes {
    Bytes(1514)
}

impl QueueSettings for FqCodelSettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn validate(&self, errors: &mut QueueErrors) {
        errors.require_positive("flows", u64::from(self.flows));
        errors.require_positive("quantum", self.quantum.0);
    }

    fn build(&self, _rate: Option<Rate>, _rng: SeededRng) -> Box<dyn Queue> {
        Box::new(FqCodelQueue::new(*self))
    }

    fn replay_check(&self) -> &'static str {
        "FQ-CoDel: replay"
    }
}

/// Queue of one flow, or of several flows with colliding hashes.
#[derive(Debug, Default)]
struct FlowQueue {
    waiting: Fifo,
    codel: CodelState,
    /// Bytes that the queue may still send in this round.
    deficit: i64,
    /// Whether the queue is on one of the lists.
    active: bool,
}

/// Queues of flows under one limit.
#[derive(Debug)]
pub struct FqCodelQueue {
    limit: QueueLimit,
    params: CodelParams,
    quantum: i64,
    flows: Vec<FlowQueue>,
    /// Indices of flows that have not used up their first quantum.
    new_flows: VecDeque<usize>,
    /// Indices of the other active flows.
    old_flows: VecDeque<usize>,
    backlog: Backlog,
}

impl FqCodelQueue {
    /// Creates empty queues for all flows.
    #[must_use]
    pub fn new(settings: FqCodelSettings) -> Self {
        let FqCodelSettings { limit, target, interval, ecn, flows, quantum } = settings;
        Self {
            limit,
            params: CodelParams { target: nanos(target), interval: nanos(interval), ecn },
            quantum: i64::try_from(quantum.0).unwrap_or(i64::MAX).max(1),
            flows: (0..flows.max(1)).map(|_| FlowQueue::default()).collect(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    /// Drops packets from the head of the longest queue. A drop at the head reaches the sender sooner than a drop at
    /// the tail.
    fn drop_batch(&mut self, now: Nanos, ledger: &mut StageEvents) {
        let bytes = |(index, flow): &(usize, &mut FlowQueue)| (flow.waiting.backlog().bytes, Reverse(*index));
        let Some((_, fattest)) = self.flows.iter_mut().enumerate().max_by_key(bytes) else { return };
        let packets = fattest.waiting.backlog().packets.div_ceil(2).min(BATCH);
        for _ in 0..packets {
            if let Some(packet) = fattest.waiting.pop() {
                self.backlog.remove(&packet);
                ledger.record_drop(Packet { at: now, ..packet }, DropCause::Full);
            }
        }
    }
}

impl Queue for FqCodelQueue {
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents) {
        let index = packet.flow as usize % self.flows.len();
        let flow = &mut self.flows[index];
        flow.waiting.push(packet);
        self.backlog.add(&packet);
        if !flow.active {
            flow.active = true;
            flow.deficit = self.quantum;
            self.new_flows.push_back(index);
        }
        while self.backlog.exceeds(self.limit) {
            self.drop_batch(packet.at, ledger);
        }
    }

    fn dequeue(&mut self, now: Nanos, ledger: &mut StageEvents) -> Option<Packet> {
        loop {
            let is_new = !self.new_flows.is_empty();
            let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(self.quantum);
                list.pop_front();
                self.old_flows.push_back(index);
                continue;
            }
            let before = flow.waiting.backlog();
            let packet = flow.codel.dequeue(&self.params, &mut flow.waiting, now, ledger);
            let after = flow.waiting.backlog();
            self.backlog.packets -= before.packets - after.packets;
            self.backlog.bytes -= before.bytes - after.bytes;
            if let Some(packet) = packet {
                flow.deficit -= i64::from(packet.bytes);
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                self.old_flows.push_back(index);
            } else {
                flow.active = false;
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn into_packets(self: Box<Self>) -> Vec<Packet> {
        let mut packets: Vec<Packet> = self.flows.into_iter().flat_map(|flow| flow.waiting.packets).collect();
        packets.sort_unstable_by_key(|packet| packet.number);
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proto::units::Bytes;

    use crate::MS;
    use crate::fixtures::packet;
    use crate::packet::Ecn;
    use crate::queue::tests::{DriveOutcome, drive, random, span, steady, trace_table};

    fn settings(limit: QueueLimit) -> FqCodelSettings {
        FqCodelSettings { limit, target: span(5), interval: span(100), ecn: false, flows: 1024, quantum: Bytes(1514) }
    }

    fn with_flow(flow: u32, packets: Vec<Packet>) -> Vec<Packet> {
        packets.into_iter().map(|packet| Packet { flow, ..packet }).collect()
    }

    /// Merges flows in order of time and numbers the packets.
    fn interleave(flows: Vec<Vec<Packet>>) -> Vec<Packet> {
        let mut packets = flows.concat();
        packets.sort_by_key(|packet| packet.at);
        (0..).zip(packets).map(|(number, packet)| Packet { number, ..packet }).collect()
    }

    fn run(settings: FqCodelSettings, arrivals: &[Packet]) -> DriveOutcome {
        drive(&mut FqCodelQueue::new(settings), arrivals, |_, _, _| ())
    }

    /// Returns the flows of the departures, in order, as letters.
    fn departures(outcome: &DriveOutcome) -> String {
        outcome.sent.iter().map(|packet| char::from(b'a' + packet.flow as u8)).collect()
    }

    #[test]
    fn sparse_flow_has_low_delay_beside_an_aggressive_flow() {
        let aggressive = with_flow(1, steady(4000, MS / 2));
        let sparse = with_flow(2, (0..100).map(|number| packet(number, (10 + number * 20) * MS, 200)).collect());
        let outcome = run(settings(QueueLimit::Packets(1000)), &interleave(vec![aggressive, sparse]));
        let waits = outcome.queue_delays(2);
        assert_eq!(waits.len(), 100, "no packet of the sparse flow is dropped");
        // At most the transmission time of one packet of 1500 bytes: the wait for the packet on the line.
        assert!(waits.iter().all(|wait| *wait <= 1_200_000), "{:?}", waits.iter().max());
        assert!(outcome.queue_delays(1).iter().max() > Some(&(100 * MS)));
    }

    #[test]
    fn greedy_flows_share_the_line_in_bytes() {
        let large = with_flow(1, steady(4000, MS / 2));
        let small = with_flow(2, (0..20_000).map(|number| packet(number, number * MS / 10, 300)).collect());
        let outcome = run(settings(QueueLimit::Packets(2000)), &interleave(vec![large, small]));
        let sent = |flow| {
            let of_flow = outcome.sent.iter().filter(|packet| packet.flow == flow && packet.at < 2000 * MS);
            of_flow.map(|packet| f64::from(packet.bytes)).sum::<f64>()
        };
        let ratio = sent(1) / sent(2);
        assert!((0.99..1.01).contains(&ratio), "ratio {ratio}");
    }

    #[test]
    fn new_flows_have_priority_for_one_quantum() {
        // Flows a, b and c. While the first packet of a is on the line, the other packets arrive: those of a, then of
        // b, then of c. A quantum is two packets of 757 bytes.
        let flow = |flow, number| with_flow(flow, (0..number).map(|n| packet(n, u64::from(flow), 757)).collect());
        let arrivals = interleave(vec![flow(0, 6), flow(1, 4), flow(2, 1)]);
        // a spends the rest of its quantum, then b its own quantum, then c, which is also a new flow. Then a and b
        // alternate (RFC 8290 section 4.2).
        assert_eq!(departures(&run(settings(QueueLimit::Packets(100)), &arrivals)), "aabbcaabbaa");
    }

    #[test]
    fn emptied_new_flow_moves_to_the_end_of_the_old_list() {
        let mut queue = FqCodelQueue::new(settings(QueueLimit::Packets(100)));
        let mut ledger = StageEvents::default();
        let arrive = |queue: &mut FqCodelQueue, flow, bytes| {
            queue.enqueue(Packet { flow, ..packet(0, 0, bytes) }, &mut StageEvents::default());
            (queue.new_flows.len(), queue.old_flows.len())
        };
        let mut depart = |queue: &mut FqCodelQueue| queue.dequeue(0, &mut ledger).map(|head| head.flow);
        for _ in 0..4 {
            arrive(&mut queue, 1, 1514);
        }
        assert_eq!(depart(&mut queue), Some(1));
        assert_eq!(arrive(&mut queue, 2, 200), (2, 0));
        assert_eq!(depart(&mut queue), Some(2), "flow 1 has used its quantum");
        assert_eq!(depart(&mut queue), Some(1), "flow 2 is empty");
        // Flow 2 is on the old list (RFC 8290 section 4.2), so an arrival does not make it a new flow.
        assert_eq!(arrive(&mut queue, 2, 200), (0, 2));
        assert_eq!(depart(&mut queue), Some(2));
        assert_eq!(depart(&mut queue), Some(1));
        // After a round without packets flow 2 is idle, so an arrival makes it a new flow.
        assert_eq!(arrive(&mut queue, 2, 200), (1, 1));
        assert_eq!(depart(&mut queue), Some(2));
        assert_eq!(depart(&mut queue), Some(1));
        assert_eq!((depart(&mut queue), queue.new_flows.len(), queue.old_flows.len()), (None, 0, 0));
    }

    #[test]
    fn an_overflow_drops_half_of_the_fattest_flow_from_its_head() {
        let numbers = |dropped: u64, limit, first, second| {
            let mut queue = FqCodelQueue::new(settings(limit));
            let mut ledger = StageEvents::default();
            let flows = [(5, first, 1000), (3, second, 1500)];
            let burst = flows
                .into_iter()
                .flat_map(|(flow, packets, bytes)| with_flow(flow, vec![packet(0, 0, bytes); packets]));
            for (number, packet) in (0..).zip(burst) {
                queue.enqueue(Packet { number, at: number, ..packet }, &mut ledger);
            }
            assert!(ledger.dropped.iter().all(|drop| drop.cause == DropCause::Full && drop.packet.at == dropped));
            (ledger.dropped.iter().map(|drop| drop.packet.number).collect::<Vec<_>>(), queue.backlog())
        };
        // Nine packets of 1000 bytes have more bytes than five of 1500: five of the nine are dropped, all at the
        // arrival of number 13.
        let (dropped, held) = numbers(13, QueueLimit::Packets(13), 9, 5);
        assert_eq!((dropped, held), (vec![0, 1, 2, 3, 4], Backlog { packets: 9, bytes: 11_500 }));
        // Equal bytes: the queue with the lower index, of flow 3, loses its packets.
        let (dropped, held) = numbers(7, QueueLimit::Bytes(8_500), 6, 2);
        assert_eq!((dropped, held), (vec![0, 1, 2], Backlog { packets: 5, bytes: 6_000 }));
        let (dropped, held) = numbers(4, QueueLimit::Bytes(5_900), 3, 2);
        assert_eq!((dropped, held), (vec![3], Backlog { packets: 4, bytes: 4_500 }));
        // At most 64 packets per batch (RFC 8290 section 4.1).
        let (dropped, _) = numbers(200, QueueLimit::Packets(200), 201, 0);
        assert_eq!(dropped, (0..64).collect::<Vec<_>>());
        // A limit smaller than a packet lets no packet through.
        assert_eq!(numbers(0, QueueLimit::Bytes(900), 1, 0), (vec![0], Backlog::default()));
    }

    #[test]
    fn packets_of_all_flows_are_handed_over_in_order_of_arrival() {
        let mut queue = Box::new(FqCodelQueue::new(settings(QueueLimit::Packets(100))));
        for (number, flow) in (0..).zip([3, 1, 2, 3, 1, 2]) {
            queue.enqueue(Packet { flow, ..packet(number, 0, 1500) }, &mut StageEvents::default());
        }
        let numbers: Vec<u64> = queue.into_packets().iter().map(|packet| packet.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn flows_have_separate_codel_states_unless_hashes_collide() {
        let greedy = |flow| with_flow(flow, steady(1500, MS));
        let modest = |flow| {
            with_flow(flow, steady(150, 10 * MS).into_iter().map(|p| Packet { ecn: Ecn::Capable, ..p }).collect())
        };
        let ecn = FqCodelSettings { ecn: true, ..settings(QueueLimit::Packets(1000)) };
        let signals = |modest_flow| {
            let outcome = run(ecn, &interleave(vec![greedy(1), modest(modest_flow)]));
            (outcome.drops(DropCause::Early) > 10, outcome.marks() > 0)
        };
        assert_eq!(signals(2), (true, false));
        assert_eq!(signals(1 + 1024), (true, true));
    }

    #[test]
    fn fq_codel_overload_matches_the_recorded_trace() {
        let small = FqCodelSettings { ecn: true, quantum: Bytes(300), flows: 3, ..settings(QueueLimit::Bytes(60_000)) };
        let mut queue = FqCodelQueue::new(small);
        let table = trace_table(&mut queue, &random(42, 2000, MS), 200, |queue| {
            let bytes: Vec<String> = queue.flows.iter().map(|flow| flow.waiting.backlog().bytes.to_string()).collect();
            bytes.join(" ")
        });
        assert_eq!(
            table,
            [
                "98 ms: 47 = 34231 B, 22419 6531 5281; 153 sent, 0+0+0 dropped, 0 marked",
                "201 ms: 46 = 34411 B, 30768 1708 1935; 322 sent, 1+0+31 dropped, 0 marked",
                "295 ms: 45 = 36873 B, 34796 1905 172; 486 sent, 2+0+67 dropped, 1 marked",
                "392 ms: 63 = 50198 B, 50198 0 0; 634 sent, 3+0+100 dropped, 1 marked",
                "488 ms: 68 = 49498 B, 46221 3277 0; 793 sent, 4+0+135 dropped, 3 marked",
                "583 ms: 43 = 38569 B, 32965 3329 2275; 944 sent, 5+0+208 dropped, 4 marked",
                "682 ms: 62 = 44554 B, 38340 2495 3719; 1089 sent, 10+0+239 dropped, 4 marked",
                "791 ms: 54 = 42273 B, 35956 4031 2286; 1262 sent, 15+0+269 dropped, 4 marked",
                "888 ms: 67 = 52135 B, 44433 3270 4432; 1409 sent, 18+0+306 dropped, 6 marked",
                "989 ms: 66 = 48507 B, 42386 1344 4777; 1569 sent, 23+0+342 dropped, 6 marked",
                "1028 ms: 0 = 0 B, 0 0 0; 1633 sent, 25+0+342 dropped, 6 marked",
            ]
        );
    }
}
