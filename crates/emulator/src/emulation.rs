//! All links of a lab, driven by frames and by the time. The driver says when a frame arrived and when it is now.

use ekiden_sys::packet::ReceivedFrame;
use serde::{Deserialize, Serialize};

use crate::capture::{CaptureChunk, CaptureLog};
use crate::conditions::Conditions;
use crate::direction::{EmulatedDirection, FrameSender, PacketObservers, ScheduledChange};
use crate::ledger::DirectionReport;
use crate::links::{EmulationMode, Link, LinkEvent};
use crate::pipeline::Pipeline;
use crate::records::{PacketRecord, RecordBuffer, Recording};
use crate::rng::SeededRng;
use crate::store::FrameStore;
use crate::{Nanos, nanos};

/// Minimum time between sends of a direction in `fast` mode, in nanoseconds. Packets that become due in between share
/// superpackets, as behind an interface with interrupt moderation.
pub const FAST_QUANTUM: Nanos = 200_000;
/// Minimum time between sends of a direction in `coarse` mode, in nanoseconds.
pub const COARSE_QUANTUM: Nanos = 1_000_000;
/// Rate up to which `auto` means `exact`, in bits per second: a frame of 1500 bytes every 60 µs.
pub const MAX_EXACT_RATE: u64 = 200_000_000;
/// Maximum size of all packets stored in a lab, in bytes: 10 Gbit/s for 800 ms.
const MAX_STORED_BYTES: usize = 1 << 30;

/// Options of an emulation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EmulationOptions {
    /// Timing of packet output.
    pub mode: EmulationMode,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Changes of conditions, in order of time.
    pub events: Vec<LinkEvent>,
    /// Packets to record for [`Emulation::records`].
    pub recording: Recording,
    /// Maximum number of bytes of each packet to capture, with the link header. `None`: no capture, at no cost.
    pub capture: Option<u32>,
}

/// The links of a lab. Link `n` has the ports `2 * n` and `2 * n + 1`, in the order of its ends. A frame received at port
/// `i` passes direction `i` and leaves at port `i ^ 1`.
pub struct Emulation {
    directions: Vec<EmulatedDirection>,
    store: FrameStore,
}

impl Emulation {
    /// Creates the links, by name, without packets. Times count from 0.
    #[must_use]
    pub fn new(links: &[(String, Link)], options: &EmulationOptions) -> Self {
        let store = FrameStore::new(MAX_STORED_BYTES);
        let mut emulation = Self { directions: Vec::new(), store };
        for (name, link) in links {
            emulation.add_link(name, link, options);
        }
        emulation
    }

    /// Adds both directions of a link.
    fn add_link(&mut self, name: &str, link: &Link, options: &EmulationOptions) {
        let rng = SeededRng::new(options.seed).derive(name);
        let [a, b] = &link.ends;
        for (from, to, is_forward) in [(a, b, true), (b, a, false)] {
            let select =
                |forward: &Conditions, reverse: &Conditions| if is_forward { forward.clone() } else { reverse.clone() };
            let initial = select(&link.forward, &link.reverse);
            let events = options.events.iter().rev().filter(|event| event.link == name);
            let changes: Vec<ScheduledChange> = events
                .map(|event| ScheduledChange {
                    at: nanos(event.at),
                    conditions: select(&event.forward, &event.reverse),
                })
                .collect();
            let conditions: Vec<&Conditions> =
                std::iter::once(&initial).chain(changes.iter().map(|change| &change.conditions)).collect();
            let pipeline = Pipeline::new(&conditions, rng.derive(if is_forward { "forward" } else { "reverse" }));
            let report = DirectionReport {
                link: name.to_owned(),
                from: from.clone(),
                to: to.clone(),
                exact: is_exact(options.mode, &conditions),
                ..DirectionReport::default()
            };
            let quantum = if options.mode == EmulationMode::Coarse { COARSE_QUANTUM } else { FAST_QUANTUM };
            let records = RecordBuffer::new(options.recording.limit_for(name));
            let capture = options.capture.map(|snaplen| CaptureLog::new(self.directions.len(), snaplen));
            let observers = PacketObservers { records, capture };
            self.directions.push(EmulatedDirection::new(
                pipeline,
                changes,
                report,
                initial.count.overhead(),
                quantum,
                observers,
            ));
        }
    }

