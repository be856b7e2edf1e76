//! Captures of links: two pcapng files for each direction, the packets as they arrive and the packets as they are
//! delivered; and the deliveries as a trace.
//!
//! There are two files because analysers such as Wireshark would take the second sight of a packet for a
//! retransmission. Client and server see the arrivals of one direction and the deliveries of the other.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use ekiden_emulator::Nanos;
use ekiden_emulator::capture::{CaptureChunk, CaptureEvent, CaptureEventKind};
use ekiden_emulator::frame::{Frame, SegmentRun};
use ekiden_emulator::trace::DeliveryRecorder;
use ekiden_sys::packet::VNET_HEADER;
use serde::{Deserialize, Serialize};

use crate::pcapng::{CapturedPacket, Interface, LinkType, PacketDirection, PcapngWriter};

/// Captured bytes of a packet by default: the headers of Ethernet, IPv6 and TCP, with options.
pub const DEFAULT_SNAPLEN: u32 = 128;
/// Snap length with which every frame is captured in full, in bytes.
pub const MAX_SNAPLEN: u32 = 262_144;

/// Smallest lateness that a comment reports, in nanoseconds. Timers of the virtual kernel have a resolution below it.
const MIN_REPORTED_LATENESS: Nanos = 1000;

/// Options of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureOptions {
    /// Directory of the files.
    pub directory: PathBuf,
    /// Maximum number of captured bytes of a packet, with its link header.
    pub snaplen: u32,
}

impl CaptureOptions {
    /// Creates the directory, and returns the options with its absolute path, which a virtual machine mounts.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn in_machine(&self) -> anyhow::Result<Self> {
        let context = || self.directory.display().to_string();
        fs::create_dir_all(&self.directory).with_context(context)?;
        let directory = fs::canonicalize(&self.directory).with_context(context)?;
        Ok(Self { directory, snaplen: self.snaplen })
    }
}

/// A direction of a link, in the order of the emulation.
#[derive(Debug)]
pub struct CapturedDirection<'a> {
    /// Name of the link.
    pub link: &'a str,
    /// Name of the sending host.
    pub from: &'a str,
    /// Name of the receiving host.
    pub to: &'a str,
}

/// Numbers of packets of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureSummary {
    /// Packets in the files of arrivals.
    pub packets: u64,
    /// Packets that arrived but are not in the files, because they were not written in time.
    pub missed: u64,
}

impl CaptureSummary {
    /// Returns a warning if packets are missing.
    #[must_use]
    pub fn warning(self) -> Option<String> {
        (self.missed > 0).then(|| format!("{} packets are not in the capture: the writer was too slow", self.missed))
    }
}

/// Writes the files of a capture.
#[derive(Debug)]
pub struct CaptureWriter(Vec<DirectionWriter>);

