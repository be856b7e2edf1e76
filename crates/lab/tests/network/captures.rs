//! Captures of links: every packet that the emulator counts is in the files, with its outcome.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::ledger::{DirectionReport, DropCause};
use ekiden_emulator::links::{EmulationMode, Link};
use ekiden_lab::capture::{CaptureOptions, CaptureSummary, DEFAULT_SNAPLEN, MAX_SNAPLEN};
use ekiden_lab::emulator::Emulator;
use ekiden_lab::temp_dir::TempDir;
use ekiden_lab::topology::network::Network;
use ekiden_lab::topology::{Backend, Lab, sandbox};
use ekiden_testing::eventually;

use crate::labs::{cable, lab};
use crate::links::{conditions, delayed_lab, send};
use crate::pcapng::{self, Capture};
use crate::{Skipped, Test};

pub const TESTS: &[Test] = &[
    ("a_capture_has_every_packet_with_its_outcome", a_capture_has_every_packet_with_its_outcome),
    ("capture_splits_superpackets_into_packets", capture_splits_superpackets_into_packets),
    ("a_capture_of_a_tun_has_no_link_header", a_capture_of_a_tun_has_no_link_header),
    ("deliveries_follow_the_trace", deliveries_follow_the_trace),
];

/// Starts a lab with a capture of its links.
fn start(lab: &Lab, snaplen: u32) -> anyhow::Result<(TempDir, Network, Emulator)> {
    let folder = TempDir::create(sandbox::run_directory()?, "capture")?;
    let network = Network::build(lab)?;
    let options = EmulationOptions { mode: lab.mode, seed: lab.seed, ..EmulationOptions::default() };
    let capture = CaptureOptions { directory: folder.path().to_owned(), snaplen };
    let emulator = Emulator::start_with_capture(&network.emulated_links(), &options, Some(&capture))?;
    Ok((folder, network, emulator))
}

/// Sends 8 MiB over the link `wan` with a capture. Returns the counters of the direction of the data, the counters of
/// the capture, and its directory.
fn capture(lab: &Lab, snaplen: u32) -> anyhow::Result<(DirectionReport, CaptureSummary, TempDir)> {
    let (folder, network, emulator) = start(lab, snaplen)?;
    send(network.host("a").unwrap(), network.host("b").unwrap());
    let (reports, summary) = emulator.stop()?;
    let summary = summary.unwrap().finish()?;
    assert_eq!(summary.packets, reports.iter().map(|report| report.packets_in).sum::<u64>());
    Ok((reports.into_iter().find(|report| report.from == "a").unwrap(), summary, folder))
}

fn files(folder: &TempDir) -> [Capture; 2] {
    ["arrived", "delivered"].map(|what| pcapng::read(&folder.path().join(format!("wan-a-b.{what}.pcapng"))))
}

/// The number of packets for each outcome, which is the comment of the packet without its time.
fn outcomes(arrived: &Capture) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for comment in arrived.packets.iter().flat_map(|packet| &packet.comments) {
        let outcome = comment.split(" after ").next().unwrap().trim_end_matches(',');
        *counts.entry(outcome.to_owned()).or_default() += 1;
    }
    counts
}

/// Compares both files with the counters of the emulator. `header` is the length of the link header.
fn compare(report: &DirectionReport, [arrived, delivered]: &[Capture; 2], header: u32) {
    assert_eq!(arrived.statistics, [report.packets_in, 0]);
    assert_eq!(arrived.packets.len() as u64, report.packets_in);
    assert_eq!(delivered.packets.len() as u64, report.packets_out);
    let bytes = |capture: &Capture| capture.packets.iter().map(|p| u64::from(p.length - header)).sum::<u64>();
    assert_eq!((bytes(arrived), bytes(delivered)), (report.bytes_in, report.bytes_out));
    let mut counts = outcomes(arrived);
    assert_eq!(counts.remove("delivered").unwrap_or(0), report.packets_out);
    let in_flight = counts.remove("in flight at the end of the capture").unwrap_or(0);
    let dropped: BTreeMap<String, u64> =
        report.dropped.iter().map(|(cause, count)| (format!("dropped: {}", cause.name()), *count)).collect();
    assert_eq!(counts, dropped);
    let lost = report.dropped.values().sum::<u64>();
    assert_eq!(report.packets_in + report.copied, report.packets_out + lost + in_flight);
    let marked = arrived.packets.iter().flat_map(|packet| &packet.comments).filter(|text| text.ends_with("marked CE"));
    assert_eq!(marked.count() as u64, report.marked);
    for capture in [arrived, delivered] {
        assert!(capture.packets.is_sorted_by_key(|packet| packet.at), "packets are in order of time");
    }
    assert!(arrived.packets.iter().map(|packet| packet.id).eq(0..report.packets_in));
}

