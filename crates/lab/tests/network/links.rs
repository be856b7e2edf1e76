//! Emulated links with real connections, and assumptions about the kernel of the hosts at both ends.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ekiden_emulator::conditions::Conditions;
use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::ledger::{DirectionReport, DropCause};
use ekiden_emulator::links::{EmulationMode, Link, LinkEvent};
use ekiden_emulator::records::{PacketOutcome, Recording};
use ekiden_lab::emulator::Emulator;
use ekiden_lab::topology::RunningLab;
use ekiden_lab::topology::network::{HostHandle, Network};
use ekiden_lab::topology::{Backend, Family, Lab};

use crate::labs::{cable, lab};
use crate::{Skipped, Test};

pub const TESTS: &[Test] = &[
    (
        "superpackets_pass_whole_and_packets_are_lost_individually",
        superpackets_pass_whole_and_packets_are_lost_individually,
    ),
    ("exact_mode_delivers_packets_individually", exact_mode_delivers_packets_individually),
    ("packets_delivered_together_have_individual_times", packets_delivered_together_have_individual_times),
    ("tun_carries_superpackets_with_losses", tun_carries_superpackets_with_losses),
    ("kernel_completes_checksums_of_marked_packets", kernel_completes_checksums_of_marked_packets),
    ("link_goes_down_at_its_event", link_goes_down_at_its_event),
    ("equal_seed_and_arrivals_lose_the_same_packets", equal_seed_and_arrivals_lose_the_same_packets),
];

const BYTES: usize = 8 << 20;

pub fn conditions(text: &str) -> Conditions {
    toml::from_str(text).unwrap()
}

pub fn delayed_lab(text: &str) -> Lab {
    let back = conditions("delay = '1ms'");
    let link = Link { forward: conditions(&format!("delay = '1ms'\n{text}")), reverse: back, ..cable("a", "b") };
    lab(&[("wan", link)])
}

/// Sends 8 MiB from `a` to `b` by TCP, and compares the received bytes with the sent ones.
pub fn send(a: &HostHandle, b: &HostHandle) {
    let listener = b.enter(|| TcpListener::bind((b.address(), 0))).unwrap().unwrap();
    let there = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let arrived = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut arrived = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
            arrived
        });
        let mut connection = a.enter(|| TcpStream::connect(there)).unwrap().unwrap();
        connection.write_all(&sent).unwrap();
        drop(connection);
        receiver.join().unwrap()
    });
    assert!(arrived == sent, "{} bytes arrived, not the {BYTES} that were sent", arrived.len());
}

/// Sends 8 MiB from `a` to `b`, and returns the report of this direction of the link.
fn carry_report(lab: &Lab) -> anyhow::Result<DirectionReport> {
    let running = RunningLab::start(lab)?;
    let network = running.network();
    send(network.host("a").unwrap(), network.host("b").unwrap());
    assert_eq!(network.hidden_drops()?, [], "a wrong checksum, or an unexpected drop");
    let report = running.reports()?.into_iter().find(|report| report.from == "a");
    let report = report.unwrap();
    assert_eq!(report.hidden, 0);
    Ok(report)
}

/// Assumption: `PACKET_VNET_HDR` delivers superpackets, and accepts smaller superpackets that the emulator cuts from
/// them.
fn superpackets_pass_whole_and_packets_are_lost_individually() -> Result<(), Skipped> {
    let lab = delayed_lab("loss = { model = 'pattern', every = 500, lost = [250] }");
    for (family, headers) in [(Family::Ipv4, 20 + 32), (Family::Ipv6, 40 + 32)] {
        let report = carry_report(&Lab { mode: EmulationMode::Fast, family, ..lab.clone() }).unwrap();
        let DirectionReport { frames_in, packets_in, frames_out, packets_out, .. } = report;
        assert!(frames_in * 4 < packets_in, "{family:?}: {packets_in} packets in {frames_in} frames");
        assert!(frames_out * 2 < packets_out, "{family:?}: {packets_out} packets in {frames_out} frames");
        let lost = report.dropped.get(&DropCause::WireLoss).copied().unwrap_or(0);
        assert!(lost.abs_diff(packets_in / 500) <= 1, "{family:?}: {lost} of {packets_in} packets");
        let packets = (BYTES as u64).div_ceil(1500 - headers);
        assert!(packets_in >= packets, "{family:?}: {packets_in} packets, not {packets}");
    }
    Ok(())
}

fn exact_mode_delivers_packets_individually() -> Result<(), Skipped> {
    let report = carry_report(&Lab { mode: EmulationMode::Exact, ..delayed_lab("") }).unwrap();
    assert_eq!(report.frames_out, report.packets_out);
    assert!(report.frames_in < report.packets_in, "the host still sends superpackets");
    Ok(())
}

