use super::*;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::{Ecn, Packet};
use crate::queue::Queue;
use crate::queue::tests::{MS, packet, random, rate, trace_table};

const SETTINGS: RedSettings = RedSettings {
    limit: QueueLimit::Packets(40),
    min: QueueLimit::Packets(5),
    max: QueueLimit::Packets(15),
    p: 0.2,
    wq: 1.0,
    gentle: false,
    ecn: false,
};

/// A queue whose average is `level` at each arrival: with `wq` = 1 it is what waits.
fn at_level(settings: RedSettings, level: u64, seed: u64) -> RedQueue {
    let mut red = RedQueue::new(&settings, Some(rate()), SeededRng::new(seed));
    for number in 0..level {
        red.waiting.push(packet(number, 0, 1000));
    }
    red
}

/// The gaps between hits among `arrivals` packets at a constant level of 10: `pb` = 0.1.
fn gaps(seed: u64, arrivals: u64) -> Vec<u64> {
    let mut red = at_level(SETTINGS, 10, seed);
    let mut ledger = StageEvents::default();
    for number in 0..arrivals {
        red.enqueue(packet(number, number, 1000), &mut ledger);
        if red.backlog().packets > 10 {
            red.waiting.pop();
        }
    }
    let hits: Vec<u64> = ledger.dropped.iter().map(|drop| drop.packet.number).collect();
    let first = hits.first().map(|first| first + 1);
    first.into_iter().chain(hits.windows(2).map(|pair| pair[1] - pair[0])).collect()
}

/// Asserts that values are uniform on 1..=top, within 5 standard deviations for each.
fn assert_uniform(values: impl Iterator<Item = u64>, top: u64) {
    let mut counts = vec![0_u32; top as usize + 1];
    values.for_each(|value| counts[value as usize] += 1);
    let total = f64::from(counts.iter().sum::<u32>());
    let share = 1.0 / top as f64;
    let deviation = (total * share * (1.0 - share)).sqrt();
    assert_eq!(counts[0], 0);
    for count in &counts[1..] {
        assert!((f64::from(*count) - total * share).abs() < 5.0 * deviation, "of {total}: {counts:?}");
    }
}

#[test]
fn gaps_between_hits_are_uniform() {
    // From count = -1 the first packet has pa = pb: a gap of 1 to 1 / pb. After a hit the first has pb / (1 - pb): one less.
    assert_uniform((0..4_000).filter_map(|seed| gaps(seed, 12).first().copied()), 10);
    assert_uniform((0..40).flat_map(|seed| gaps(seed, 500).into_iter().skip(1)), 9);
}

#[test]
fn below_min_none_is_hit_and_from_max_on_all_are() {
    for (level, drops) in [(4, 0), (15, 100)] {
        let mut red = at_level(RedSettings { ecn: true, ..SETTINGS }, level, 1);
        let mut ledger = StageEvents::default();
        for number in 0..100 {
            // Capable or not: above max, RFC 3168 section 7 wants drops.
            red.enqueue(Packet { ecn: Ecn::Capable, ..packet(number, 0, 1000) }, &mut ledger);
            if red.backlog().packets > level {
                red.waiting.pop();
            }
        }
        assert_eq!(ledger.dropped.iter().filter(|drop| drop.cause == DropCause::Forced).count(), drops);
        assert_eq!((ledger.dropped.len(), red.policy.state.count), (drops, if drops == 0 { [0, 0] } else { [1, 1] }));
    }
}

#[test]
fn capable_packets_are_marked_and_a_full_queue_drops_them_unmarked() {
    let certain = RedSettings {
        p: 1.0,
        min: QueueLimit::Packets(0),
        max: QueueLimit::Packets(1),
        gentle: true,
        ecn: true,
        ..SETTINGS
    };
    let hit = |limit, level, ecn| {
        let limit = QueueLimit::Packets(limit);
        let mut red = at_level(RedSettings { limit, ..certain }, level, 1);
        let mut ledger = StageEvents::default();
        red.enqueue(Packet { ecn, ..packet(9, 0, 1000) }, &mut ledger);
        let kept = red.waiting.backlog().packets > level;
        let kept = kept.then(|| std::iter::from_fn(|| red.waiting.pop()).last().unwrap().ecn);
        (kept, ledger.dropped.first().map(|drop| (drop.cause, drop.packet.ecn)))
    };
    assert_eq!(hit(2, 1, Ecn::Capable), (Some(Ecn::Marked), None));
    assert_eq!(hit(2, 1, Ecn::Marked), (Some(Ecn::Marked), None));
    assert_eq!(hit(2, 1, Ecn::NotCapable), (None, Some((DropCause::Early, Ecn::NotCapable))));
    assert_eq!(hit(1, 1, Ecn::Capable), (None, Some((DropCause::Full, Ecn::Capable))));
}