impl CaptureWriter {
    /// Creates the directory and the files, in place of earlier ones. Times of events count from `epoch`.
    ///
    /// The directory or a file cannot be created.
    pub fn create(
        options: &CaptureOptions,
        directions: &[CapturedDirection<'_>],
        link_type: LinkType,
        epoch: SystemTime,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(&options.directory).with_context(|| options.directory.display().to_string())?;
        let epoch = epoch.duration_since(UNIX_EPOCH).map_or(0, |time| Nanos::try_from(time.as_nanos()).unwrap_or(0));
        let create = |direction| DirectionWriter::create(options, direction, link_type, epoch);
        directions.iter().map(create).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Writes the packets whose outcomes are known after the events of `chunk`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_chunk(&mut self, chunk: &CaptureChunk) -> anyhow::Result<()> {
        let direction = self.0.get_mut(chunk.direction).context("a capture of an unknown direction")?;
        for (event, bytes) in chunk.events() {
            direction.on_event(event, bytes)?;
        }
        Ok(())
    }

    /// Writes the packets in flight, and closes the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(self) -> anyhow::Result<CaptureSummary> {
        self.0.into_iter().try_fold(CaptureSummary::default(), |sum, direction| {
            let of = direction.finish()?;
            Ok(CaptureSummary { packets: sum.packets + of.packets, missed: sum.missed + of.missed })
        })
    }
}

/// A packet with an outcome that is not known yet, or that waits for the outcomes of an earlier packet.
#[derive(Debug)]
struct PendingPacket {
    number: u64,
    at: Nanos,
    length: u32,
    bytes: Box<[u8]>,
    missed_before: u64,
    /// Number of outcomes that are not known yet: one, and one more for each duplicate.
    open_outcomes: u32,
    comments: Vec<String>,
}

/// Both files of a direction.
#[derive(Debug)]
struct DirectionWriter {
    path: PathBuf,
    link_type: LinkType,
    epoch: Nanos,
    arrivals: PcapngWriter<BufWriter<File>>,
    deliveries: PcapngWriter<BufWriter<File>>,
    trace: DeliveryRecorder,
    /// Packets in order of arrival.
    pending: VecDeque<PendingPacket>,
    summary: CaptureSummary,
    delivered: u64,
    /// Missed packets since the last arrival.
    missed_before: u64,
    /// Time of the last event.
    last_at: Nanos,
}

impl DirectionWriter {
    fn create(
        options: &CaptureOptions,
        direction: &CapturedDirection<'_>,
        link_type: LinkType,
        epoch: Nanos,
    ) -> anyhow::Result<Self> {
        let CapturedDirection { link, from, to } = direction;
        let open = |what: &str| {
            let path = options.directory.join(format!("{link}-{from}-{to}.{what}.pcapng"));
            let file = File::create(&path).with_context(|| path.display().to_string())?;
            let description = format!("{from} to {to}, packets as {what}");
            let interface = Interface { name: link, description: &description, link_type, snaplen: options.snaplen };
            PcapngWriter::new(BufWriter::new(file), &interface).with_context(|| path.display().to_string())
        };
        Ok(Self {
            path: options.directory.join(format!("{link}-{from}-{to}")),
            link_type,
            epoch,
            arrivals: open("arrived")?,
            deliveries: open("delivered")?,
            trace: DeliveryRecorder::default(),
            pending: VecDeque::new(),
            summary: CaptureSummary::default(),
            delivered: 0,
            missed_before: 0,
            last_at: 0,
        })
    }

    fn on_event(&mut self, event: CaptureEvent, bytes: &[u8]) -> anyhow::Result<()> {
        match event.kind {
            CaptureEventKind::Arrived { at, length, .. } => {
                self.last_at = self.last_at.max(at);
                self.pending.push_back(PendingPacket {
                    number: event.number,
                    at,
                    length,
                    bytes: bytes.into(),
                    missed_before: std::mem::take(&mut self.missed_before),
                    open_outcomes: 1,
                    comments: Vec::new(),
                });
            }
            CaptureEventKind::Missed => {
                self.missed_before += u64::from(event.count);
                self.summary.missed += u64::from(event.count);
            }
            _ => {
                for number in event.number..event.number + u64::from(event.count) {
                    self.on_outcome(number, event.kind).with_context(|| self.path.display().to_string())?;
                }
            }
        }
        self.write_arrivals().with_context(|| self.path.display().to_string())
    }

