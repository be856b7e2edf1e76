//! Packet capture: the packets that enter a direction and their outcomes, as a sequence of events.
//!
//! An event of an arrival has the first bytes of the packet. The reader joins arrivals and outcomes by packet number.
//! Chunks have a fixed capacity, so that recording never copies earlier events.

use std::collections::VecDeque;

use ekiden_sys::packet::VNET_HEADER;
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::frame::{Frame, SegmentRun};
use crate::ledger::DropCause;

/// Maximum number of events in a chunk.
const CHUNK_EVENTS: usize = 1024;
/// Capacity of a chunk for bytes of packets: more than the largest packet.
const CHUNK_BYTES: usize = 128 << 10;
/// Maximum size of the chunks of a direction that the driver has not taken, in bytes: about 700,000 packets with 128
/// bytes of each.
const MAX_STORED_BYTES: usize = 128 << 20;

/// An event of one packet or of neighbouring packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureEvent {
    /// Number of the first packet in its direction.
    pub number: u64,
    /// Number of packets that the event applies to.
    pub count: u16,
    /// What happened to the packets.
    pub kind: CaptureEventKind,
}

/// Kind of an event. Times are nanoseconds since the start of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureEventKind {
    /// The packet arrived at the link. Its first bytes are the next `captured` bytes of the chunk.
    Arrived {
        /// Time of arrival at the link.
        at: Nanos,
        /// Size of the frame, with its link header, in bytes.
        length: u32,
        /// Number of captured bytes.
        captured: u32,
    },
    /// The link duplicated the packet: it has one more outcome.
    Duplicated,
    /// The packet was sent to the receiving host.
    Delivered {
        /// Ideal time of the departure.
        ideal: Nanos,
        /// Actual time of the departure.
        actual: Nanos,
        /// Whether the link marked the packet "congestion experienced".
        marked: bool,
    },
    /// The link dropped the packet.
    Dropped {
        /// Cause of the drop.
        cause: DropCause,
        /// Time of the drop.
        at: Nanos,
    },
    /// The kernel refused the packet from the emulator.
    Refused,
    /// The packets are not in the capture, because the driver did not take chunks in time.
    Missed,
}

/// Events of one direction, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CaptureChunk {
    /// Index of the direction in the emulation.
    pub direction: usize,
    events: Vec<CaptureEvent>,
    bytes: Vec<u8>,
}

impl CaptureChunk {
    fn new(direction: usize) -> Self {
        Self { direction, events: Vec::with_capacity(CHUNK_EVENTS), bytes: Vec::with_capacity(CHUNK_BYTES) }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.events.len() < CHUNK_EVENTS && self.bytes.len() + bytes <= CHUNK_BYTES
    }

    /// Returns the memory of the chunk, in bytes. It does not change, because the vectors never grow.
    fn size(&self) -> usize {
        self.events.capacity() * size_of::<CaptureEvent>() + self.bytes.capacity()
    }

    /// Returns the events, each with the captured bytes of an arrival; other events have none.
    pub fn events(&self) -> impl Iterator<Item = (CaptureEvent, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.events.iter().map(move |event| {
            let captured = match event.kind {
                CaptureEventKind::Arrived { captured, .. } => (captured as usize).min(rest.len()),
                _ => 0,
            };
            let (bytes, behind) = rest.split_at(captured);
            rest = behind;
            (*event, bytes)
        })
    }
}

/// Events of one direction that the driver has not taken yet.
#[derive(Debug)]
pub(crate) struct CaptureLog {
    direction: usize,
    snaplen: usize,
    chunks: VecDeque<CaptureChunk>,
    stored_bytes: usize,
    /// Number of the first missed packet and number of missed packets that no event reports yet.
    missed: Option<(u64, u16)>,
    header_buffer: Vec<u8>,
}

impl CaptureLog {
    /// Creates an empty log that captures up to `snaplen` bytes of each packet.
    pub(crate) fn new(direction: usize, snaplen: u32) -> Self {
        Self {
            direction,
            snaplen: snaplen as usize,
            chunks: VecDeque::new(),
            stored_bytes: 0,
            missed: None,
            header_buffer: Vec::new(),
        }
    }

    /// Records the arrival of all packets of a frame; the first has the number `number`.
    pub(crate) fn on_arrival(&mut self, number: u64, at: Nanos, frame: &Frame, bytes: &[u8]) {
        for index in 0..frame.packets {
            self.on_packet(number + u64::from(index), at, frame, index, bytes);
        }
    }

