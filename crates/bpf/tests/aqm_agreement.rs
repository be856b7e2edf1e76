//! The C program in the kernel and the Rust implementation of the laboratory give the same verdict for every packet.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use ekiden_bpf::aqm::settings::{AqmMode, AqmSettings, QueueAmount};
use ekiden_bpf::aqm::{ProgramParams, encode, object};
use ekiden_proto::aqm::priority::{self, DynamicParams, StaticParams};
use ekiden_proto::aqm::{self, ArrivingPacket, DropReason, Verdict, auto, red, virtual_queue};
use libbpf_rs::{Object, ProgramInput};

#[allow(dead_code, reason = "the packets of these tests have no headers")]
mod aqm_program;

static REPLAY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm_replay.bpf.o"));

const ARRIVALS: u64 = 30_000;
const KEY: u64 = 0x1234_5678_9abc_def0;
const ETHERNET: usize = 14;

/// The law of a mode, with its parameters and its state, as the laboratory implements it.
enum Law {
    Red(red::RedParams, red::RedState),
    Static(StaticParams, red::RedState),
    Dynamic(DynamicParams, Box<priority::DynamicState>),
    Auto(auto::AutoParams, Box<auto::AutoState>, Vec<auto::SlotSet>),
}

impl Law {
    fn of(settings: &AqmSettings) -> Self {
        let red = red::RedParams::new(&settings.red_config(), Some(settings.drain_rate()), KEY);
        match &settings.mode {
            AqmMode::Red => Self::Red(red, red::RedState::default()),
            AqmMode::Static { .. } => {
                Self::Static(StaticParams::new(red, &[0x0a00_0001, 0x0a00_0003]), red::RedState::default())
            }
            AqmMode::Auto { .. } => {
                let params = encode::auto_params(settings);
                let sets = vec![auto::SlotSet::default(); params.sets()];
                Self::Auto(params, Box::default(), sets)
            }
            AqmMode::Dynamic { rec_int, sta_int, hist_len } => {
                Self::Dynamic(DynamicParams::new(red, *rec_int, *sta_int, *hist_len), Box::default())
            }
        }
    }

    fn judge(&mut self, arrival: &ArrivingPacket) -> Verdict {
        match self {
            Self::Red(params, state) => red::judge_any(params, state, arrival),
            Self::Static(params, state) => priority::judge_static(params, state, arrival),
            Self::Dynamic(params, state) => priority::judge_dynamic(params, state, arrival),
            Self::Auto(params, state, sets) => auto::judge_arrival(params, state, sets, arrival),
        }
    }
}

/// The return code of the program for a verdict.
const fn verdict_code(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Pass => 0,
        Verdict::Mark => 1,
        Verdict::Drop(DropReason::Full) => 2,
        Verdict::Drop(DropReason::Early) => 3,
        Verdict::Drop(DropReason::Forced) => 4,
    }
}

/// Arrivals that reach every state of a law: from a few heavy senders and many light senders, in floods, at about the
/// rate of the line, and with pauses of all lengths.
fn arrivals(seed: u64) -> impl Iterator<Item = ArrivingPacket> {
    let mut now = 5_000_000_000;
    (0..ARRIVALS).map(move |number| {
        let bits = |place: u64| aqm::random_bits(seed ^ place, number);
        let phase = aqm::random_bits(seed, number / 1000) % 4;
        now += match phase {
            0 => 10_000 + bits(1) % 10_000,
            1 | 2 => 100_000 + bits(1) % 40_000,
            _ => 1_000 << (bits(1) % 22),
        };
        let flow = if bits(2) % 3 == 0 { bits(3) as u32 } else { (phase * 7 + bits(3) % 3) as u32 };
        let sizes: &[u32] = if phase == 1 { &[60, 1500, 65_000] } else { &[60, 1500, 1500] };
        ArrivingPacket {
            now,
            flow,
            source: 0x0a00_0000 + (bits(4) % 5) as u32,
            bytes: sizes[(bits(5) % 3) as usize],
            ecn_capable: u32::from(bits(6) % 3 == 0),
            ..ArrivingPacket::default()
        }
    })
}

fn load(settings: &AqmSettings) -> Option<Object> {
    let params = ProgramParams { hash_key: KEY, ethernet: true };
    aqm_program::load_if_supported(|| object::load_from(REPLAY, settings, params))
}

fn judge_in_kernel(object: &Object, arrival: &ArrivingPacket) -> u32 {
    let mut data = vec![0; ETHERNET];
    data.extend(arrival.now.to_ne_bytes());
    for word in [arrival.flow, arrival.source, arrival.bytes, arrival.ecn_capable] {
        data.extend(word.to_ne_bytes());
    }
    let program = object.progs_mut().next().unwrap();
    program.test_run(ProgramInput { data_in: Some(&data), ..ProgramInput::default() }).unwrap().return_value
}