    /// Records an outcome of a packet, unless the packet is not in the capture.
    fn on_outcome(&mut self, number: u64, kind: CaptureEventKind) -> std::io::Result<()> {
        let Ok(index) = self.pending.binary_search_by_key(&number, |packet| packet.number) else { return Ok(()) };
        let packet = &mut self.pending[index];
        let comment = match kind {
            CaptureEventKind::Duplicated => {
                packet.open_outcomes += 1;
                return Ok(());
            }
            CaptureEventKind::Delivered { ideal, actual, marked } => {
                self.delivered += 1;
                self.last_at = self.last_at.max(actual);
                // The ideal time, so that the lateness of this machine is not in the trace.
                let link_header = u32::try_from(self.link_type.header_len()).unwrap_or(0);
                self.trace.record(ideal, packet.length.saturating_sub(link_header));
                let bytes = if marked { marked_bytes(&packet.bytes, self.link_type) } else { None };
                self.deliveries.write_packet(&CapturedPacket {
                    id: number,
                    at: self.epoch + actual,
                    direction: PacketDirection::Outbound,
                    length: packet.length,
                    bytes: bytes.as_deref().unwrap_or(&packet.bytes),
                    missed_before: 0,
                    comments: &[format!("one-way delay {} ms", milliseconds(packet.at, actual))],
                })?;
                let is_late = actual >= ideal + MIN_REPORTED_LATENESS;
                let late = if is_late { format!(", {} ms late", milliseconds(ideal, actual)) } else { String::new() };
                let mark = if marked { ", marked CE" } else { "" };
                format!("delivered after {} ms{late}{mark}", milliseconds(packet.at, actual))
            }
            CaptureEventKind::Dropped { cause, at } => {
                format!("dropped: {}, after {} ms", cause.name(), milliseconds(packet.at, at))
            }
            _ => "refused by the kernel".to_owned(),
        };
        packet.open_outcomes = packet.open_outcomes.saturating_sub(1);
        packet.comments.push(comment);
        Ok(())
    }

    /// Writes packets in order of arrival, up to the first with an open outcome.
    fn write_arrivals(&mut self) -> std::io::Result<()> {
        while self.pending.front().is_some_and(|packet| packet.open_outcomes == 0) {
            if let Some(packet) = self.pending.pop_front() {
                self.write_arrival(&packet)?;
            }
        }
        Ok(())
    }

    fn write_arrival(&mut self, packet: &PendingPacket) -> std::io::Result<()> {
        self.summary.packets += 1;
        self.arrivals.write_packet(&CapturedPacket {
            id: packet.number,
            at: self.epoch + packet.at,
            direction: PacketDirection::Inbound,
            length: packet.length,
            bytes: &packet.bytes,
            missed_before: packet.missed_before,
            comments: &packet.comments,
        })
    }

    fn finish(mut self) -> anyhow::Result<CaptureSummary> {
        for mut packet in std::mem::take(&mut self.pending) {
            if packet.open_outcomes > 0 {
                packet.comments.push("in flight at the end of the capture".to_owned());
            }
            self.write_arrival(&packet).with_context(|| self.path.display().to_string())?;
        }
        let (CaptureSummary { packets, missed }, at) = (self.summary, self.epoch + self.last_at);
        let closed = self.arrivals.finish(at, packets + missed, missed);
        let trace_path = format!("{}.trace", self.path.display());
        closed
            .and_then(|()| self.deliveries.finish(at, self.delivered, 0))
            .and_then(|()| fs::write(trace_path, self.trace.into_text()))
            .with_context(|| self.path.display().to_string())?;
        Ok(self.summary)
    }
}

/// Returns the bytes with "congestion experienced" set, as the receiver sees them.
fn marked_bytes(bytes: &[u8], link_type: LinkType) -> Option<Vec<u8>> {
    let with_offload_header = [&[0; VNET_HEADER], bytes].concat();
    let frame = Frame::parse(&with_offload_header, link_type.header_len());
    let mut head = Vec::new();
    let payload = frame.segment_run(&with_offload_header, SegmentRun { first: 0, count: 1, mark: true }, &mut head);
    head.extend_from_slice(&with_offload_header[payload]);
    Some(head.split_off(VNET_HEADER))
}

/// Returns the time between two points in milliseconds, exact to the nanosecond.
fn milliseconds(from: Nanos, to: Nanos) -> String {
    let span = to.saturating_sub(from);
    format!("{}.{:06}", span / 1_000_000, span % 1_000_000)
}
