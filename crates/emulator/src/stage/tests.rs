//! Tests of every stage in virtual time, through the pipeline.

use super::*;
use crate::MS;
use crate::fixtures::{conditions, packet};
use crate::ledger::DropCause;
use crate::pipeline::Pipeline;
use crate::rng::SeededRng;
use crate::waits::QueueDelayHistogram;

/// Numbers and departure times of packets.
type Outputs = Vec<(u64, Nanos)>;
/// Numbers and causes of dropped packets.
type Drops = Vec<(u64, DropCause)>;

/// Runs conditions `text` with `packets` packets of 1500 bytes, one every `spacing`.
fn run(text: &str, packets: u64, spacing: Nanos) -> (Outputs, Drops) {
    let conditions = conditions(text);
    let mut pipeline = Pipeline::new(&[&conditions], SeededRng::new(42));
    let mut out = Vec::new();
    for number in 0..packets {
        let now = number * spacing;
        out.extend(std::iter::from_fn(|| pipeline.pop(now)));
        pipeline.push(packet(number, now, 1500));
    }
    while let Some(at) = pipeline.next_wakeup() {
        out.extend(pipeline.pop(at));
    }
    assert_eq!(pipeline.packet_count(), 0, "no packet may be left");
    let dropped = pipeline.events.dropped.iter().map(|drop| (drop.packet.number, drop.cause)).collect();
    (out.iter().map(|packet| (packet.number, packet.at)).collect(), dropped)
}

#[test]
fn a_perfect_link_changes_nothing() {
    assert_eq!(run("", 3, 5), (vec![(0, 0), (1, 5), (2, 10)], vec![]));
}

#[test]
fn delay_is_added_to_the_arrival() {
    assert_eq!(run("delay = '25ms'", 2, MS).0, [(0, 25 * MS), (1, 26 * MS)]);
}

#[test]
fn a_line_sends_one_packet_after_the_other() {
    // 1500 bytes at 12 Mbit/s take a millisecond.
    let (out, dropped) = run("rate = '12Mbit/s'\ndelay = '1ms'\nqueue = { kind = 'tail-drop', limit = '2pkt' }", 5, 0);
    assert_eq!(out, [(0, 2 * MS), (1, 3 * MS), (2, 4 * MS)], "one on the line, two wait");
    assert_eq!(dropped, [(3, DropCause::Full), (4, DropCause::Full)]);
}

#[test]
fn an_access_line_spreads_a_burst_and_drops_nothing() {
    let (out, dropped) = run("access_rate = '120Mbit/s'", 2000, 0);
    assert_eq!((out.len(), dropped.len()), (2000, 0));
    assert!(out.windows(2).all(|pair| pair[1].1 - pair[0].1 == MS / 10));
}

#[test]
fn access_line_keeps_a_burst_from_overflowing_the_queue() {
    let line = "rate = '100Mbit/s'\nqueue = { kind = 'tail-drop', limit = '10pkt' }";
    assert!(!run(line, 40, 0).1.is_empty());
    assert_eq!(run(&format!("{line}\naccess_rate = '100Mbit/s'"), 40, 0).1, []);
}

