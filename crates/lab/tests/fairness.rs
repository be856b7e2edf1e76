//! The fairness of the `auto` queue between models of TCP in virtual time, at a few points, and the models against
//! their theory. `cargo run --release -p ekiden-lab --example fairness` prints the whole sweep.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "fairness/control/mod.rs"]
mod control;
#[path = "fairness/measure.rs"]
mod measure;
#[path = "fairness/network.rs"]
mod network;
#[path = "fairness/sender.rs"]
mod sender;

use ekiden_emulator::conditions::QueueKind;
use ekiden_emulator::ledger::{DropCause, StageEvents};
use ekiden_emulator::packet::Packet;
use ekiden_emulator::queue::{self, Backlog, Queue};
use ekiden_emulator::rng::SeededRng;

use control::Algorithm;
use measure::jain;
use network::{FlowSpec, Simulation, SimulationResult};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const AUTO: &str = "kind = 'auto'\nlimit = '10000pkt'";

/// A queue that drops every packet with the same probability.
struct LossyQueue {
    inner: Box<dyn Queue>,
    rng: SeededRng,
    p: f64,
}

impl Queue for LossyQueue {
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents) {
        if self.rng.bernoulli(packet.number, self.p) {
            ledger.record_drop(packet, DropCause::Early);
        } else {
            self.inner.enqueue(packet, ledger);
        }
    }

    fn dequeue(&mut self, now: u64, ledger: &mut StageEvents) -> Option<Packet> {
        self.inner.dequeue(now, ledger)
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }

    fn into_packets(self: Box<Self>) -> Vec<Packet> {
        self.inner.into_packets()
    }
}

fn build(text: &str, rate: u64) -> Box<dyn Queue> {
    let kind: QueueKind = toml::from_str(text).unwrap();
    queue::build(&kind, Some(format!("{rate}bit/s").parse().unwrap()), SeededRng::new(1))
}

/// The average window of one connection under random loss in packets; the line has 1 Gbit/s, the round trip is 100 ms.
fn window_under_loss(kind: Algorithm, p: f64, seconds: u64) -> f64 {
    let rate = 1_000_000_000;
    let inner = build("kind = 'tail-drop'\nlimit = '100000pkt'", rate);
    let queue = Box::new(LossyQueue { inner, rng: SeededRng::new(7), p });
    let flow = FlowSpec { kind, group: 0, rtt: 100 * MS, start: 0, size: None, ecn: false };
    let run = Simulation::new(queue, rate, 1, &[flow]).run(seconds * SECOND / 5, seconds * SECOND);
    run.connections[0].packets as f64 / run.seconds * 0.1
}

#[test]
fn windows_of_the_models_match_their_theory() {
    let near = |what: &str, window: f64, theory: f64, tolerance: f64| {
        let ratio = window / theory;
        assert!((ratio - 1.0).abs() < tolerance, "{what}: {window:.0} packets, by theory {theory:.0}");
    };
    // Reno: Mathis, Semke, Mahdavi, Ott 1997. CTCP: INFOCOM 2006 with k = 3/4. CUBIC: RFC 9438 section 5.1.
    near("Reno", window_under_loss(Algorithm::Reno, 1e-3, 300), 1.22 / 1e-3_f64.sqrt(), 0.15);
    near("CTCP", window_under_loss(Algorithm::Ctcp, 1e-4, 300), 0.255 / 1e-4_f64.powf(0.8), 0.15);
    let cubic = (0.4_f64 * 3.7 / 1.2).powf(0.25) * (0.1_f64 / 1e-4).powf(0.75);
    near("CUBIC", window_under_loss(Algorithm::Cubic, 1e-4, 400), cubic, 0.15);
    // BBR does not react to loss, so it fills the line.
    near("BBR", window_under_loss(Algorithm::Bbr, 1e-2, 4), 0.1 * 1e9 / 12_000.0, 0.1);
}

/// `each` connections of each kind; `rtt` gives the round-trip time of a connection by its number.
fn flows_of(kinds: &[Algorithm], each: usize, rtt: impl Fn(u64) -> u64) -> Vec<FlowSpec> {
    let groups = kinds.iter().enumerate().flat_map(|(group, kind)| vec![(group, *kind); each]);
    let rng = SeededRng::new(3).derive("start");
    let flow = |(number, (group, kind))| {
        let start = rng.bits(number) % (200 * MS);
        FlowSpec { kind, group, rtt: rtt(number), start, size: None, ecn: false }
    };
    (0..).zip(groups).map(flow).collect()
}

