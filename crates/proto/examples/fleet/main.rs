//! The cost of path choices with many relays and targets: a simulated fleet on the globe, and timings of the chooser.
//!
//! `cargo run --release -p ekiden-proto --example fleet [PICTURE.svg]` prints the tables of `docs/scale.md` and draws
//! its plot. A world is equal in every run; times depend on the machine.

mod plot;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::aqm;
use ekiden_proto::fleet::Neighbour;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::candidates::{Candidate, ParetoFronts};
use ekiden_proto::path::choice::TransferOutcome;
use ekiden_proto::path::map::NetworkMap;
use ekiden_proto::path::model::RelayCosts;
use ekiden_proto::path::select::PathChooser;
use ekiden_proto::path::transfer_size::TransferSize;
use ekiden_proto::path::trust::Trust;

use plot::Series;
use world::World;

const SEED: u64 = 8;
const PREFIXES: usize = 100_000;
const SIZE: u64 = 4 << 20;

/// Of a fleet of any size, relays that each knows in the sparse case.
const SPARSE: usize = 20;

const SIZES: [usize; 7] = [50, 100, 200, 300, 500, 700, 1000];

fn main() -> std::io::Result<()> {
    let dense: Vec<RecomputationTime> = SIZES.iter().map(|relays| measure_recomputation(*relays, relays - 1)).collect();
    let sparse: Vec<RecomputationTime> = SIZES.iter().map(|relays| measure_recomputation(*relays, SPARSE)).collect();
    println!("Recomputation, both directions, processor time, median of nine:\n");
    println!("| relays | sections, each to all | ms | sections, {SPARSE} each | ms |\n|--:|--:|--:|--:|--:|");
    for (dense, sparse) in dense.iter().zip(&sparse) {
        let [all, few] = [dense, sparse].map(|growth| format!("{} | {:.2}", growth.sections, growth.millis));
        println!("| {} | {all} | {few} |", dense.relays);
    }
    for (name, growth) in [("each to all", &dense), ("sparse", &sparse)] {
        let fit = Fit::of(growth);
        println!("\n{name}: ms = {:.3e} (E + N log2 N)^{:.2}, R2 {:.3}", fit.factor, fit.exponent, fit.r2);
    }
    println!();
    print_choices();
    println!();
    compare_with_optimum();
    println!();
    print_etcd_load();
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, picture(&dense, &sparse))?;
    }
    Ok(())
}

/// One size of a fleet, and how long a recomputation took.
struct RecomputationTime {
    relays: usize,
    sections: usize,
    millis: f64,
}

impl RecomputationTime {
    /// E + N log2 N.
    fn bound(&self) -> f64 {
        let relays = self.relays as f64;
        self.sections as f64 + relays * relays.log2()
    }
}

fn measure_recomputation(relays: usize, neighbours: usize) -> RecomputationTime {
    let map = World::new(relays, 0, SEED).map(neighbours);
    let (costs, trust) = (RelayCosts::default(), Trust::default());
    // The kernel counts a processor's time in ticks: many runs of a small one.
    let runs = (1_000_000 / map.section_count()).clamp(1, 500) as u32;
    let compute = || (0..runs).for_each(|_| drop(std::hint::black_box(ParetoFronts::compute(&map, &costs, &trust))));
    let mut millis: Vec<f64> = (0..9).map(|_| (timed(compute) / runs).as_secs_f64() * 1e3).collect();
    RecomputationTime { relays, sections: map.section_count(), millis: quantile(&mut millis, 0.5) }
}

/// Time of the processor, which others on the machine do not lengthen as much as they do that of the clock.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = processor();
    let done = work();
    let took = processor().saturating_sub(begun);
    drop(done);
    took
}

/// The processor time of this thread.
fn processor() -> Duration {
    let read = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = read.and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// `millis = factor * bound ^ exponent`, by least squares of the logarithms.
struct Fit {
    factor: f64,
    exponent: f64,
    r2: f64,
}

impl Fit {
    fn of(growth: &[RecomputationTime]) -> Self {
        let points: Vec<(f64, f64)> = growth.iter().map(|one| (one.bound().ln(), one.millis.ln())).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let (xx, xy) = (sum(&|point| (point.0 - x).powi(2)), sum(&|point| (point.0 - x) * (point.1 - y)));
        let yy = sum(&|point| (point.1 - y).powi(2));
        let exponent = xy / xx;
        Self { factor: (y - exponent * x).exp(), exponent, r2: xy * xy / (xx * yy) }
    }
}

/// Sessions to all prefixes of a fleet of a thousand: first ones, then others.
fn print_choices() {
    let world = World::new(1000, PREFIXES, SEED);
    let before = resident();
    let mut map = world.map(999);
    world.add_targets(&mut map);
    let mapped = resident();
    let mut chooser = PathChooser::new(Arc::new(map), RelayCosts::default());
    let computed = resident();
    let choose = |chooser: &mut PathChooser, number: u64| {
        let prefix = world::prefix(number % world.prefixes());
        let now = Duration::from_micros(number);
        let begun = Instant::now();
        let choice = chooser.choose(prefix, TransferSize::down(SIZE), now);
        (choice, begun.elapsed().as_secs_f64() * 1e6)
    };
    let mut first: Vec<f64> = (0..world.prefixes()).map(|number| choose(&mut chooser, number).1).collect();
    let mut again: Vec<f64> = Vec::new();
    for number in 0..4 * world.prefixes() {
        let (choice, micros) = choose(&mut chooser, aqm::random_bits(!SEED, number));
        again.push(micros);
        let way = &choice.ranking[0];
        let outcome = TransferOutcome {
            transferred: TransferSize::down(SIZE),
            session_bytes: SIZE,
            elapsed: way.predicted,
            is_continuation: false,
            limited_by_path: true,
        };
        let prefix = world::prefix(aqm::random_bits(!SEED, number) % world.prefixes());
        chooser.record_outcome(prefix, &way.candidate, &outcome, Duration::from_micros(number));
    }
    let filled = resident();
    println!("Choices, 1,000 relays, {PREFIXES} prefixes, in microseconds:\n");
    println!("| | median | 99 % | 99.9 % |\n|---|--:|--:|--:|");
    for (name, micros) in [("first to a prefix after a new map", &mut first), ("from the cache", &mut again)] {
        let [half, most, nearly_all] = [0.5, 0.99, 0.999].map(|share| quantile(micros, share));
        println!("| {name} | {half:.1} | {most:.1} | {nearly_all:.1} |");
    }
    println!(
        "\nMemory: map {:.0} MB, paths to relays {:.1} MB, answers and experience {:.0} MB",
        (mapped - before) / 1e6,
        (computed - mapped) / 1e6,
        (filled - computed) / 1e6
    );
}

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * 4096.0
}

