use super::*;
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::{Ecn, Packet};

fn header(port: u16, sequence: u32, length: u32) -> TcpHeader {
    TcpHeader {
        source: SocketAddr::from(([10, 0, 0, 1], port)),
        target: SocketAddr::from(([10, 0, 0, 2], 80)),
        sequence,
        acknowledgement: 9,
        flags: 0x18,
        length,
    }
}

fn record(number: u64, tcp: Option<TcpHeader>, packet_outcome: PacketOutcome) -> PacketRecord {
    let packet = Packet { number, at: 1000 * number, bytes: 60, flow: 0, source: 0, ecn: Ecn::NotCapable, tag: 0 };
    PacketRecord { packet, segment: (0, 1), tcp, outcome: packet_outcome }
}

/// A packet of the connection with this client port.
pub fn log_entry(port: u16, at: Nanos, offset: i64, length: u32) -> PacketLogEntry {
    PacketLogEntry {
        at,
        bytes: length + 40,
        tcp: Some(header(port, 0, length)),
        offset,
        is_retransmission: false,
        outcome: PacketOutcome::InFlight,
    }
}

/// The log of a direction with these packets.
pub fn direction_log(lines: Vec<PacketLogEntry>) -> DirectionLog {
    DirectionLog { link: "long".into(), from: "left".into(), to: "right".into(), entries: lines, truncated: false }
}

#[test]
fn retransmissions_are_detected_across_sequence_wraparound() {
    let start = u32::MAX - 1499;
    let sent = [(0, 1000), (1000, 1000), (2000, 1000), (1000, 1000), (3000, 0), (3000, 500), (2500, 1000), (3500, 0)];
    let records: Vec<PacketRecord> = (0..)
        .zip(sent)
        .map(|(number, (offset, length))| {
            record(number, Some(header(1, start.wrapping_add(offset), length)), PacketOutcome::InFlight)
        })
        .collect();
    let lines = log_entries(&records);
    let offsets: Vec<i64> = lines.iter().map(|line| line.offset).collect();
    assert_eq!(offsets, sent.map(|(offset, _)| i64::from(offset)));
    let retransmitted: Vec<bool> = lines.iter().map(|line| line.is_retransmission).collect();
    assert_eq!(retransmitted, [false, false, false, true, false, false, true, false]);
}

#[test]
fn connections_are_distinguished_by_port() {
    let records = [(1, 100), (2, 900), (1, 150), (2, 900)];
    let records = (0..)
        .zip(records)
        .map(|(number, (port, sequence))| record(number, Some(header(port, sequence, 50)), PacketOutcome::InFlight));
    let retransmitted: Vec<bool> =
        log_entries(&records.collect::<Vec<_>>()).iter().map(|line| line.is_retransmission).collect();
    assert_eq!(retransmitted, [false, false, false, true]);
}

#[test]
fn csv_has_a_row_per_packet_with_the_drop_cause() {
    let outcomes = [
        PacketOutcome::Delivered { ideal: 5_000, actual: 5_250, marked: false },
        PacketOutcome::Dropped(DropCause::WireLoss, 4_000),
        PacketOutcome::InFlight,
    ];
    let mut records: Vec<PacketRecord> =
        (1..).zip(outcomes).map(|(number, outcome)| record(number, Some(header(7, 300, 20)), outcome)).collect();
    records.push(record(4, None, PacketOutcome::InFlight));
    let text = csv(&log_entries(&records));
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(rows[0], "1.000,5.250,,60,10.0.0.1:7,10.0.0.2:80,AP,300,9,20,0,0");
    assert_eq!(rows[1], "2.000,,wire loss,60,10.0.0.1:7,10.0.0.2:80,AP,300,9,20,0,1");
    assert_eq!(rows[3], "4.000,,,60,,,,,,,,");
    let columns = |row: &str| row.split(',').count();
    assert!(rows.iter().all(|row| columns(row) == columns(CSV_HEADER)), "{text}");
}

#[test]
fn plots_show_the_data_direction_from_a_common_start() {
    let direction = |link: &str, from: &str, at, length| DirectionLog {
        link: link.into(),
        from: from.into(),
        entries: vec![log_entry(1, at, 0, length), log_entry(1, at + 500_000_000, 0, length)],
        ..direction_log(Vec::new())
    };
    let log = [
        direction("access", "client", 2_000_000_000, 1000),
        direction("access", "left", 1_000_000_000, 10),
        direction("long", "right", 900_000_000, 0),
        direction("long", "left", 2_000_001_000, 1000),
    ];
    let plots = sequence_plots(&log);
    let directions: Vec<(&str, &str)> = plots.iter().map(|plot| (plot.link.as_str(), plot.from.as_str())).collect();
    assert_eq!(directions, [("access", "client"), ("long", "left")]);
    assert_eq!((plots[0].line[0].0, plots[1].line[0].0), (0.0, 0.000_001));
}

#[test]
fn first_burst_ends_at_the_first_acknowledgement() {
    let delivered = |at| PacketOutcome::Delivered { ideal: at, actual: at, marked: false };
    let data = |port: u16, at: Nanos, sequence: u32| PacketLogEntry {
        tcp: Some(header(port, sequence, 1000)),
        ..log_entry(port, at, 0, 1000)
    };
    let answer = |left: Nanos, acknowledgement: u32| {
        let sent = header(1, 0, 0);
        let tcp = TcpHeader { source: sent.target, target: sent.source, acknowledgement, ..sent };
        PacketLogEntry { tcp: Some(tcp), outcome: delivered(left), ..log_entry(1, left, 0, 0) }
    };
    let second = 1_000_000_000;
    let sent = [(1, 0), (1, 1), (2, 1), (1, 2), (1, 5), (1, 6), (1, 9)];
    let sent = (0..).zip(sent).map(|(number, (port, at))| data(port, at * second, 1000 * number)).collect();
    // The acknowledgement at 2 s belongs to the previous visit. The packet sent at 1 s is acknowledged at 5 s.
    let answers = vec![answer(2 * second, 1000), answer(5 * second, 2000), answer(6 * second, 4000)];
    let log = [direction_log(answers), direction_log(sent)];
    assert_eq!(
        first_burst(&log, [0.5, f64::INFINITY]),
        Some(2000),
        "the packets of seconds 1 and 2, of one connection"
    );
    assert_eq!(first_burst(&log, [8.0, f64::INFINITY]), Some(1000), "the last packet is not acknowledged");
    assert_eq!(first_burst(&log, [10.0, 20.0]), None);
    assert_eq!(first_burst(&[], [0.0, 20.0]), None);
}