    /// Returns a buffer for the largest frame, for [`on_frame`](Self::on_frame).
    pub fn take_buffer(&mut self) -> Box<[u8]> {
        self.store.take_buffer()
    }

    /// Takes the frame in `buffer` that arrived at `port` at the time `at`, and leaves another buffer in its place. The
    /// frame starts with a `virtio_net_hdr` and a link header of `link_header` bytes (14 for Ethernet, 0 for TUN).
    pub fn on_frame(
        &mut self,
        port: usize,
        buffer: &mut Box<[u8]>,
        received: ReceivedFrame,
        at: Nanos,
        link_header: usize,
    ) {
        self.directions[port].on_frame(buffer, received, at, link_header, &mut self.store);
    }

    /// Returns the time of the next event, and whether it must be met to the microsecond.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Nanos, bool)> {
        let changes = self.directions.iter().filter_map(|d| d.next_change().map(|at| (at, false)));
        let directions = self.directions.iter().filter_map(|d| d.next_wakeup().map(|at| (at, d.is_exact())));
        directions.chain(changes).min()
    }

    /// Returns whether frames that arrived at `port` have something due at `now`: a departure, or a change of conditions.
    #[must_use]
    pub fn is_due(&self, port: usize, now: Nanos) -> bool {
        let direction = &self.directions[port];
        [direction.next_change(), direction.next_wakeup()].into_iter().flatten().any(|at| at <= now)
    }

    /// Applies the changes of conditions that are due, and sends the packets that are due to `ports`, one for each port.
    /// `now` is the time of the send.
    ///
    /// `received_until` returns, for a port, the time until which every frame that arrived there has been passed to
    /// [`on_frame`](Self::on_frame). Later changes and departures wait, because frames before them may come.
    pub fn send_due(&mut self, now: Nanos, received_until: impl Fn(usize) -> Nanos, ports: &mut [impl FrameSender]) {
        for (index, direction) in self.directions.iter_mut().enumerate() {
            direction.send_due(now, received_until(index), &mut ports[index ^ 1], &mut self.store);
        }
    }

    /// Counts packets that the kernel dropped before they reached `port`.
    pub fn record_hidden(&mut self, port: usize, packets: u64) {
        self.directions[port].report.hidden += packets;
    }

    /// Returns the counters of every direction.
    pub fn reports(&mut self) -> Vec<DirectionReport> {
        for direction in &mut self.directions {
            direction.report.waits.clone_from(&direction.pipeline.events.queue_delays);
        }
        self.directions.iter().map(|direction| direction.report.clone()).collect()
    }

    /// Removes and returns the next full chunk of the capture of any direction.
    pub fn take_full_capture_chunk(&mut self) -> Option<CaptureChunk> {
        self.capture_logs().find_map(CaptureLog::take_full_chunk)
    }

    /// Removes and returns the next chunk of the capture of any direction, full or not.
    pub fn take_capture_chunk(&mut self) -> Option<CaptureChunk> {
        self.capture_logs().find_map(CaptureLog::take_chunk)
    }

    /// Puts back the chunk that was taken last.
    pub fn put_back_capture_chunk(&mut self, chunk: CaptureChunk) {
        if let Some(log) = self.directions.get_mut(chunk.direction).and_then(EmulatedDirection::capture_log) {
            log.put_back(chunk);
        }
    }

    fn capture_logs(&mut self) -> impl Iterator<Item = &mut CaptureLog> {
        self.directions.iter_mut().filter_map(EmulatedDirection::capture_log)
    }

    /// Returns the records of packets that entered `link` at host `from`, in order. The list is empty without
    /// [`Recording`].
    #[must_use]
    pub fn records(&self, link: &str, from: &str) -> Vec<PacketRecord> {
        let is_wanted = |d: &&EmulatedDirection| d.report.link == link && d.report.from == from;
        self.directions.iter().find(is_wanted).map(EmulatedDirection::records).unwrap_or_default()
    }
}

