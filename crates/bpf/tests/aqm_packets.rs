//! The tc program of `ekiden aqm`, on packets of all kinds and on a million connections.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use ekiden_bpf::aqm::reading::{Connection, Counters};
use ekiden_bpf::aqm::settings::{AqmMode, AqmSettings, DEFAULT_TARGET, QueueAmount};
use ekiden_bpf::aqm::{ProgramParams, maps, object};
use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};

mod aqm_program;

use aqm_program::{context_of, ipv4, load_if_supported};

static BENCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm_bench.bpf.o"));

/// Return codes of the program: `TC_ACT_UNSPEC`, which continues with the next filter, and `TC_ACT_SHOT`.
const PASS: u32 = u32::MAX;
const DROP: u32 = 2;

fn settings(mode: AqmMode) -> AqmSettings {
    AqmSettings::new("10Gbit/s".parse().unwrap(), mode)
}

fn load(settings: &AqmSettings, ethernet: bool) -> Option<Object> {
    load_if_supported(|| object::load(settings, ProgramParams { hash_key: 7, ethernet }))
}

/// Runs the program `repeat` times on a packet that this host forwards or sends itself. Returns the verdict, and stores
/// the resulting packet in `packet`.
fn send(object: &Object, packet: &mut [u8], forwarded: bool, repeat: u32) -> u32 {
    let mut context = context_of(packet.len(), forwarded);
    let mut sent = packet.to_vec();
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(packet),
        data_out: Some(&mut sent),
        repeat,
        ..ProgramInput::default()
    };
    let program = object.progs_mut().find(|program| program.name() == "ekiden_aqm").unwrap();
    let verdict = program.test_run(input).unwrap().return_value;
    packet.copy_from_slice(&sent);
    verdict
}

fn entries(object: &Object, name: &str) -> Vec<Vec<u8>> {
    let map = object.maps().find(|map| map.name() == name).unwrap();
    map.lookup_batch(4096, MapFlags::ANY, MapFlags::ANY).unwrap().map(|(_, value)| value).collect()
}

fn counters(object: &Object) -> Counters {
    maps::parse_counters(&entries(object, maps::QUEUE)[0]).unwrap()
}

fn connections(object: &Object) -> Vec<Connection> {
    let (slots, names) = (entries(object, maps::SLOTS), entries(object, maps::NAMES));
    slots.iter().zip(&names).flat_map(|(set, names)| maps::parse_connections(set, names).collect::<Vec<_>>()).collect()
}