#[test]
fn wire_loss_uses_line_time_and_ingress_loss_does_not() {
    let with = |at: &str| {
        run(&format!("rate = '12Mbit/s'\nloss = {{ model = 'pattern', every = 2, lost = [0], at = '{at}' }}"), 4, 0)
    };
    assert_eq!(with("wire").0, [(1, 2 * MS), (3, 4 * MS)]);
    assert_eq!(with("ingress").0, [(1, MS), (3, 2 * MS)]);
    assert_eq!(with("wire").1, [(0, DropCause::WireLoss), (2, DropCause::WireLoss)]);
    assert_eq!(with("ingress").1, [(0, DropCause::IngressLoss), (2, DropCause::IngressLoss)]);
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a count")]
fn random_loss_has_the_configured_rate_and_burst_length() {
    let share = |text: &str| run(text, 100_000, 1).1.len() as f64 / 100_000.0;
    let bernoulli = share("loss = { model = 'bernoulli', p = 0.02 }");
    assert!((bernoulli - 0.02).abs() < 0.002, "{bernoulli}");
    // The model is in its bad state for 0.01 / (0.01 + 0.25) of all packets, for four packets on average.
    let text = "loss = { model = 'gilbert-elliott', to_bad = 0.01, to_good = 0.25 }";
    let lost = run(text, 100_000, 1).1;
    let bursts = 1 + lost.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count();
    let (share, burst) = (lost.len() as f64 / 100_000.0, lost.len() as f64 / bursts as f64);
    assert!((share - 0.01 / 0.26).abs() < 0.005, "{share}");
    assert!((burst - 4.0).abs() < 0.5, "{burst}");
}

#[test]
fn jitter_keeps_the_order_unless_reorder_is_set() {
    let text = |reorder| {
        format!("delay = '10ms'\njitter = {{ distribution = 'uniform', scale = '5ms', reorder = {reorder} }}")
    };
    let (ordered, _) = run(&text(false), 1000, MS / 10);
    assert!(ordered.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    let (mixed, _) = run(&text(true), 1000, MS / 10);
    assert!(mixed.windows(2).any(|pair| pair[0].0 > pair[1].0), "some packets overtake others");
    assert!(mixed.windows(2).all(|pair| pair[0].1 <= pair[1].1), "output times do not decrease");
    for (number, at) in mixed {
        let extra = at - number * MS / 10;
        assert!((10 * MS..15 * MS).contains(&extra), "packet {number} took {extra}");
    }
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a time")]
fn jitter_has_the_mean_of_its_distribution() {
    for (law, mean) in [("uniform", 0.5), ("normal", (2.0 / std::f64::consts::PI).sqrt()), ("exponential", 1.0)] {
        let text = format!("jitter = {{ distribution = '{law}', scale = '1ms', reorder = true }}");
        let (out, _) = run(&text, 20_000, MS);
        let total: f64 = out.iter().map(|(number, at)| (at - number * MS) as f64 / MS as f64).sum();
        assert!((total / 20_000.0 - mean).abs() < 0.02, "{law}: {}", total / 20_000.0);
    }
}

#[test]
fn reordered_packets_are_delayed_by_the_configured_time() {
    let (out, _) = run("reorder = { p = 0.1, by = '3ms' }", 1000, MS);
    let late: Vec<_> = out.iter().filter(|(number, at)| at - number * MS > 0).collect();
    assert!((60..140).contains(&late.len()), "{}", late.len());
    assert!(late.iter().all(|(number, at)| at - number * MS == 3 * MS));
    assert!(out.windows(2).any(|pair| pair[0].0 > pair[1].0));
}

#[test]
fn duplicates_follow_their_original() {
    let (out, _) = run("duplicate = { p = 0.5 }", 100, MS);
    let copies = out.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(out.len(), 100 + copies);
    assert!((30..70).contains(&copies), "{copies}");
}

#[test]
fn link_down_drops_arrivals_and_delivers_packets_in_flight() {
    let (up, down) = (conditions("delay = '10ms'"), conditions("delay = '10ms'\ndown = true"));
    let mut pipeline = Pipeline::new(&[&up, &down], SeededRng::new(1));
    pipeline.push(packet(0, 0, 1500));
    pipeline.set_conditions(&down, MS);
    pipeline.push(packet(1, 2 * MS, 1500));
    pipeline.set_conditions(&up, 3 * MS);
    pipeline.push(packet(2, 4 * MS, 1500));
    let out: Vec<_> = std::iter::from_fn(|| pipeline.pop(20 * MS)).map(|p| (p.number, p.at)).collect();
    assert_eq!(out, [(0, 10 * MS), (2, 14 * MS)]);
    assert_eq!(pipeline.events.dropped[0].cause, DropCause::Down);
}

/// Returns the numbers and departure times of packets with these arrival times and sizes on a link with the trace
/// `times`. Follows the loop of mahimahi's link queue: one delivery opportunity at a time, packets byte by byte.
fn deliveries_of_mahimahi(times: &[u64], arrivals: &[(Nanos, u32)]) -> Outputs {
    let (mut waiting, mut out) = (VecDeque::new(), Vec::new());
    let mut arrivals = arrivals.iter().enumerate().peekable();
    let mut base = 0;
    loop {
        for time in times {
            let now = (base + time) * MS;
            // A packet that arrives at the time of an opportunity does not use this opportunity.
            while let Some((number, (_, bytes))) = arrivals.next_if(|(_, (at, _))| *at < now) {
                waiting.push_back((number as u64, bytes + 4));
            }
            let mut left = 1504;
            while let Some((number, bytes)) = waiting.front_mut().filter(|_| left > 0) {
                let part = left.min(*bytes);
                (left, *bytes) = (left - part, *bytes - part);
                if *bytes == 0 {
                    out.push((*number, now));
                    waiting.pop_front();
                }
            }
        }
        if waiting.is_empty() && arrivals.peek().is_none() {
            return out;
        }
        base += times.last().unwrap();
    }
}

#[test]
fn a_line_with_a_trace_delivers_as_mahimahi_does() {
    for seed in 0..50 {
        let rng = SeededRng::new(seed);
        let draw = |label: &str, number: u64, below: u64| rng.derive(label).bits(number) % below;
        let mut times: Vec<u64> = (0..1 + draw("lines", 0, 20)).map(|number| draw("time", number, 30)).collect();
        times.sort_unstable();
        times.push(times.last().unwrap() + 1);
        let mut arrivals = Vec::new();
        let mut at = 0;
        for number in 0..100 {
            // Gaps of whole milliseconds let arrivals coincide with opportunities; gaps of 200 ms are longer than the
            // trace.
            at += [0, MS, 300_000, 7 * MS, 200 * MS][draw("pause", number, 5) as usize];
            arrivals.push((at, [40, 1500, 576, 1496, 9000][draw("bytes", number, 5) as usize]));
        }
        let list = times.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        for (count, overhead) in [("l3", 0), ("wire", 38)] {
            let conditions = conditions(&format!("trace = [{list}]\ncount = '{count}'"));
            let mut pipeline = Pipeline::new(&[&conditions], SeededRng::new(1));
            let mut out = Vec::new();
            for (number, (at, bytes)) in arrivals.iter().enumerate() {
                pipeline.push(packet(number as u64, *at, bytes + overhead));
            }
            while let Some(at) = pipeline.next_wakeup() {
                out.extend(pipeline.pop(at).map(|packet| (packet.number, packet.at)));
            }
            assert_eq!(out, deliveries_of_mahimahi(&times, &arrivals), "seed {seed}, trace {list}");
        }
    }
}

#[test]
fn waiting_packets_survive_changes_between_rate_and_traces() {
    let [rate, slow, fast] = ["rate = '12Mbit/s'", "trace = [100]", "trace = [1]"].map(conditions);
    let mut pipeline = Pipeline::new(&[&rate, &slow, &fast], SeededRng::new(1));
    for number in 0..6 {
        pipeline.push(packet(number, 0, 1500));
    }
    pipeline.set_conditions(&slow, 1_500_000);
    pipeline.set_conditions(&fast, 150 * MS + 1);
    pipeline.set_conditions(&fast, 151 * MS + 1);
    pipeline.set_conditions(&rate, 152 * MS + 5);
    let out: Vec<Nanos> = std::iter::from_fn(|| pipeline.pop(200 * MS)).map(|packet| packet.at).collect();
    assert_eq!(out, [MS, 2 * MS, 100 * MS, 151 * MS, 152 * MS, 153 * MS + 5]);
}

/// Regression test: the old queue dropped packets at a change by its own law, and the delays of the others were counted
/// from the change.
#[test]
fn a_new_queue_takes_over_packets_with_their_delays() {
    let codel = "rate = '12Mbit/s'\nqueue = { kind = 'codel', limit = '100pkt', target = '1ms', interval = '10ms' }";
    let tail_drop = "rate = '12Mbit/s'\nqueue = { kind = 'tail-drop', limit = '7pkt' }";
    let [codel, tail_drop] = [codel, tail_drop].map(conditions);
    let mut pipeline = Pipeline::new(&[&codel, &tail_drop], SeededRng::new(1));
    for number in 0..40 {
        pipeline.push(packet(number, 0, 1500));
    }
    // A packet leaves the queue each millisecond. CoDel drops one at 11 ms and at 21 ms, and the next is due at
    // 28.07 ms. At the change, 9 packets wait.
    let change = 28 * MS + MS / 2;
    pipeline.set_conditions(&tail_drop, change);
    while pipeline.pop(100 * MS).is_some() {}
    let (early, full) = (DropCause::Early, DropCause::Full);
    let drops = pipeline.events.dropped.iter().map(|drop| (drop.packet.number, drop.cause, drop.packet.at));
    assert_eq!(
        drops.collect::<Vec<_>>(),
        [(11, early, 11 * MS), (22, early, 21 * MS), (38, full, change), (39, full, change)]
    );
    let mut delays = QueueDelayHistogram::default();
    (0..36).for_each(|ms| delays.record(ms * MS));
    assert_eq!(pipeline.events.queue_delays, delays);
}