/// Whether an IPv4 packet behind an Ethernet header is marked (CE).
fn is_marked(bytes: &[u8]) -> bool {
    bytes[15] & 3 == 3
}

fn a_capture_has_every_packet_with_its_outcome() -> Result<(), Skipped> {
    let mut lab = delayed_lab(
        "rate = '100Mbit/s'\nqueue = { kind = 'red', limit = '60pkt', min = '5pkt', max = '30pkt', p = 0.02, ecn = true }\n\
         loss = { model = 'bernoulli', p = 0.005 }\nduplicate = { p = 0.005 }",
    );
    for host in lab.hosts.values_mut() {
        host.sysctl.insert("net.ipv4.tcp_ecn".to_owned(), "1".to_owned());
    }
    let (report, _, folder) = capture(&lab, DEFAULT_SNAPLEN).unwrap();
    for cause in [DropCause::Full, DropCause::WireLoss] {
        assert!(report.dropped.contains_key(&cause), "{cause:?}: {report:?}");
    }
    assert!(report.copied > 0 && report.marked > 0, "{report:?}");
    let captures = files(&folder);
    compare(&report, &captures, 14);
    let [arrived, delivered] = &captures;
    assert_eq!((arrived.link_type, arrived.snaplen), (1, DEFAULT_SNAPLEN));
    assert!(arrived.packets.iter().all(|packet| packet.bytes.len() == (packet.length as usize).min(128)));
    assert!(!arrived.packets.iter().any(|packet| is_marked(&packet.bytes)), "packets are not marked when they arrive");
    let marked = delivered.packets.iter().filter(|packet| is_marked(&packet.bytes));
    assert_eq!(marked.count() as u64, report.marked);
    check_with_tcpdump(&folder.path().join("wan-a-b.arrived.pcapng"), arrived.packets.len())
}

/// Checks that tcpdump(8) reads the file and prints a line for each packet.
fn check_with_tcpdump(path: &Path, packets: usize) -> Result<(), Skipped> {
    match Command::new("tcpdump").arg("-nr").arg(path).output() {
        Err(error) => Err(Skipped(format!("tcpdump: {error}"))),
        Ok(output) => {
            let (text, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            // tcpdump switches to another user, which a user namespace does not have.
            if let Some(refusal) = stderr.lines().find(|line| line.contains("Couldn't change to")) {
                return Err(Skipped(format!("all but the last check passed; {refusal}")));
            }
            assert_eq!(text.lines().count(), packets, "{stderr}");
            assert!(text.lines().all(|line| line.contains(" IP 10.100.0.1.")), "{text:.500}");
            Ok(())
        }
    }
}

/// Superpackets pass the pipeline whole, because no condition of the link decides on single packets. The capture must
/// still contain single packets.
fn capture_splits_superpackets_into_packets() -> Result<(), Skipped> {
    let (report, _, folder) = capture(&Lab { mode: EmulationMode::Fast, ..delayed_lab("") }, MAX_SNAPLEN).unwrap();
    assert!(report.frames_in * 4 < report.packets_in, "{report:?}");
    let captures = files(&folder);
    compare(&report, &captures, 14);
    let mut next: Option<u32> = None;
    for packet in &captures[1].packets {
        let ip = &packet.bytes[14..];
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len(), "the whole packet");
        assert!(ip.len() <= 1500, "no superpacket");
        let sequence = u32::from_be_bytes(ip[24..28].try_into().unwrap());
        let payload = u32::try_from(ip.len() - 20 - usize::from(ip[32] >> 4) * 4).unwrap();
        let is_syn_or_fin = ip[33] & 3 > 0;
        let end = sequence.wrapping_add(payload + u32::from(is_syn_or_fin));
        // A packet continues the data, or is a retransmission. A gap is valid only if the kernel dropped superpackets
        // that the emulator did not read in time (`hidden`), as on a busy machine.
        let expected = next.unwrap_or(sequence);
        let has_gap = sequence.wrapping_sub(expected).cast_signed() > 0;
        assert!(!has_gap || report.hidden > 0, "a gap from {expected} to {sequence}: {report:?}");
        if end.wrapping_sub(expected).cast_signed() >= 0 {
            next = Some(end);
        }
    }
    Ok(())
}