/// Arrivals at about 1.2 times the rate of the line for about 45 s, with occasional pauses. They come from three heavy
/// senders and many light senders, and for a quarter of the packets from one heavy sender alone.
fn overload_arrivals(seed: u64) -> impl Iterator<Item = ArrivingPacket> {
    let mut now = 5_000_000_000;
    (0..ARRIVALS).map(move |number| {
        let bits = |place: u64| aqm::random_bits(seed ^ place, number);
        now += if number % 4000 == 3999 { 1 << (20 + bits(1) % 12) } else { 1_000_000 + bits(1) % 1_000_000 };
        let sender = if number / 2000 % 4 == 0 { 0 } else { bits(2) % 4 };
        let flow = if sender == 3 { bits(3) as u32 % 3000 } else { sender as u32 * 100_000 };
        let capable = u32::from(sender == 1);
        ArrivingPacket {
            now,
            flow,
            bytes: if bits(4) % 8 == 0 { 60 } else { 1500 },
            ecn_capable: capable,
            ..ArrivingPacket::default()
        }
    })
}

/// Replays arrivals in the kernel and in the laboratory, and compares the verdicts. Returns the count of each verdict.
fn compare(settings: &AqmSettings, arrivals: impl Iterator<Item = ArrivingPacket>) -> Option<[u32; 5]> {
    let object = load(settings)?;
    let line = virtual_queue::VirtualQueueParams::new(settings.drain_rate());
    let (mut law, mut queue) = (Law::of(settings), virtual_queue::VirtualQueueState::default());
    let mut counts = [0; 5];
    for (index, mut arrival) in arrivals.enumerate() {
        let in_kernel = judge_in_kernel(&object, &arrival);
        arrival.number = index as u64;
        virtual_queue::advance(&line, &mut queue, &mut arrival);
        let in_lab = law.judge(&arrival);
        if matches!(in_lab, Verdict::Pass | Verdict::Mark) {
            virtual_queue::enqueue(&mut queue, arrival.bytes);
        }
        assert_eq!(in_kernel, verdict_code(in_lab), "{:?}, arrival {index}: {arrival:?}", settings.mode);
        counts[in_kernel as usize] += 1;
    }
    Some(counts)
}

fn settings(mode: AqmMode) -> AqmSettings {
    let one = AqmSettings::new("100Mbit/s".parse().unwrap(), mode);
    let [limit, min, max] = [200, 5, 60].map(QueueAmount::Packets);
    AqmSettings { limit, min, max, p: 0.2, wq: 0.02, n: 4.5, ..one }
}

#[test]
fn red_static_and_dynamic_agree_with_the_lab_on_every_verdict() {
    let heavy = vec![[10, 0, 0, 1].into(), [10, 0, 0, 3].into()];
    for mode in [AqmMode::Red, AqmMode::Static { heavy }, AqmMode::Dynamic { rec_int: 3, sta_int: 20, hist_len: 50 }] {
        for seed in [1, 2] {
            let Some(counts) = compare(&settings(mode.clone()), arrivals(seed)) else { return };
            assert!(counts.iter().all(|times| *times > 20), "{mode:?}: {counts:?}");
        }
    }
}

/// The tables are so small that connections reuse the slots of other connections.
#[test]
fn auto_agrees_with_the_lab_when_slots_are_reused() {
    for (limit, target, table, ecn) in [(2000, "5ms", 64, true), (300, "1ms", 64, false), (5000, "50ms", 4096, true)] {
        let mode = AqmMode::Auto { target: target.parse().unwrap() };
        let rate = "6Mbit/s".parse().unwrap();
        let settings = AqmSettings { rate, limit: QueueAmount::Packets(limit), table, ecn, ..settings(mode) };
        for seed in [1, 2] {
            let Some([passed, marked, full, early, _]) = compare(&settings, overload_arrivals(seed)) else { return };
            assert!(passed > 1000 && early > 20 && (marked > 5) == ecn, "{passed} {marked} {full} {early}");
            if compare(&settings, arrivals(seed)).is_none() {
                return;
            }
        }
    }
}

#[test]
fn byte_thresholds_and_extreme_settings_agree_with_the_lab() {
    let base = settings(AqmMode::Dynamic { rec_int: 1, sta_int: 1, hist_len: 1024 });
    for settings in [
        AqmSettings {
            limit: QueueAmount::Bytes(300_000),
            min: QueueAmount::Bytes(1),
            max: QueueAmount::Bytes(299_999),
            ..base.clone()
        },
        AqmSettings { wq: 1.0, p: 1.0, n: 10_000.0, ecn: false, ..base.clone() },
        AqmSettings { wq: 1e-7, min: QueueAmount::Packets(0), max: QueueAmount::Packets(1), ..base.clone() },
        AqmSettings { rate: "8bit/s".parse().unwrap(), ..base.clone() },
        AqmSettings { rate: "400Gbit/s".parse().unwrap(), ..base },
    ] {
        if compare(&settings, arrivals(3)).is_none() {
            return;
        }
    }
}