/// Fast mode delivers several packets at once. Their records must have the time at which each packet leaves the line.
fn packets_delivered_together_have_individual_times() -> Result<(), Skipped> {
    let lab = delayed_lab("rate = '200Mbit/s'");
    let network = Network::build(&lab).unwrap();
    let options = EmulationOptions {
        mode: EmulationMode::Fast,
        seed: lab.seed,
        recording: Recording::All,
        ..EmulationOptions::default()
    };
    let emulator = Emulator::start(&network.emulated_links(), &options).unwrap();
    send(network.host("a").unwrap(), network.host("b").unwrap());
    let report = emulator.reports().unwrap().into_iter().find(|report| report.from == "a").unwrap();
    assert!(report.frames_out < report.packets_out, "some packets were delivered together");
    let records = emulator.records("wan", "a").unwrap();
    let ideal =
        |outcome: PacketOutcome| if let PacketOutcome::Delivered { ideal, .. } = outcome { Some(ideal) } else { None };
    let ideals: Vec<_> = records.iter().filter_map(|record| ideal(record.outcome)).collect();
    assert!(ideals.len() > BYTES / 1500 && ideals.windows(2).all(|pair| pair[0] < pair[1]));
    Ok(())
}

fn tun_carries_superpackets_with_losses() -> Result<(), Skipped> {
    let lab = Lab {
        backend: Backend::Tun,
        mode: EmulationMode::Fast,
        ..delayed_lab("loss = { model = 'pattern', every = 500, lost = [250] }")
    };
    match carry_report(&lab) {
        Err(error) if format!("{error:#}").contains("/dev/net/tun must exist") => Err(Skipped(format!("{error:#}"))),
        report => {
            let report = report.unwrap();
            assert!(report.frames_in * 4 < report.packets_in, "superpackets by TUN too");
            assert!(report.dropped.contains_key(&DropCause::WireLoss));
            Ok(())
        }
    }
}

fn kernel_completes_checksums_of_marked_packets() -> Result<(), Skipped> {
    let mut lab =
        delayed_lab("rate = '100Mbit/s'\nqueue = { kind = 'codel', limit = '1000pkt', target = '1ms', ecn = true }");
    for host in lab.hosts.values_mut() {
        host.sysctl.insert("net.ipv4.tcp_ecn".to_owned(), "1".to_owned());
    }
    let report = carry_report(&lab).unwrap();
    assert!(report.marked > 0, "{report:?}");
    // Only packets that are not ECN-capable are dropped, such as retransmitted packets (RFC 3168, 6.1.5).
    assert!(report.dropped.get(&DropCause::Early).is_none_or(|early| early * 5 < report.marked), "{report:?}");
    Ok(())
}

fn link_goes_down_at_its_event() -> Result<(), Skipped> {
    // On a busy machine, the event can come before the first datagram.
    assert!((0..5).any(|_| was_up_before_its_event()), "the link is up at first");
    Ok(())
}

/// Sends datagrams until the link goes down at an event, and returns whether one has arrived.
fn was_up_before_its_event() -> bool {
    let mut lab = delayed_lab("");
    let at = "300ms".parse().unwrap();
    let (up, down) = (conditions("delay = '1ms'"), conditions("delay = '1ms'\ndown = true"));
    lab.events = vec![LinkEvent { at, link: "wan".to_owned(), forward: down, reverse: up }];
    let started = Instant::now();
    let running = RunningLab::start(&lab).unwrap();
    let [a, b] = ["a", "b"].map(|name| running.network().host(name).unwrap());
    let receiver = b.enter(|| UdpSocket::bind((b.address(), 0))).unwrap().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let sender = a.enter(|| UdpSocket::bind((a.address(), 0))).unwrap().unwrap();
    let is_down = || {
        let reports = running.reports().unwrap();
        reports.iter().any(|report| report.dropped.get(&DropCause::Down).is_some_and(|count| *count > 0))
    };
    let deadline = started + Duration::from_secs(10);
    let mut has_arrived = false;
    while !is_down() {
        assert!(Instant::now() < deadline, "the link never went down");
        sender.send_to(b"hello", receiver.local_addr().unwrap()).unwrap();
        std::thread::park_timeout(Duration::from_millis(5));
        has_arrived |= receiver.recv(&mut [0; 16]).is_ok();
    }
    assert!(started.elapsed() >= Duration::from_millis(300));
    has_arrived
}

fn equal_seed_and_arrivals_lose_the_same_packets() -> Result<(), Skipped> {
    let lost = || {
        let lab = delayed_lab("loss = { model = 'bernoulli', p = 0.1 }");
        let network = Network::build(&lab).unwrap();
        let options = EmulationOptions { seed: lab.seed, recording: Recording::All, ..EmulationOptions::default() };
        let emulator = Emulator::start(&network.emulated_links(), &options).unwrap();
        let [a, b] = ["a", "b"].map(|name| network.host(name).unwrap());
        let sender = a.enter(|| UdpSocket::bind((a.address(), 0))).unwrap().unwrap();
        let arrived = || emulator.records("wan", "a").unwrap();
        for _ in 0..1000 {
            sender.send_to(b"hello", (b.address(), 9)).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let records = loop {
            let records = arrived();
            let is_done =
                records.len() == 1000 && records.iter().all(|record| record.outcome != PacketOutcome::InFlight);
            if is_done || Instant::now() > deadline {
                break records;
            }
        };
        assert_eq!(records.len(), 1000);
        let lost = records.iter().filter(|record| matches!(record.outcome, PacketOutcome::Dropped(..)));
        lost.map(|record| record.packet.number).collect::<Vec<_>>()
    };
    let once = lost();
    assert!((50..200).contains(&once.len()), "{} of 1000", once.len());
    assert_eq!(once, lost());
    Ok(())
}