    fn on_packet(&mut self, number: u64, at: Nanos, frame: &Frame, index: u16, bytes: &[u8]) {
        if self.stored_bytes >= MAX_STORED_BYTES {
            self.on_missed(number);
            return;
        }
        self.report_missed();
        let mut head = std::mem::take(&mut self.header_buffer);
        let payload = frame.segment_run(bytes, SegmentRun { first: index, count: 1, mark: false }, &mut head);
        let head_bytes = head.get(VNET_HEADER..).unwrap_or_default();
        let length = head_bytes.len() + payload.len();
        let from_head = head_bytes.len().min(self.snaplen);
        let from_payload = payload.len().min(self.snaplen - from_head);
        let captured = from_head + from_payload;
        let chunk = self.chunk_with_room(captured);
        chunk.bytes.extend_from_slice(&head_bytes[..from_head]);
        chunk.bytes.extend_from_slice(&bytes[payload.start..payload.start + from_payload]);
        let saturated = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let kind = CaptureEventKind::Arrived { at, length: saturated(length), captured: saturated(captured) };
        chunk.events.push(CaptureEvent { number, count: 1, kind });
        self.header_buffer = head;
    }

    fn on_missed(&mut self, number: u64) {
        match &mut self.missed {
            Some((first, count)) if *count < u16::MAX && *first + u64::from(*count) == number => *count += 1,
            _ => {
                self.report_missed();
                self.missed = Some((number, 1));
            }
        }
    }

    fn report_missed(&mut self) {
        if let Some((number, count)) = self.missed.take() {
            self.on_event(number, count, CaptureEventKind::Missed);
        }
    }

    /// Records an event of the packets from `number` on. Events other than arrivals are always recorded.
    pub(crate) fn on_event(&mut self, number: u64, count: u16, kind: CaptureEventKind) {
        self.chunk_with_room(0).events.push(CaptureEvent { number, count, kind });
    }

    fn chunk_with_room(&mut self, bytes: usize) -> &mut CaptureChunk {
        if !self.chunks.back().is_some_and(|chunk| chunk.has_room(bytes)) {
            let chunk = CaptureChunk::new(self.direction);
            self.stored_bytes += chunk.size();
            self.chunks.push_back(chunk);
        }
        let last = self.chunks.len() - 1;
        &mut self.chunks[last]
    }

    /// Removes the first chunk, if it is full.
    pub(crate) fn take_full_chunk(&mut self) -> Option<CaptureChunk> {
        if self.chunks.len() > 1 { self.take_chunk() } else { None }
    }

    /// Removes the first chunk, if there is one with an event.
    pub(crate) fn take_chunk(&mut self) -> Option<CaptureChunk> {
        self.report_missed();
        let chunk = self.chunks.pop_front()?;
        self.stored_bytes -= chunk.size();
        Some(chunk)
    }

    /// Puts a chunk back that the driver could not pass on.
    pub(crate) fn put_back(&mut self, chunk: CaptureChunk) {
        self.stored_bytes += chunk.size();
        self.chunks.push_front(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an Ethernet frame with an unknown protocol after an empty `virtio_net_hdr`.
    fn frame(length: usize) -> Vec<u8> {
        (0..VNET_HEADER + length).map(|at| if at < VNET_HEADER { 0 } else { (at % 251) as u8 }).collect()
    }

    fn log_arrival(log: &mut CaptureLog, number: u64, length: usize) {
        let bytes = frame(length);
        log.on_arrival(number, number * 10, &Frame::parse(&bytes, 14), &bytes);
    }

    #[test]
    fn arrivals_have_the_first_bytes_after_the_offload_header() {
        let mut log = CaptureLog::new(3, 100);
        log_arrival(&mut log, 0, 60);
        log.on_event(0, 1, CaptureEventKind::Refused);
        log_arrival(&mut log, 1, 500);
        let chunk = log.take_chunk().unwrap();
        let seen: Vec<(CaptureEvent, &[u8])> = chunk.events().collect();
        let arrived = |number: u64, length, captured| CaptureEventKind::Arrived { at: number * 10, length, captured };
        assert_eq!(
            seen.iter().map(|(event, _)| event.kind).collect::<Vec<_>>(),
            [arrived(0, 60, 60), CaptureEventKind::Refused, arrived(1, 500, 100),]
        );
        assert_eq!((chunk.direction, seen[0].1, seen[2].1), (3, &frame(60)[10..], &frame(500)[10..110]));
        assert!(log.take_chunk().is_none());
    }

    #[test]
    fn missed_packets_are_counted_and_outcomes_are_always_stored() {
        let mut log = CaptureLog::new(0, 1 << 16);
        let mut number = 0;
        while log.stored_bytes < MAX_STORED_BYTES {
            log_arrival(&mut log, number, 60_000);
            number += 1;
        }
        let fitted = number;
        (0..70_000).for_each(|more| log_arrival(&mut log, fitted + more, 60));
        log.on_event(0, 1, CaptureEventKind::Refused);
        let (mut arrived, mut missed, mut refused) = (0, 0, 0);
        while let Some(chunk) = log.take_chunk() {
            for (event, _) in chunk.events() {
                match event.kind {
                    CaptureEventKind::Arrived { .. } => arrived += 1,
                    CaptureEventKind::Missed => missed += u64::from(event.count),
                    _ => refused += 1,
                }
            }
        }
        assert_eq!((arrived, missed, refused), (fitted, 70_000, 1));
        log_arrival(&mut log, 999_999, 60);
        assert!(log.take_full_chunk().is_none() && log.take_chunk().is_some(), "there is room again");
    }
}
