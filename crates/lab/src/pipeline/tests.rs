use super::*;
use crate::packet::Ecn;

const MS: Nanos = 1_000_000;

fn conditions(text: &str) -> Conditions {
    toml::from_str(text).unwrap()
}

fn packet(number: u64, at: Nanos) -> Packet {
    Packet { number, at, bytes: 1500, flow: 1, source: 0, ecn: Ecn::NotCapable, tag: 0 }
}

const LONG: &str = "rate = '12Mbit/s'\ndelay = '20ms'\nqueue = { kind = 'codel', limit = '100pkt' }\n\
                    loss = { model = 'bernoulli', p = 0.01 }";

/// Everything that comes out, and every drop, when a driver looks at the pipeline at `times`.
fn run_polled_at(times: impl Fn(Nanos) -> Nanos) -> (Vec<Packet>, usize) {
    let conditions = conditions(LONG);
    let mut pipeline = Pipeline::new(&[&conditions], SeededRng::new(7));
    let mut out = Vec::new();
    for number in 0..2000 {
        let at = number * MS * 9 / 10;
        // The driver looks before it has seen what has just arrived.
        while let Some(packet) = pipeline.pop(times(at)) {
            out.push(packet);
        }
        pipeline.push(packet(number, at));
    }
    while let Some(packet) = pipeline.pop(Nanos::MAX / 2) {
        out.push(packet);
    }
    (out, pipeline.events.dropped.len())
}

#[test]
fn when_the_driver_looks_changes_nothing() {
    let promptly = run_polled_at(|at| at);
    assert!(promptly.1 > 30 && promptly.0.len() > 1000, "the test is worth something");
    assert_eq!(promptly, run_polled_at(|at| at / (50 * MS) * 50 * MS), "every 50 ms");
    assert_eq!(promptly, run_polled_at(|at| at + 19 * MS), "late with its input by less than the delay");
}

#[test]
fn it_wakes_for_what_comes_out_and_not_for_what_moves_inside() {
    let conditions = conditions(LONG);
    let mut pipeline = Pipeline::new(&[&conditions], SeededRng::new(7));
    assert_eq!(pipeline.next_wakeup(), None);
    pipeline.push(packet(0, 0));
    assert_eq!(pipeline.next_wakeup(), Some(21 * MS), "1 ms on the line, 20 ms on the way");
    assert_eq!(pipeline.pop(21 * MS - 1), None);
    assert_eq!(pipeline.pop(21 * MS).map(|packet| packet.at), Some(21 * MS));
    assert_eq!(pipeline.next_wakeup(), None);
}

#[test]
fn only_what_tells_packets_apart_needs_them_apart() {
    let is_by_packet = |text: &str| Pipeline::new(&[&conditions(text)], SeededRng::new(1)).is_per_packet();
    assert!(!is_by_packet("") && !is_by_packet("delay = '10ms'"));
    for text in [
        "rate = '1Gbit/s'",
        "loss = { model = 'bernoulli', p = 0 }",
        "jitter = { distribution = 'uniform', scale = '1ms' }",
    ] {
        assert!(is_by_packet(text), "{text}");
    }
}

#[test]
fn a_change_of_rate_holds_from_its_time_on() {
    let (slow, fast) = (conditions("rate = '12Mbit/s'"), conditions("rate = '120Mbit/s'"));
    let mut pipeline = Pipeline::new(&[&slow, &fast], SeededRng::new(1));
    for number in 0..5 {
        pipeline.push(packet(number, 0));
    }
    pipeline.set_conditions(&fast, MS * 3 / 2);
    let times: Vec<_> = std::iter::from_fn(|| pipeline.pop(10 * MS)).map(|packet| packet.at).collect();
    assert_eq!(times, [MS, 2 * MS, 2 * MS + MS / 10, 2 * MS + MS / 5, 2 * MS + MS * 3 / 10]);
}

#[test]
fn a_shorter_delay_lets_nobody_overtake() {
    let (long, short) = (conditions("delay = '20ms'"), conditions("delay = '1ms'"));
    let mut pipeline = Pipeline::new(&[&long, &short], SeededRng::new(1));
    pipeline.push(packet(0, 0));
    pipeline.set_conditions(&short, 5 * MS);
    pipeline.push(packet(1, 6 * MS));
    pipeline.push(packet(2, 30 * MS));
    let out: Vec<_> = std::iter::from_fn(|| pipeline.pop(50 * MS)).map(|p| (p.number, p.at)).collect();
    assert_eq!(out, [(0, 20 * MS), (1, 20 * MS), (2, 31 * MS)]);
}

#[test]
fn another_link_or_stage_changes_no_decision_here() {
    let lost = |text: &str, dice: SeededRng| {
        let conditions = conditions(text);
        let mut pipeline = Pipeline::new(&[&conditions], dice);
        for number in 0..5000 {
            pipeline.push(packet(number, number * MS));
        }
        while pipeline.pop(Nanos::MAX / 2).is_some() {}
        pipeline.events.dropped.iter().map(|drop| drop.packet.number).collect::<Vec<_>>()
    };
    let loss = "loss = { model = 'bernoulli', p = 0.01 }";
    let dice = SeededRng::new(3).derive("wan");
    let plain = lost(loss, dice);
    assert!(plain.len() > 20);
    assert_eq!(
        plain,
        lost(&format!("{loss}\ndelay = '5ms'\njitter = {{ distribution = 'normal', scale = '1ms' }}"), dice)
    );
    assert_ne!(plain, lost(loss, SeededRng::new(3).derive("lan")));
}
