//! Drives queues with a line in virtual time, and checks the properties common to all queues.

use std::collections::BTreeMap;

use ekiden_proto::units::{Bytes, Span};

use super::managed::{DropPolicy, ManagedQueue};
use super::*;
use crate::MS;
use crate::conditions::{
    CodelSettings, DynamicPrioritySettings, FqCodelSettings, RedSettings, SenderHosts, StaticPrioritySettings,
    TailDropSettings,
};
use crate::fixtures::packet;
use crate::ledger::DropCause;

/// Transmission time of a byte, in nanoseconds: 10 Mbit/s, 1.2 ms for 1500 bytes.
pub(super) const BYTE_TIME: Nanos = 800;

/// Returns the rate of the line.
pub(super) fn rate() -> Rate {
    "10Mbit/s".parse().unwrap()
}

/// Outcome of a run: departed packets, whose `at` is the departure time, their arrival times in `waited_since`, and the
/// events of the queue.
#[derive(Default)]
pub(super) struct DriveOutcome {
    pub(super) sent: Vec<Packet>,
    pub(super) waited_since: Vec<Nanos>,
    pub(super) events: StageEvents,
}

impl DriveOutcome {
    pub(super) fn drops(&self, cause: DropCause) -> usize {
        self.events.dropped.iter().filter(|drop| drop.cause == cause).count()
    }

    pub(super) fn marks(&self) -> usize {
        self.sent.iter().filter(|packet| packet.ecn == Ecn::Marked).count()
    }

    /// Returns the queueing delays of a flow, in nanoseconds.
    pub(super) fn queue_delays(&self, flow: u32) -> Vec<Nanos> {
        let of_flow = self.sent.iter().zip(&self.waited_since).filter(|(packet, _)| packet.flow == flow);
        of_flow.map(|(packet, since)| packet.at - since).collect()
    }
}

pub(super) fn span(millis: u64) -> Span {
    Span(std::time::Duration::from_millis(millis))
}

/// Returns `number` packets of 1500 bytes, one every `gap`.
pub(super) fn steady(number: u64, gap: Nanos) -> Vec<Packet> {
    (0..number).map(|number| packet(number, number * gap, 1500)).collect()
}

/// Returns `number` packets of random size, flow and ECN capability, with random gaps of less than `gap`.
pub(super) fn random(seed: u64, number: u64, gap: Nanos) -> Vec<Packet> {
    let rng = SeededRng::new(seed).derive("arrivals");
    let mut at = 0;
    let next = |number| {
        let bits = rng.bits(number);
        at += bits % gap;
        let ecn = if bits >> 62 == 0 { Ecn::Capable } else { Ecn::NotCapable };
        let (bytes, flow) = (64 + (bits >> 32) as u32 % 1437, (bits >> 56) as u32 % 4);
        Packet { flow, source: flow / 2, ecn, ..packet(number, at, bytes) }
    };
    (0..number).map(next).collect()
}

/// Passes the arrivals through the queue onto a line until the queue is empty. At equal times the line becomes free
/// before the packet arrives. Calls `on_arrival` after each arrival.
pub(super) fn drive<Q: Queue + ?Sized>(
    queue: &mut Q,
    arrivals: &[Packet],
    mut on_arrival: impl FnMut(&Q, &DriveOutcome, Nanos),
) -> DriveOutcome {
    let mut outcome = DriveOutcome::default();
    let mut free_at = None;
    for arrival in arrivals {
        while let Some(now) = free_at.filter(|free| *free <= arrival.at) {
            free_at = depart(queue, now, &mut outcome);
        }
        queue.enqueue(*arrival, &mut outcome.events);
        free_at = free_at.or_else(|| depart(queue, arrival.at, &mut outcome));
        on_arrival(queue, &outcome, arrival.at);
    }
    while let Some(now) = free_at {
        free_at = depart(queue, now, &mut outcome);
    }
    outcome
}

