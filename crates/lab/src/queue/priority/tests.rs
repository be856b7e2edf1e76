use super::*;
use crate::conditions::{QueueLimit, SenderHosts};
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::Queue;
use crate::queue::tests::{packet, rate};

const MIN: QueueLimit = QueueLimit::Packets(5);
const MAX: QueueLimit = QueueLimit::Packets(15);
const LIMIT: QueueLimit = QueueLimit::Packets(40);

fn static_settings(n: f64) -> StaticPrioritySettings {
    let heavy = SenderHosts { hosts: vec!["pc1".to_owned()], sources: vec![7, 9] };
    StaticPrioritySettings { limit: LIMIT, min: MIN, max: MAX, p: 0.1, wq: 1.0, ecn: false, n, heavy }
}

fn dynamic_settings(n: f64) -> DynamicPrioritySettings {
    let (rec_int, sta_int, hist_len) = (3, 30, 50);
    DynamicPrioritySettings {
        limit: LIMIT,
        min: MIN,
        max: MAX,
        p: 0.1,
        wq: 1.0,
        ecn: false,
        n,
        rec_int,
        sta_int,
        hist_len,
    }
}

/// Of 400,000 packets that find 6 waiting, one in `every` by another, how many are dropped early: those of others, and
/// the rest. With a weight of 1 the average is what waits: a tenth of the way, and others are hit with 0.01.
fn hits<L: DropPolicy>(queue: &mut ManagedQueue<L>, every: u64, rest: Packet, other: Packet) -> [u64; 2] {
    let mut hits = [0; 2];
    let mut ledger = StageEvents::default();
    (0..6).for_each(|number| queue.waiting.push(packet(number, 0, 1000)));
    for number in 0..400_000 {
        let is_rest = number % every != 0;
        let packet = Packet { number, ..if is_rest { rest } else { other } };
        queue.enqueue(packet, &mut ledger);
        if queue.backlog().packets > 6 {
            queue.waiting.pop();
        }
        for drop in ledger.dropped.drain(..) {
            assert_eq!(drop.cause, DropCause::Early);
            hits[usize::from(is_rest)] += 1;
        }
    }
    hits
}

fn ratio([others, rest]: [u64; 2], every: u64) -> f64 {
    rest as f64 / (every - 1) as f64 / others as f64
}

#[test]
fn packets_of_known_senders_are_hit_n_times_as_often_whoever_sends_more() {
    for n in [1.0, 2.5, 8.0] {
        for (source, every) in [(7, 2), (9, 8)] {
            let mut queue = StaticPriorityDropQueue::new(&static_settings(n), Some(rate()), SeededRng::new(1));
            let rest = Packet { source, ..packet(0, 0, 1000) };
            let ratio = ratio(hits(&mut queue, every, rest, packet(0, 0, 1000)), every);
            assert!((ratio / n - 1.0).abs() < 0.07, "{ratio} instead of {n}");
        }
    }
}

#[test]
fn packets_of_the_most_frequent_connection_are_hit_n_times_as_often() {
    for every in [4, 8] {
        let mut queue = DynamicPriorityDropQueue::new(&dynamic_settings(4.0), Some(rate()), SeededRng::new(1));
        let [rest, other] = [1, 2].map(|flow| Packet { flow, ..packet(0, 0, 1000) });
        let hits = hits(&mut queue, every, rest, other);
        let ratio = ratio(hits, every);
        assert!((ratio / 4.0 - 1.0).abs() < 0.07, "{hits:?}: {ratio} instead of 4");
    }
}

#[test]
fn the_heavy_connection_is_found_and_found_again() {
    let mut queue = DynamicPriorityDropQueue::new(&dynamic_settings(4.0), None, SeededRng::new(1));
    let mut heavy = |flow| {
        for _ in 0..30 {
            queue.enqueue(Packet { flow, ..packet(0, 0, 1000) }, &mut StageEvents::default());
            queue.dequeue(0, &mut StageEvents::default());
        }
        (queue.policy.state.known == 1).then_some(queue.policy.state.heavy)
    };
    // 10 records each time, of 50: the second connection needs more than half of them.
    let found = [5, 5, 5, 6, 6, 6].map(&mut heavy);
    assert_eq!(found, [5, 5, 5, 5, 5, 6].map(Some));
}

#[test]
fn before_the_first_determination_none_is_heavy() {
    let mut queue = DynamicPriorityDropQueue::new(&dynamic_settings(10_000.0), Some(rate()), SeededRng::new(1));
    (0..6).for_each(|number| queue.waiting.push(packet(number, 0, 1000)));
    let mut ledger = StageEvents::default();
    let mut dropped = (0..40).map(|number| {
        queue.enqueue(packet(number, 0, 1000), &mut ledger);
        if queue.backlog().packets > 6 {
            queue.waiting.pop();
        }
        ledger.dropped.len()
    });
    assert!(dropped.nth(28) < Some(5));
    assert!(dropped.last() >= Some(10), "from the 30th packet on, all");
}