fn ethernet(tags: &[u16], protocol: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for (depth, tag) in tags.iter().enumerate() {
        frame.extend(if depth == 0 && tags.len() == 2 { 0x88a8_u16 } else { 0x8100 }.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(protocol.to_be_bytes());
    frame
}

fn ipv6(protocol: u8, ecn: u8) -> Vec<u8> {
    let mut packet = vec![0x60, ecn << 4, 0, 0, 0, 60, protocol, 64];
    for last in [1, 2] {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend([0x1f, 0x90, 0x00, 0x50]);
    packet.resize(100, 0);
    packet
}

#[test]
fn connections_are_identified_in_every_kind_of_packet() {
    let named = |of: &[u8], ports: &str| match of[0] >> 4 {
        4 if ports.is_empty() => "10.1.0.1:0 10.2.0.2:0".to_owned(),
        4 => "10.1.0.1:8080 10.2.0.2:80".to_owned(),
        _ if ports.is_empty() => "[fd00::1]:0 [fd00::2]:0".to_owned(),
        _ => "[fd00::1]:8080 [fd00::2]:80".to_owned(),
    };
    for fast in [true, false] {
        for (tags, packet, ports) in [
            (&[][..], ipv4(6, 0, 0, 0), "ports"),
            (&[], ipv4(17, 0x4000, 0, 0), "ports"),
            (&[], ipv4(6, 0, 0, 12), "ports"),
            (&[7], ipv4(6, 0, 0, 0), "ports"),
            (&[7, 8], ipv4(6, 0, 0, 0), "ports"),
            (&[7], ipv6(6, 0), "ports"),
            (&[], ipv6(17, 0), "ports"),
            (&[], ipv4(17, 0x2000, 0, 0), ""),
            (&[], ipv4(17, 0x0010, 0, 0), ""),
            (&[], ipv4(1, 0, 0, 0), ""),
            (&[], ipv4(50, 0, 0, 0), ""),
            (&[], ipv6(58, 0), ""),
            (&[], ipv6(44, 0), ""),
        ] {
            let Some(object) = load(&settings(AqmMode::Red), fast) else { return };
            let protocol = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
            let mut frame = [ethernet(tags, protocol), packet.clone()].concat();
            assert_eq!(send(&object, &mut frame, true, 1), PASS);
            // On a fast line only some of the small packets add their connection to the table.
            send(&object, &mut frame, true, 10_000);
            let known = connections(&object);
            let [one] = &known[..] else { panic!("{tags:?} {packet:?}: {known:?}") };
            assert_eq!(format!("{} {}", one.source, one.destination), named(&packet, ports), "{tags:?}");
            assert_eq!(counters(&object).passed, 10_001);
        }
    }
}

#[test]
fn arp_and_own_packets_pass_and_are_counted() {
    let Some(object) = load(&settings(AqmMode::Auto { target: DEFAULT_TARGET }), true) else { return };
    let mut arp = [ethernet(&[], 0x0806), vec![0; 46]].concat();
    let mut own = [ethernet(&[], 0x0800), ipv4(6, 0, 0, 0)].concat();
    for (packet, forwarded) in [(&mut arp, true), (&mut own, false)] {
        assert_eq!(send(&object, packet, forwarded, 1), PASS);
    }
    let counted = counters(&object);
    assert_eq!((counted.other, counted.own, counted.passed), (1, 1, 0));
    assert!(connections(&object).is_empty());
}

#[test]
fn excess_packets_are_dropped_and_ecn_capable_packets_marked() {
    let limit = QueueAmount::Bytes(1_000_000);
    let (min, max) = (QueueAmount::Bytes(1), QueueAmount::Bytes(2));
    let slow =
        AqmSettings { rate: "8bit/s".parse().unwrap(), limit, min, max, wq: 1.0, p: 1.0, ..settings(AqmMode::Red) };
    let forced = AqmSettings { min: QueueAmount::Bytes(0), ..slow.clone() };
    let Some(object) = load(&forced, true) else { return };
    let mut packet = [ethernet(&[], 0x0800), ipv4(6, 0, 0, 0)].concat();
    assert_eq!(send(&object, &mut packet, true, 1), PASS, "the queue is still empty");
    assert_eq!(send(&object, &mut packet, true, 1), DROP);
    assert_eq!(counters(&object).forced, 1);
    // Between the thresholds, every packet is marked or dropped.
    let marks = AqmSettings { min: QueueAmount::Bytes(0), max: QueueAmount::Bytes(200), ..slow };
    for mut packet in [[ethernet(&[], 0x0800), ipv4(6, 0, 2, 0)].concat(), [ethernet(&[], 0x86dd), ipv6(6, 1)].concat()]
    {
        let object = load(&marks, true).unwrap();
        let before = packet.clone();
        let mut verdicts = Vec::new();
        while counters(&object).marked == 0 && verdicts.len() < 10 {
            verdicts.push(send(&object, &mut packet, true, 1));
        }
        assert!(verdicts.iter().all(|verdict| *verdict == PASS), "{verdicts:?}");
        let ecn = |packet: &[u8]| if packet[14] >> 4 == 4 { packet[15] & 3 } else { packet[15] >> 4 & 3 };
        assert_eq!((ecn(&packet), counters(&object).marked), (3, 1), "{before:?} {packet:?}");
    }
}

#[test]
fn million_connections_fill_the_table_and_miss_no_packet() {
    const CONNECTIONS: u64 = 1_000_000;
    const PACKETS: u32 = 3_000_000;
    for mode in [
        AqmMode::Red,
        AqmMode::Auto { target: DEFAULT_TARGET },
        AqmMode::Dynamic { rec_int: 1, sta_int: 1, hist_len: 1024 },
    ] {
        let settings = AqmSettings { table: 4096, ..settings(mode.clone()) };
        let set = |name: &str| (name == ".rodata.bench").then(|| CONNECTIONS.to_ne_bytes().to_vec());
        let params = ProgramParams { hash_key: 7, ethernet: true };
        let Some(object) = load_if_supported(|| object::load_with(BENCH, &settings, params, set)) else { return };
        let mut packet = [ethernet(&[], 0x0800), ipv4(6, 0, 0, 0), vec![0; 1400]].concat();
        send(&object, &mut packet, true, PACKETS);
        let counted = counters(&object);
        assert_eq!(counted.arrived(), u64::from(PACKETS), "{mode:?}: {counted:?}");
        assert_eq!((counted.missed, counted.own, counted.other), (0, 0, 0));
        let known = connections(&object);
        assert!(known.len() > 4000 && known.len() <= 4096, "{mode:?}: {} connections", known.len());
    }
}