/// Puts the next packet onto the line, and returns the time at which the line is free again.
fn depart<Q: Queue + ?Sized>(queue: &mut Q, now: Nanos, outcome: &mut DriveOutcome) -> Option<Nanos> {
    let packet = queue.dequeue(now, &mut outcome.events)?;
    outcome.sent.push(Packet { at: now, ..packet });
    outcome.waited_since.push(packet.at);
    Some(now + Nanos::from(packet.bytes) * BYTE_TIME)
}

/// Enqueues a packet, and removes the first packet if the backlog then exceeds `level` packets.
pub(super) fn enqueue_at_level<P: DropPolicy>(
    queue: &mut ManagedQueue<P>,
    level: u64,
    packet: Packet,
    events: &mut StageEvents,
) {
    queue.enqueue(packet, events);
    if queue.backlog().packets > level {
        queue.waiting.pop();
    }
}

/// Returns a log of a run: one line after each `every` arrivals and one at the end. `state` returns the description of
/// the queue's state in each line.
pub(super) fn trace_table<Q: Queue>(
    queue: &mut Q,
    arrivals: &[Packet],
    every: u64,
    state: impl Fn(&Q) -> String,
) -> Vec<String> {
    let line = |queue: &Q, outcome: &DriveOutcome, now: Nanos| {
        let [early, forced, full] =
            [DropCause::Early, DropCause::Forced, DropCause::Full].map(|cause| outcome.drops(cause));
        let (ms, sent, marks, state) = (now / MS, outcome.sent.len(), outcome.marks(), state(queue));
        let Backlog { packets, bytes } = queue.backlog();
        format!("{ms} ms: {packets} = {bytes} B, {state}; {sent} sent, {early}+{forced}+{full} dropped, {marks} marked")
    };
    let (mut lines, mut number) = (Vec::new(), 0);
    let outcome = drive(queue, arrivals, |queue, outcome, now| {
        number += 1;
        if number % every == 0 {
            lines.push(line(queue, outcome, now));
        }
    });
    lines.push(line(queue, &outcome, outcome.sent.last().map_or(0, |packet| packet.at)));
    lines
}

fn all_kinds(limit: QueueLimit) -> Vec<QueueKind> {
    let part = |share| match limit {
        QueueLimit::Packets(packets) => QueueLimit::Packets(packets / share),
        QueueLimit::Bytes(bytes) => QueueLimit::Bytes(bytes / share),
    };
    let (target, interval, quantum) = (span(5), span(20), Bytes(1514));
    let red = RedSettings { limit, min: part(4), max: part(2), p: 0.1, wq: 0.02, gentle: false, ecn: false };
    let RedSettings { min, max, p, wq, ecn, .. } = red;
    let heavy = SenderHosts { hosts: Vec::new(), sources: vec![0] };
    let of_senders = StaticPrioritySettings { limit, min, max, p, wq, ecn: true, n: 3.0, heavy };
    let of_history =
        DynamicPrioritySettings { limit, min, max, p, wq, ecn, n: 3.0, rec_int: 2, sta_int: 10, hist_len: 20 };
    vec![
        QueueKind::TailDrop(TailDropSettings { limit }),
        QueueKind::Red(red),
        QueueKind::Red(RedSettings { gentle: true, ecn: true, ..red }),
        QueueKind::StaticPriority(of_senders),
        QueueKind::DynamicPriority(of_history),
        QueueKind::Codel(CodelSettings { limit, target, interval, ecn: true }),
        QueueKind::FqCodel(FqCodelSettings { limit, target, interval, ecn: true, flows: 3, quantum }),
    ]
}