/// How near the choice is to the best of every simple path of up to two relays, by the same model.
fn compare_with_optimum() {
    let world = World::new(60, 300, SEED);
    let mut map = world.map(59);
    world.add_targets(&mut map);
    let map = Arc::new(map);
    let mut chooser = PathChooser::new(Arc::clone(&map), RelayCosts::default());
    for size in [10_000, 1 << 20, 64 << 20] {
        let mut ratios: Vec<f64> = Vec::new();
        let mut helped = 0;
        for number in 0..world.prefixes() {
            let choice = chooser.choose(world::prefix(number), TransferSize::down(size), Duration::ZERO);
            let chosen = choice.ranking[0].predicted.as_secs_f64();
            helped += u32::from(!choice.ranking[0].candidate.is_direct());
            let best = simple_paths(&map).filter_map(|candidate| {
                chooser.predict(world::prefix(number), &candidate, TransferSize::down(size), Duration::ZERO)
            });
            ratios.push(chosen / best.map(|ranked| ranked.predicted.as_secs_f64()).fold(f64::MAX, f64::min));
        }
        let within = ratios.iter().filter(|ratio| **ratio <= 1.05).count() as f64 / ratios.len() as f64;
        let (relayed, worst) = (f64::from(helped) / ratios.len() as f64, quantile(&mut ratios, 1.0));
        println!(
            "{size} bytes, 60 relays: within 5 % of the best of all paths in {:.1} % of 300 cases, at worst {worst:.2} times \
             as long; through relays in {:.0} %",
            within * 100.0,
            relayed * 100.0
        );
    }
}

/// Every simple path of up to two relays, and direct.
fn simple_paths(map: &NetworkMap) -> impl Iterator<Item = Candidate> {
    let count = map.node_count() as u32;
    let singles = (1..count).map(|one| vec![one]);
    let pairs = (1..count)
        .flat_map(move |one| (1..count).filter(move |other| *other != one).map(move |other| vec![one, other]));
    let direct = std::iter::once(Vec::new());
    direct.chain(singles).chain(pairs).map(|relays| Candidate { relays })
}

/// The load of the fleet's entries at etcd, where each relay writes at most once in `every`.
fn print_etcd_load() {
    let neighbour = Neighbour {
        key: PublicKey([3; 32]),
        rtt: Duration::from_micros(123_456),
        loss_ppm: 1234,
        rate: 12_345_678,
        age: 10,
    };
    let line = format!("neighbour: {neighbour}\n").len();
    println!("etcd, 1,000 relays with {SPARSE} neighbours each, all with news all the time:\n");
    println!("| every | writes/s | kB/s in | MB/s out to the watchers | kB/s to each relay |\n|--:|--:|--:|--:|--:|");
    for every in [10.0, 60.0, 300.0] {
        let writes = 1000.0 / every;
        let bytes = writes * (CERTIFICATE + SPARSE * line) as f64;
        println!("| {every} s | {writes:.1} | {:.0} | {:.1} | {:.1} |", bytes / 1e3, bytes * 1000.0 / 1e6, bytes / 1e3);
    }
}

/// Bytes of an entry without its neighbours: the certificate, numbers and two signatures.
const CERTIFICATE: usize = 600;

fn picture(dense: &[RecomputationTime], sparse: &[RecomputationTime]) -> String {
    let points = |growth: &[RecomputationTime]| growth.iter().map(|one| (one.bound(), one.millis)).collect::<Vec<_>>();
    let line = |growth: &[RecomputationTime]| {
        let fit = Fit::of(growth);
        growth.iter().map(|one| (one.bound(), fit.factor * one.bound().powf(fit.exponent))).collect::<Vec<_>>()
    };
    let series = [
        Series { name: "each relay knows all others", colour: "#1f4e9c", points: points(dense), dots: true },
        Series { name: "", colour: "#1f4e9c", points: line(dense), dots: false },
        Series { name: "each relay knows twenty others", colour: "#b3541e", points: points(sparse), dots: true },
        Series { name: "", colour: "#b3541e", points: line(sparse), dots: false },
    ];
    plot::svg(
        "Recomputation of all paths, 50 to 1,000 relays: measured, and fitted lines",
        ("E + N log2 N", "ms"),
        &series,
    )
}
