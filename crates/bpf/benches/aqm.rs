//! The cost of a packet in the tc program of `ekiden aqm`, in nanoseconds: every mode, and up to 100,000 connections.
//!
//! `BPF_PROG_TEST_RUN` runs the program on one packet a million times; each time the packet gets the addresses of
//! another connection, at random, for realistic cache misses. An empty program and the drawing of connections alone are
//! measured beside it. Blocks of all are interleaved, and medians reported, because machines vary over time.
//!
//! Where other programs run at the same time, run the benchmark with `chrt -f 1 taskset -c 1`.
//!
//! `busy` is an overloaded line (drops are decided), `idle` one below its rate.

#![allow(clippy::unwrap_used, missing_docs, reason = "a program that measures and ends")]

use ekiden_bpf::aqm::settings::{AqmMode, AqmSettings, DEFAULT_TARGET, QueueAmount};
use ekiden_bpf::aqm::{PROGRAM, ProgramParams, object};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Object, ProgramInput};

#[allow(dead_code, reason = "the benchmark loads its programs itself, as it needs them all")]
#[path = "../tests/aqm_program/mod.rs"]
mod aqm_program;

static BENCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm_bench.bpf.o"));

const BLOCKS: usize = 15;
const REPEAT: u32 = 200_000;
const CONNECTIONS: [u64; 4] = [1, 1_000, 10_000, 100_000];

struct Subject {
    object: Object,
    program: &'static str,
    times: Vec<u64>,
}

impl Subject {
    fn new(mode: AqmMode, rate: &str, connections: u64, program: &'static str) -> Self {
        let settings = AqmSettings::new(rate.parse().unwrap(), mode);
        let [limit, min, max] = [4_000_000, 100_000, 300_000].map(QueueAmount::Bytes);
        let settings = AqmSettings { limit, min, max, table: 1 << 17, ..settings };
        let set = |name: &str| (name == ".rodata.bench").then(|| connections.to_ne_bytes().to_vec());
        let object = object::load_with(BENCH, &settings, ProgramParams { hash_key: 7, ethernet: true }, set).unwrap();
        Self { object, program, times: Vec::new() }
    }

    /// Runs one block.
    fn run(&mut self) {
        let packet = packet();
        let mut context = aqm_program::context_of(packet.len(), true);
        let program = self.object.progs_mut().find(|program| program.name() == self.program).unwrap();
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&packet),
            repeat: REPEAT,
            ..ProgramInput::default()
        };
        self.times.push(u64::try_from(program.test_run(input).unwrap().duration.as_nanos()).unwrap());
    }

    fn median(&mut self) -> u64 {
        self.times.sort_unstable();
        self.times[self.times.len() / 2]
    }
}

/// A TCP segment in IPv4 that may be marked.
fn packet() -> Vec<u8> {
    let mut packet = [&[0; 12][..], &[0x08, 0x00], &aqm_program::ipv4(6, 0x4000, 2, 0)].concat();
    packet.resize(1514, 0);
    packet
}

fn modes() -> Vec<(&'static str, AqmMode)> {
    vec![
        ("red", AqmMode::Red),
        ("auto", AqmMode::Auto { target: DEFAULT_TARGET }),
        ("static", AqmMode::Static { heavy: vec![[10, 0, 0, 1].into(); 16] }),
        ("dynamic", AqmMode::Dynamic { rec_int: 10, sta_int: 100, hist_len: 1024 }),
        ("dynamic, each packet", AqmMode::Dynamic { rec_int: 1, sta_int: 1, hist_len: 1024 }),
    ]
}

/// One row: a mode and a load, with each number of connections.
struct Row {
    label: String,
    verified: u32,
    subjects: Vec<Subject>,
}

impl Row {
    fn new(name: &str, mode: &AqmMode, load: &str, rate: &str) -> Self {
        let subject = |connections| Subject::new(mode.clone(), rate, connections, "ekiden_aqm");
        let subjects: Vec<Subject> = CONNECTIONS.into_iter().map(subject).collect();
        Self { label: format!("{name}, {load}"), verified: verified_instructions(), subjects }
    }
}

/// How many instructions the verifier has looked at, of the program that was loaded last.
fn verified_instructions() -> u32 {
    ProgInfoIter::default().filter(|program| program.name == PROGRAM).last().map_or(0, |program| program.verified_insns)
}

fn main() {
    let mut empty = Subject::new(AqmMode::Red, "1Gbit/s", 1, "empty");
    let mut draw = Subject::new(AqmMode::Red, "1Gbit/s", 100_000, "only_draw");
    let loads = [("busy", "10Gbit/s"), ("idle", "1000Gbit/s")];
    let rows = modes().into_iter().flat_map(|(name, mode)| loads.map(|(load, rate)| Row::new(name, &mode, load, rate)));
    let mut rows: Vec<Row> = rows.collect();
    for _ in 0..BLOCKS {
        empty.run();
        draw.run();
        rows.iter_mut().flat_map(|row| &mut row.subjects).for_each(Subject::run);
    }
    let empty = empty.median();
    println!(
        "ns a packet, medians of {BLOCKS} interleaved blocks of {REPEAT}, without the {empty} of an empty program"
    );
    println!("(drawing a connection, which is in all of them: {})\n", draw.median() - empty);
    println!("| mode | {} | verified |\n|---|{}---|", CONNECTIONS.map(|n| n.to_string()).join(" | "), "---|".repeat(4));
    for Row { label: name_and_load, verified, subjects } in &mut rows {
        let medians: Vec<String> = subjects.iter_mut().map(|one| (one.median() - empty).to_string()).collect();
        println!("| {name_and_load} | {} | {verified} |", medians.join(" | "));
    }
}