fn a_capture_of_a_tun_has_no_link_header() -> Result<(), Skipped> {
    let lab = Lab { backend: Backend::Tun, ..delayed_lab("loss = { model = 'bernoulli', p = 0.002 }") };
    match capture(&lab, DEFAULT_SNAPLEN) {
        Err(error) if format!("{error:#}").contains("/dev/net/tun must exist") => Err(Skipped(format!("{error:#}"))),
        captured => {
            let (report, _, folder) = captured.unwrap();
            let captures = files(&folder);
            compare(&report, &captures, 0);
            assert_eq!(captures[0].link_type, 101);
            Ok(())
        }
    }
}

/// Times of delivery in ms of a link with an uneven trace, which repeats after 40 ms: 12 Mbit/s on average.
const TRACE: [u64; 40] = [
    0, 0, 0, 1, 3, 3, 4, 4, 4, 4, 5, 9, 9, 9, 9, 9, 9, 9, 9, 10, 11, 12, 13, 14, 21, 21, 21, 22, 23, 24, 30, 30, 30,
    31, 31, 31, 31, 38, 39, 40,
];
/// Number of full-size packets. They occupy the line for 0.9 s, and fit into its queue.
const PACKETS: usize = 900;

/// While packets wait in the queue, the line delivers at every opportunity of its trace.
fn deliveries_follow_the_trace() -> Result<(), Skipped> {
    let list = TRACE.map(|time| time.to_string()).join(", ");
    let forward = conditions(&format!("trace = [{list}]"));
    let lab = lab(&[("wan", Link { forward, ..cable("a", "b") })]);
    let (folder, network, emulator) = start(&lab, DEFAULT_SNAPLEN).unwrap();
    let [a, b] = ["a", "b"].map(|name| network.host(name).unwrap());
    let sender = a.enter(|| UdpSocket::bind((a.address(), 0))).unwrap().unwrap();
    let receiver = b.enter(|| UdpSocket::bind((b.address(), 0))).unwrap().unwrap();
    let there = receiver.local_addr().unwrap();
    (0..PACKETS).for_each(|_| assert_eq!(sender.send_to(&[0; 1472], there).unwrap(), 1472));
    eventually("the delivery of all packets", || {
        (emulator.reports().unwrap()[0].packets_out >= PACKETS as u64).then_some(())
    });
    emulator.stop().unwrap().1.unwrap().finish().unwrap();

    let text = std::fs::read_to_string(folder.path().join("wan-a-b.trace")).unwrap();
    let delivered: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(delivered.len(), PACKETS);
    let arrived = pcapng::read(&folder.path().join("wan-a-b.arrived.pcapng")).packets;
    // Times of the trace file are in ms since the start of the emulator, those of the capture are absolute. The first
    // packet gives the difference to a millisecond.
    let all_arrived = delivered[0] + (arrived[PACKETS - 1].at - arrived[0].at) / 1_000_000 + 2;
    let end = *delivered.last().unwrap();
    let opportunities = (0..).flat_map(|cycle| TRACE.map(|time| cycle * 40 + time)).take_while(|time| *time < end);
    let inside = |times: &mut dyn Iterator<Item = u64>| -> Vec<u64> {
        times.filter(|time| (all_arrived..end).contains(time)).collect()
    };
    let expected = inside(&mut { opportunities });
    assert!(expected.len() > PACKETS / 2, "the host sent for too long: {}", expected.len());
    assert_eq!(inside(&mut delivered.into_iter()), expected);
    Ok(())
}