/// The average as a number of packets or bytes.
fn average_of(red: &RedQueue) -> f64 {
    red.policy.state.average as f64 / f64::from(1 << 24)
}

#[test]
fn an_idle_line_decays_the_average_by_the_packets_it_could_have_sent() {
    let mut red = RedQueue::new(&RedSettings { wq: 0.5, ..SETTINGS }, Some(rate()), SeededRng::new(1));
    let mut ledger = StageEvents::default();
    for number in 0..3 {
        red.enqueue(packet(number, 0, 750), &mut ledger);
    }
    assert_eq!(average_of(&red), 0.5 * 0.5 + 0.5 * 2.0);
    for now in [0, 600_000, 1_200_000] {
        red.dequeue(now, &mut ledger);
    }
    // Idle since 1.2 ms, at 1.2 ms for a typical packet: until 4.8 ms the line could have sent 3.
    let mut at = |now, wanted| {
        red.enqueue(packet(3, now, 750), &mut ledger);
        red.dequeue(now, &mut ledger);
        assert_eq!(average_of(&red), wanted, "{now}");
    };
    at(4_800_000, 1.25 / 8.0);
    at(5_400_000, 1.25 / 8.0);
    at(6_000_000, 1.25 / 16.0);
}

#[test]
fn a_line_of_another_rate_decays_the_average_by_its_own_packets() {
    let mut red = at_level(RedSettings { wq: 0.5, ..SETTINGS }, 1, 1);
    let mut ledger = StageEvents::default();
    red.enqueue(packet(1, 0, 1500), &mut ledger);
    while red.dequeue(0, &mut ledger).is_some() {}
    red.set_rate(Some("20Mbit/s".parse().unwrap()));
    red.enqueue(packet(2, 1_200_000, 1500), &mut ledger);
    assert_eq!(average_of(&red), 0.5 / 4.0);
}

#[test]
fn an_overload_goes_as_it_once_went() {
    let bytes = |packets: u64| QueueLimit::Bytes(packets * 1500);
    let (limit, min, max) = (bytes(20), bytes(3), bytes(9));
    let settings = RedSettings { limit, min, max, p: 0.1, wq: 0.02, gentle: true, ecn: true };
    let mut red = RedQueue::new(&settings, Some(rate()), SeededRng::new(42));
    let table = trace_table(&mut red, &random(42, 600, MS), 60, |red| format!("average {:.1}", average_of(red)));
    assert_eq!(
        table,
        [
            "28 ms: 16 = 9368 B, average 4902.7; 44 sent, 0+0+0 dropped, 0 marked",
            "60 ms: 19 = 16679 B, average 10581.8; 98 sent, 3+0+0 dropped, 0 marked",
            "91 ms: 20 = 16442 B, average 14559.7; 147 sent, 13+0+0 dropped, 4 marked",
            "121 ms: 14 = 13864 B, average 15934.4; 190 sent, 36+0+0 dropped, 8 marked",
            "153 ms: 16 = 16414 B, average 13253.0; 235 sent, 49+0+0 dropped, 16 marked",
            "177 ms: 24 = 16543 B, average 15733.8; 268 sent, 68+0+0 dropped, 18 marked",
            "212 ms: 8 = 4226 B, average 9333.0; 332 sent, 80+0+0 dropped, 28 marked",
            "239 ms: 14 = 15029 B, average 7861.4; 382 sent, 84+0+0 dropped, 28 marked",
            "265 ms: 25 = 19589 B, average 15375.9; 421 sent, 94+0+0 dropped, 28 marked",
            "295 ms: 16 = 11369 B, average 16211.1; 466 sent, 118+0+0 dropped, 35 marked",
            "304 ms: 0 = 0 B, average 16211.1; 482 sent, 118+0+0 dropped, 40 marked",
        ]
    );
}