fn is_exact(mode: EmulationMode, conditions: &[&Conditions]) -> bool {
    match mode {
        EmulationMode::Exact => true,
        EmulationMode::Fast | EmulationMode::Coarse => false,
        EmulationMode::Auto => {
            conditions.iter().all(|c| c.line_rate().is_some_and(|rate| rate.bits_per_second() <= MAX_EXACT_RATE))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use ekiden_proto::units::Span;
    use ekiden_sys::packet::{OutgoingFrame, VNET_HEADER};

    use super::*;
    use crate::MS;
    use crate::capture::{CaptureEvent, CaptureEventKind};
    use crate::fixtures::conditions;
    use crate::records::PacketOutcome;

    /// An interface that takes every frame.
    struct OpenInterface;

    impl FrameSender for OpenInterface {
        fn send(&mut self, frames: &[OutgoingFrame<'_>]) -> io::Result<usize> {
            Ok(frames.len())
        }
    }

    /// An interface whose queue is full.
    struct FullInterface;

    impl FrameSender for FullInterface {
        fn send(&mut self, _: &[OutgoingFrame<'_>]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOBUFS))
        }
    }

    /// A link from `a` to `b`, with the conditions `forward` and their changes, which records its packets.
    fn emulation(forward: &str, changes: &[(u64, &str)]) -> Emulation {
        let forward = conditions(forward);
        let link = Link { ends: ["a".into(), "b".into()], mtu: 1500, forward, reverse: Conditions::default() };
        let event = |(at, forward): &(u64, &str)| LinkEvent {
            at: Span(Duration::from_millis(*at)),
            link: "wan".into(),
            forward: conditions(forward),
            reverse: Conditions::default(),
        };
        let events = changes.iter().map(event).collect();
        let options = EmulationOptions { recording: Recording::All, events, ..EmulationOptions::default() };
        Emulation::new(&[("wan".into(), link)], &options)
    }

    /// Passes a frame of 1500 bytes behind its link header, which arrives at `at`.
    fn receive(emulation: &mut Emulation, at: Nanos) {
        let mut frame = emulation.take_buffer();
        emulation.on_frame(0, &mut frame, ReceivedFrame { length: VNET_HEADER + 14 + 1500, timestamp: None }, at, 14);
    }

    /// The ideal and the actual departure of each packet.
    fn departures(emulation: &Emulation) -> Vec<(Nanos, Nanos)> {
        let departure = |record: PacketRecord| match record.outcome {
            PacketOutcome::Delivered { ideal, actual, .. } => (ideal, actual),
            other => panic!("{other:?}"),
        };
        emulation.records("wan", "a").into_iter().map(departure).collect()
    }

    /// Passes a UDP superpacket of three packets of 1500 bytes, which arrives at the time 0.
    fn receive_superpacket(emulation: &mut Emulation) {
        const UDP_GSO: u8 = 5;
        let (ip, payload) = (VNET_HEADER + 14, 1472_u16);
        let mut frame = emulation.take_buffer();
        frame[1] = UDP_GSO;
        frame[4..6].copy_from_slice(&payload.to_ne_bytes());
        // The start of the UDP header, behind 14 bytes of Ethernet and 20 of IPv4.
        frame[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        frame[ip - 2..ip].copy_from_slice(&[0x08, 0x00]);
        frame[ip] = 0x45;
        frame[ip + 9] = 17;
        let length = ip + 28 + 3 * usize::from(payload);
        emulation.on_frame(0, &mut frame, ReceivedFrame { length, timestamp: None }, 0, 14);
    }

    /// All packets of a run had the ideal departure of the first, so that a trace of the link had bursts.
    #[test]
    fn packets_that_are_sent_as_one_have_ideal_departures_of_their_own() {
        let forward = conditions("rate = '12Mbit/s'");
        let link = Link { ends: ["a".into(), "b".into()], mtu: 1500, forward, reverse: Conditions::default() };
        let options = EmulationOptions { mode: EmulationMode::Fast, capture: Some(64), ..EmulationOptions::default() };
        let mut emulation = Emulation::new(&[("wan".into(), link)], &options);
        receive_superpacket(&mut emulation);
        emulation.send_due(5 * MS, |_| 5 * MS, &mut [OpenInterface, OpenInterface]);
        let chunk = emulation.take_capture_chunk().unwrap();
        let ideal = |(event, _): (CaptureEvent, &[u8])| match event.kind {
            CaptureEventKind::Delivered { ideal, .. } => Some((event.number, event.count, ideal)),
            _ => None,
        };
        assert_eq!(chunk.events().filter_map(ideal).collect::<Vec<_>>(), [(0, 1, MS), (1, 1, 2 * MS), (2, 1, 3 * MS)]);
        let report = &emulation.reports()[0];
        assert_eq!((report.frames_out, report.packets_out, report.lateness.max), (1, 3, 4 * MS));
        assert_eq!(report.lateness.counts.iter().filter(|count| **count == 1).count(), 3, "4, 3 and 2 ms");
    }

    #[test]
    fn departures_wait_until_all_earlier_frames_are_received() {
        let mut emulation = emulation("trace = [10, 15, 20]", &[]);
        receive(&mut emulation, 2 * MS);
        emulation.send_due(18 * MS, |_| 9 * MS, &mut [OpenInterface, OpenInterface]);
        receive(&mut emulation, 9 * MS);
        assert_eq!(emulation.next_deadline(), Some((10 * MS, true)));
        assert!(emulation.is_due(0, 10 * MS) && !emulation.is_due(0, 10 * MS - 1) && !emulation.is_due(1, 10 * MS));
        emulation.send_due(19 * MS, |_| 19 * MS, &mut [OpenInterface, OpenInterface]);
        assert_eq!(departures(&emulation), [(10 * MS, 19 * MS), (15 * MS, 19 * MS)]);
    }

    /// Regression test: in `fast` mode, the send at the time of the retry did nothing, because packets still gathered.
    /// The deadline stayed in the past, so the driver never waited, and virtual time stood still.
    #[test]
    fn full_interface_is_retried_although_packets_gather() {
        let mut emulation = emulation("loss = { model = 'bernoulli', p = 0 }", &[]);
        receive(&mut emulation, 0);
        for now in [MS, MS + 20_000, MS + 40_000] {
            emulation.send_due(now, |_| now, &mut [FullInterface, FullInterface]);
            assert_eq!(emulation.next_deadline(), Some((now + 20_000, false)));
        }
        emulation.send_due(MS + 60_000, |_| MS + 60_000, &mut [OpenInterface, OpenInterface]);
        assert_eq!(emulation.next_deadline(), None);
        assert_eq!(departures(&emulation), [(0, MS + 60_000)]);
    }

    #[test]
    fn change_applies_to_later_frames_although_the_emulator_is_late() {
        // A millisecond for a packet, then ten.
        let [fast, slow] = ["rate = '12Mbit/s'", "rate = '1.2Mbit/s'"];
        let mut emulation = emulation(fast, &[(10, slow)]);
        assert!(emulation.is_due(0, 10 * MS) && !emulation.is_due(0, 10 * MS - 1));
        emulation.send_due(50 * MS, |_| 7 * MS, &mut [OpenInterface, OpenInterface]);
        receive(&mut emulation, 8 * MS);
        receive(&mut emulation, 20 * MS);
        emulation.send_due(50 * MS, |_| 50 * MS, &mut [OpenInterface, OpenInterface]);
        assert_eq!(departures(&emulation), [(9 * MS, 50 * MS), (30 * MS, 50 * MS)]);
    }

    #[test]
    fn changes_at_one_time_apply_in_order() {
        let mut emulation = emulation("rate = '12Mbit/s'", &[(10, "rate = '1.2Mbit/s'"), (10, "rate = '6Mbit/s'")]);
        receive(&mut emulation, 20 * MS);
        emulation.send_due(50 * MS, |_| 50 * MS, &mut [OpenInterface, OpenInterface]);
        assert_eq!(departures(&emulation), [(22 * MS, 50 * MS)]);
    }

    #[test]
    fn count_setting_selects_the_overhead() {
        // The line transmits a byte in a microsecond.
        for (count, microseconds) in [("l3", 1500), ("l2", 1514), ("wire", 1538)] {
            let forward = conditions(&format!("rate = '8Mbit/s'\ncount = '{count}'"));
            let link = Link { ends: ["a".into(), "b".into()], mtu: 1500, forward, reverse: Conditions::default() };
            let mut emulation = Emulation::new(&[("wire".into(), link)], &EmulationOptions::default());
            receive(&mut emulation, 0);
            assert_eq!(emulation.next_deadline().map(|(at, _)| at), Some(microseconds * 1000), "{count}");
        }
    }
}