#[test]
fn every_packet_departs_or_is_dropped_and_limits_hold() {
    for limit in [QueueLimit::Packets(30), QueueLimit::Bytes(20_000)] {
        for kind in all_kinds(limit) {
            for seed in 0..5 {
                let arrivals = random(seed, 2_000, MS);
                let mut queue = build(&kind, Some(rate()), SeededRng::new(seed));
                let outcome = drive(queue.as_mut(), &arrivals, |queue, outcome, _| {
                    let held = queue.backlog();
                    assert!(!held.exceeds(limit), "{kind:?} holds {held:?}");
                    let number = outcome.sent.len() + outcome.events.dropped.len() + held.packets as usize;
                    let last = outcome.sent.iter().chain(outcome.events.dropped.iter().map(|drop| &drop.packet));
                    assert!(number > last.map(|packet| packet.number).max().unwrap_or(0) as usize);
                });
                assert_eq!(queue.backlog(), Backlog::default());
                let gone = outcome.events.dropped.iter().map(|drop| drop.packet.number);
                let mut numbers: Vec<u64> = outcome.sent.iter().map(|sent| sent.number).chain(gone).collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..2_000).collect::<Vec<_>>(), "{kind:?}");
                assert!(outcome.events.dropped.len() > 50, "{kind:?} dropped too few packets");
            }
        }
    }
}

#[test]
fn order_is_kept_within_flows_and_overall_except_in_fq_codel() {
    for kind in all_kinds(QueueLimit::Packets(30)) {
        let outcome =
            drive(build(&kind, Some(rate()), SeededRng::new(1)).as_mut(), &random(1, 2_000, MS), |_, _, _| ());
        let mut last = BTreeMap::new();
        for sent in &outcome.sent {
            let line = if matches!(kind, QueueKind::FqCodel(_)) { sent.flow % 3 } else { 0 };
            assert!(last.insert(line, sent.number).is_none_or(|before| before < sent.number), "{kind:?}");
        }
    }
}

#[test]
fn decisions_are_deterministic_and_only_marks_change_packets() {
    for kind in all_kinds(QueueLimit::Packets(30)) {
        let arrivals = random(2, 2_000, MS);
        let run = || drive(build(&kind, Some(rate()), SeededRng::new(7)).as_mut(), &arrivals, |_, _, _| ());
        let (one, other) = (run(), run());
        assert_eq!(one.sent, other.sent);
        assert_eq!(one.events.dropped, other.events.dropped);
        for sent in &one.sent {
            let arrived = arrivals[sent.number as usize];
            assert_eq!(Packet { at: arrived.at, ecn: arrived.ecn, ..*sent }, arrived);
            assert!(sent.ecn == arrived.ecn || (sent.ecn, arrived.ecn) == (Ecn::Marked, Ecn::Capable));
        }
        for drop in &one.events.dropped {
            let arrived = arrivals[drop.packet.number as usize];
            assert!(drop.packet.at >= arrived.at);
            assert_eq!(Packet { at: arrived.at, ..drop.packet }, arrived, "a dropped packet is unchanged");
        }
    }
}

#[test]
fn smaller_packet_fits_after_a_larger_packet_was_dropped() {
    let mut queue = tail_drop::TailDropQueue::new(QueueLimit::Bytes(2_000));
    let mut ledger = StageEvents::default();
    for (number, bytes) in [1500, 501, 500, 1].into_iter().enumerate() {
        queue.enqueue(packet(number as u64, 0, bytes), &mut ledger);
    }
    let dropped: Vec<_> = ledger.dropped.iter().map(|drop| (drop.packet.number, drop.cause)).collect();
    assert_eq!(dropped, [(1, DropCause::Full), (3, DropCause::Full)]);
    assert_eq!(queue.backlog(), Backlog { packets: 2, bytes: 2_000 });
}

#[test]
fn the_packet_on_the_line_is_not_in_the_queue() {
    let kind = QueueKind::TailDrop(TailDropSettings { limit: QueueLimit::Packets(2) });
    let burst: Vec<Packet> = (0..5).map(|number| packet(number, 0, 1500)).collect();
    let outcome = drive(build(&kind, Some(rate()), SeededRng::new(0)).as_mut(), &burst, |_, _, _| ());
    let sent: Vec<_> = outcome.sent.iter().map(|sent| (sent.number, sent.at)).collect();
    assert_eq!(sent, [(0, 0), (1, 1_200_000), (2, 2_400_000)]);
    assert_eq!(outcome.drops(DropCause::Full), 2);
}