fn run(queue: &str, flows: &[FlowSpec], seconds: u64) -> SimulationResult {
    Simulation::new(build(queue, 100_000_000), 100_000_000, 3, flows).run(0, seconds * SECOND)
}

/// The rate of the first kind divided by that of the second, and the sum of both.
fn ratio_and_sum(run: &SimulationResult) -> (f64, f64) {
    let rates = run.rates();
    let (first, second) = rates.split_at(rates.len() / 2);
    let (first, second): (f64, f64) = (first.iter().sum(), second.iter().sum());
    (first / second, first + second)
}

#[test]
fn auto_makes_cubic_and_ctcp_equal_where_tail_drop_does_not() {
    for (each, rtt) in [(1, 2), (1, 64), (16, 32)] {
        let flows = flows_of(&[Algorithm::Cubic, Algorithm::Ctcp], each, |_| rtt * MS);
        let what = format!("{each} + {each} at {rtt} ms");
        let (tail, auto) = (run("kind = 'tail-drop'\nlimit = '10000pkt'", &flows, 30), run(AUTO, &flows, 30));
        let (unfair, tail_sum) = ratio_and_sum(&tail);
        let (fair, sum) = ratio_and_sum(&auto);
        assert!(!(0.7..1.4).contains(&unfair), "{what}: tail drop gives {unfair}");
        assert!((0.9..1.1).contains(&fair), "{what}: {fair}");
        assert!(sum > 0.97 * tail_sum, "{what}: {sum} of {tail_sum} Mbit/s");
        assert!(
            auto.mean_queue_delay() < tail.mean_queue_delay() / 4.0,
            "{what}: {} of {} ms",
            auto.mean_queue_delay(),
            tail.mean_queue_delay()
        );
        assert!(
            auto.queue_delay_quantile(0.99) < tail.queue_delay_quantile(0.99) / 2.0,
            "{what}: {} ms",
            auto.queue_delay_quantile(0.99)
        );
    }
}

#[test]
fn auto_is_fair_to_200_mixed_flows_with_unequal_round_trips() {
    let flows = flows_of(&[Algorithm::Cubic, Algorithm::Ctcp, Algorithm::Reno, Algorithm::Bbr], 50, |number| {
        (10 + number * 37 % 180) * MS
    });
    let shared = run(AUTO, &flows, 20);
    assert!(jain(&shared.rates()) > 0.95, "Jain's index is {}", jain(&shared.rates()));
}

#[test]
fn auto_completes_short_transfers_quickly_beside_long_flows() {
    let mut flows = flows_of(&[Algorithm::Cubic, Algorithm::Bbr], 2, |_| 40 * MS);
    let short = |number: u64| FlowSpec { size: Some(30), start: SECOND * 4 + number * 500 * MS, group: 2, ..flows[0] };
    let short: Vec<FlowSpec> = (0..20).map(short).collect();
    flows.extend(short);
    let connections = run(AUTO, &flows, 16).connections;
    let dropped: u64 = connections[4..].iter().map(|connection| connection.dropped).sum();
    assert!(dropped < 6, "{dropped} of 600 packets were dropped");
    assert!(
        connections[4..].iter().all(|connection| connection.completion_s.is_some_and(|took| took < 1.0)),
        "{:?}",
        &connections[4..]
    );
}

#[test]
fn auto_marks_ecn_capable_flows_instead_of_dropping() {
    let not_capable = flows_of(&[Algorithm::Cubic, Algorithm::Ctcp], 8, |_| 64 * MS);
    let capable: Vec<FlowSpec> = not_capable.iter().map(|flow| FlowSpec { ecn: true, ..*flow }).collect();
    let dropped = |run: &SimulationResult| run.connections.iter().map(|connection| connection.dropped).sum::<u64>();
    let (without, with) = (run(AUTO, &not_capable, 15), run(&format!("{AUTO}\necn = true"), &capable, 15));
    let what = format!("{} packets dropped with marks, {} without", dropped(&with), dropped(&without));
    assert!(dropped(&with) * 4 < dropped(&without), "{what}");
    assert!(jain(&with.rates()) > 0.97, "{:?}", with.rates());
    let reductions: u64 = with.connections.iter().map(|connection| connection.reductions).sum();
    assert!(reductions > 50, "{reductions} reductions");
}
