//! Prints how queues share a line of 100 Mbit/s, in virtual time: tail drop, FQ-CoDel and `auto`, with CUBIC against CTCP at
//! all round-trip times, and with many connections of all kinds.
//!
//! `cargo run --release -p ekiden-lab --example fairness [seconds [seeds]]`

#![allow(missing_docs, clippy::unwrap_used, reason = "a table for developers; a panic is an answer")]

#[path = "../tests/fairness/control/mod.rs"]
mod control;
#[path = "../tests/fairness/measure.rs"]
mod measure;
#[path = "../tests/fairness/network.rs"]
mod network;
#[path = "../tests/fairness/sender.rs"]
mod sender;

use ekiden_emulator::conditions::QueueKind;
use ekiden_emulator::queue;
use ekiden_emulator::rng::SeededRng;

use control::Algorithm::{self, Bbr, Ctcp, Cubic, Reno};
use network::{FlowSpec, Simulation, SimulationResult};

const MS: u64 = 1_000_000;
const LINE: u64 = 100_000_000;

fn run(kind: &str, flows: &[FlowSpec], seed: u64, seconds: u64) -> SimulationResult {
    let text = format!("kind = '{kind}'\nlimit = '10000pkt'");
    let kind: QueueKind = toml::from_str(&text).unwrap();
    let queue = queue::build(&kind, Some("100Mbit/s".parse().unwrap()), SeededRng::new(seed));
    Simulation::new(queue, LINE, seed, flows).run(0, seconds * 1000 * MS)
}

/// Connections of groups, that start within a fifth of a second; without a round-trip time, each has another.
fn flows(groups: &[(Algorithm, usize)], rtt: Option<u64>, seed: u64) -> Vec<FlowSpec> {
    let rng = SeededRng::new(seed).derive("start");
    let all = groups.iter().enumerate().flat_map(|(group, (kind, number))| vec![(group, *kind); *number]);
    let flow = |(number, (group, kind))| {
        let rtt = rtt.unwrap_or(10 + number * 37 % 180) * MS;
        FlowSpec { kind, group, rtt, start: rng.bits(number) % (200 * MS), size: None, ecn: false }
    };
    (0..).zip(all).map(flow).collect()
}

fn print(what: &str, kind: &str, groups: &[(Algorithm, usize)], run: &SimulationResult) {
    let rates = run.rates();
    let mut left = &rates[..];
    let mut sums = Vec::new();
    for (_, number) in groups {
        let (group, rest) = left.split_at(*number);
        sums.push(group.iter().sum::<f64>());
        left = rest;
    }
    let text: Vec<String> = sums.iter().map(|sum| format!("{sum:.1}")).collect();
    let (dropped, reductions) = run
        .connections
        .iter()
        .fold((0, 0), |(dropped, answers), connection| (dropped + connection.dropped, answers + connection.reductions));
    println!(
        "{what:32} {kind:10} ratio {:6.2} sum {:6.2} Jain {:.3} wait {:7.1} ms, 99 % {:7.1} ms; {}; {dropped} dropped, {reductions} answers",
        sums[0] / sums[1],
        sums.iter().sum::<f64>(),
        measure::jain(&rates),
        run.mean_queue_delay(),
        run.queue_delay_quantile(0.99),
        text.join(" + ")
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().unwrap());
    let (seconds, seeds) = (arguments.next().unwrap_or(60), arguments.next().unwrap_or(1));
    let pairs = [1, 16].into_iter().flat_map(|each| (1..=8).map(move |power| (each, 1 << power)));
    for (each, rtt) in pairs {
        let groups = [(Cubic, each), (Ctcp, each)];
        for (kind, seed) in
            ["tail-drop", "fq-codel", "auto"].into_iter().flat_map(|kind| (0..seeds).map(move |seed| (kind, seed)))
        {
            let run = run(kind, &flows(&groups, Some(rtt), seed), seed, seconds);
            print(&format!("{each} CUBIC, {each} CTCP, {rtt} ms"), kind, &groups, &run);
        }
    }
    let many: [(&str, &[(Algorithm, usize)]); 3] = [
        ("100 CUBIC, 100 CTCP", &[(Cubic, 100), (Ctcp, 100)]),
        ("50 each with Reno, BBR", &[(Cubic, 50), (Ctcp, 50), (Reno, 50), (Bbr, 50)]),
        ("100 CUBIC, 100 BBR", &[(Cubic, 100), (Bbr, 100)]),
    ];
    for (name, groups) in many {
        for rtt in [Some(10), Some(100), None] {
            for kind in ["tail-drop", "fq-codel", "auto"] {
                let text = rtt.map_or("10 to 189 ms".to_owned(), |rtt| format!("{rtt} ms"));
                print(&format!("{name}, {text}"), kind, groups, &run(kind, &flows(groups, rtt, 0), 0, seconds));
            }
        }
    }
}
