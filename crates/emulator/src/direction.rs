//! One direction of a link: receives frames, passes packets through the pipeline, and sends runs of segments.

use std::collections::VecDeque;
use std::io;

use ekiden_sys::packet::{OutgoingFrame, ReceivedFrame};

use crate::Nanos;
use crate::capture::{CaptureEventKind, CaptureLog};
use crate::conditions::Conditions;
use crate::frame::{Frame, SegmentRun};
use crate::ledger::DirectionReport;
use crate::ledger::DropCause;
use crate::packet::{Ecn, Packet};
use crate::pipeline::Pipeline;
use crate::records::{PacketOutcome, PacketRecord, RecordBuffer};
use crate::store::{FrameStore, PacketTag};

/// Maximum number of frames per system call.
const SEND_BATCH: usize = 32;
/// Delay before a send to a full interface is retried, in nanoseconds.
const RETRY_DELAY: Nanos = 20_000;
/// Lateness at which a packet for a full interface is dropped, in nanoseconds.
const RETRY_TIMEOUT: Nanos = 1_000_000_000;

/// The interface at the end of a direction.
pub trait FrameSender {
    /// Sends frames in order. Returns the number of frames sent.
    ///
    /// # Errors
    /// The first frame could not be sent: `ENOBUFS` or `EAGAIN` for a full interface, `EINVAL` for a superpacket that
    /// the interface does not take.
    fn send(&mut self, frames: &[OutgoingFrame<'_>]) -> io::Result<usize>;
}

/// What a direction records of its packets. Without either there is no cost per packet.
pub(crate) struct PacketObservers {
    /// Records for checks of the emulator and for packet logs.
    pub(crate) records: Option<RecordBuffer>,
    /// Events with the first bytes of packets.
    pub(crate) capture: Option<CaptureLog>,
}

impl PacketObservers {
    fn record_mut(&mut self, number: u64) -> Option<&mut PacketRecord> {
        self.records.as_mut().and_then(|records| records.get_mut(number))
    }

    fn capture(&mut self, number: u64, count: u16, kind: CaptureEventKind) {
        if let Some(capture) = &mut self.capture {
            capture.on_event(number, count, kind);
        }
    }
}

/// A scheduled change of the conditions of a direction.
#[derive(Debug)]
pub(crate) struct ScheduledChange {
    pub(crate) at: Nanos,
    pub(crate) conditions: Conditions,
}

/// State of one direction of a link.
pub struct EmulatedDirection {
    pub(crate) pipeline: Pipeline,
    /// The changes to come, latest first.
    changes: Vec<ScheduledChange>,
    pub(crate) report: DirectionReport,
    /// Bytes counted in addition to the IP packet.
    overhead: u32,
    /// Time for which due packets gather before a send, in nanoseconds. Not used in `exact` mode.
    quantum: Nanos,
    next_number: u64,
    observers: PacketObservers,
    /// Runs to send, in order.
    pending: VecDeque<PendingRun>,
    /// Ideal departures of the packets of `pending`, in order, each with the number of packets that have it.
    ideal_departures: VecDeque<(Nanos, u16)>,
    /// Time of the next attempt to send to a full interface.
    retry_at: Option<Nanos>,
    /// Time until which due packets gather.
    gather_until: Nanos,
    header_buffers: Vec<Vec<u8>>,
    /// Whether the interface has refused a superpacket. From then on packets are sent one by one.
    superpackets_refused: bool,
}

impl EmulatedDirection {
    pub(crate) fn new(
        pipeline: Pipeline,
        changes: Vec<ScheduledChange>,
        report: DirectionReport,
        overhead: u32,
        quantum: Nanos,
        observers: PacketObservers,
    ) -> Self {
        let header_buffers = vec![Vec::new(); SEND_BATCH];
        Self {
            pipeline,
            changes,
            report,
            overhead,
            quantum,
            next_number: 0,
            observers,
            pending: VecDeque::new(),
            ideal_departures: VecDeque::new(),
            retry_at: None,
            gather_until: 0,
            header_buffers,
            superpackets_refused: false,
        }
    }

    /// Returns the records of all packets so far.
    pub(crate) fn records(&self) -> Vec<PacketRecord> {
        self.observers.records.as_ref().map(RecordBuffer::to_vec).unwrap_or_default()
    }

    /// Returns the capture, if there is one.
    pub(crate) const fn capture_log(&mut self) -> Option<&mut CaptureLog> {
        self.observers.capture.as_mut()
    }

    /// Applies the changes of conditions before `end`.
    fn apply_changes(&mut self, end: Nanos, store: &mut FrameStore) {
        while let Some(change) = self.changes.pop_if(|change| change.at < end) {
            self.pipeline.set_conditions(&change.conditions, change.at);
            self.apply_stage_events(store);
        }
    }

    /// Takes a frame that arrived at `at`.
    pub(crate) fn on_frame(
        &mut self,
        buffer: &mut Box<[u8]>,
        received: ReceivedFrame,
        at: Nanos,
        link_header: usize,
        store: &mut FrameStore,
    ) {
        self.report.frames_in += 1;
        let Some(bytes) = buffer.get(..received.length) else {
            self.report.hidden += 1;
            return;
        };
        self.apply_changes(at, store);
        let frame = Frame::parse(bytes, link_header);
        let number = self.next_number;
        self.next_number += u64::from(frame.packets);
        self.report.packets_in += u64::from(frame.packets);
        self.report.bytes_in += u64::from(frame.wire_bytes(0, frame.packets, self.overhead));
        if let Some(capture) = &mut self.observers.capture {
            capture.on_arrival(number, at, &frame, bytes);
        }
        let inserted = store.insert(buffer, received.length, frame);
        let Some(slot) = inserted else {
            self.observers.capture(number, frame.packets, CaptureEventKind::Dropped { cause: DropCause::Memory, at });
            *self.report.dropped.entry(DropCause::Memory).or_default() += u64::from(frame.packets);
            return;
        };
        store.retain(slot, u32::from(frame.packets));
        // Records are per packet on the wire, even if no stage distinguishes the packets.
        let is_single_run = !self.pipeline.is_per_packet() && !self.report.exact && self.observers.records.is_none();
        let count = if is_single_run { frame.packets } else { 1 };
        for first in (0..frame.packets).step_by(usize::from(count)) {
            let packet = Packet {
                number: number + u64::from(first),
                at,
                bytes: frame.wire_bytes(first, count, self.overhead),
                flow: frame.flow,
                source: frame.source,
                ecn: frame.ecn,
                tag: PacketTag { slot, first, count }.into(),
            };
            let at = self.pipeline.push(packet);
            if let Some(records) = &mut self.observers.records {
                let packet = Packet { at, ..packet };
                let tcp = frame.tcp_header(store.get(slot).bytes(), first, count);
                records.push(PacketRecord {
                    packet,
                    segment: (first, frame.packets),
                    tcp,
                    outcome: PacketOutcome::InFlight,
                });
            }
        }
        self.apply_stage_events(store);
    }

    /// Applies the events of the stages to the stored frames: drops release bytes, copies retain them.
    pub(crate) fn apply_stage_events(&mut self, store: &mut FrameStore) {
        for copy in self.pipeline.events.duplicated.drain(..) {
            let tag = PacketTag::from(copy.tag);
            store.retain(tag.slot, u32::from(tag.count));
            self.report.copied += u64::from(tag.count);
            self.observers.capture(copy.number, tag.count, CaptureEventKind::Duplicated);
        }
        for dropped in self.pipeline.events.dropped.drain(..) {
            let tag = PacketTag::from(dropped.packet.tag);
            store.release(tag.slot, u32::from(tag.count));
            *self.report.dropped.entry(dropped.cause).or_default() += u64::from(tag.count);
            let kind = CaptureEventKind::Dropped { cause: dropped.cause, at: dropped.packet.at };
            self.observers.capture(dropped.packet.number, tag.count, kind);
            if let Some(record) = self.observers.record_mut(dropped.packet.number) {
                record.outcome = PacketOutcome::Dropped(dropped.cause, dropped.packet.at);
            }
        }
    }

    /// Returns the earliest time at which a packet may have to be sent.
    pub(crate) fn next_wakeup(&self) -> Option<Nanos> {
        self.retry_at.or_else(|| self.pipeline.next_wakeup().map(|at| at.max(self.gather_until)))
    }

    /// Returns the time of the next change of conditions.
    pub(crate) fn next_change(&self) -> Option<Nanos> {
        self.changes.last().map(|change| change.at)
    }

    /// Returns whether every packet leaves at its own time, as accurately as the machine allows.
    pub(crate) fn is_exact(&self) -> bool {
        self.report.exact
    }

    /// Applies changes and sends packets that are due at `received_until`, the time until which all frames have been
    /// received. Packets that a full interface refuses stay pending and are retried.
    pub(crate) fn send_due(
        &mut self,
        now: Nanos,
        received_until: Nanos,
        sender: &mut impl FrameSender,
        store: &mut FrameStore,
    ) {
        self.apply_changes(received_until + 1, store);
        // A send that a full interface refused is due at its retry, also while packets gather.
        if now < self.retry_at.unwrap_or(self.gather_until) {
            return;
        }
        while let Some(packet) = self.pipeline.pop(received_until) {
            self.append_to_run(packet, store);
        }
        self.apply_stage_events(store);
        self.retry_at = None;
        if !self.pending.is_empty() && !self.report.exact && self.pipeline.is_per_packet() {
            self.gather_until = now + self.quantum;
        }
        while !self.pending.is_empty() && self.retry_at.is_none() {
            self.send_batch(now, sender, store);
        }
    }

    /// Appends a due packet to the last run, or starts a new run.
    fn append_to_run(&mut self, packet: Packet, store: &FrameStore) {
        let tag = PacketTag::from(packet.tag);
        let mark = packet.ecn == Ecn::Marked && store.get(tag.slot).frame.ecn != Ecn::Marked;
        let due = PendingRun {
            slot: tag.slot,
            run: SegmentRun { first: tag.first, count: tag.count, mark },
            number: packet.number,
            ideal: packet.at,
            bytes: packet.bytes,
        };
        if let Some(record) = self.observers.record_mut(packet.number) {
            // Packets of a run have individual ideal times but one actual time, which is known only after the send.
            record.outcome = PacketOutcome::Delivered { ideal: packet.at, actual: packet.at, marked: mark };
        }
        self.ideal_departures.push_back((packet.at, tag.count));
        match self.pending.back_mut() {
            Some(last) if !self.report.exact && !self.superpackets_refused && last.is_contiguous_with(&due) => {
                last.run.count += tag.count;
                last.bytes += packet.bytes;
            }
            _ => self.pending.push_back(due),
        }
    }

    /// Sends a batch of pending runs.
    fn send_batch(&mut self, now: Nanos, sender: &mut impl FrameSender, store: &mut FrameStore) {
        let batch = self.pending.len().min(SEND_BATCH);
        let mut frames = Vec::with_capacity(batch);
        for (due, head) in self.pending.iter().zip(&mut self.header_buffers) {
            let slot = store.get(due.slot);
            let payload = slot.frame.segment_run(slot.bytes(), due.run, head);
            frames.push(OutgoingFrame { head, body: &slot.bytes()[payload] });
        }
        match sender.send(&frames) {
            Ok(sent) => self.on_sent(sent, now, store),
            Err(error) => self.on_send_error(&error, now, store),
        }
    }

    fn on_sent(&mut self, count: usize, now: Nanos, store: &mut FrameStore) {
        for due in self.pending.drain(..count) {
            let packets = u64::from(due.run.count);
            self.report.frames_out += 1;
            self.report.packets_out += packets;
            self.report.bytes_out += u64::from(due.bytes);
            self.report.marked += if due.run.mark { packets } else { 0 };
            let mut next = due.number;
            for (ideal, count) in take_front(&mut self.ideal_departures, due.run.count) {
                self.report.lateness.record(now - ideal, u64::from(count));
                let kind = CaptureEventKind::Delivered { ideal, actual: now, marked: due.run.mark };
                self.observers.capture(next, count, kind);
                next += u64::from(count);
            }
            for number in due.number..due.number + packets {
                let outcome = self.observers.record_mut(number).map(|record| &mut record.outcome);
                if let Some(PacketOutcome::Delivered { actual, .. }) = outcome {
                    *actual = now;
                }
            }
            store.release(due.slot, u32::from(due.run.count));
        }
    }

    /// Handles the refusal of the first pending run. A send to a full interface is retried. A superpacket that the
    /// kernel does not accept is split into packets. Any other refusal counts as a hidden drop.
    fn on_send_error(&mut self, error: &io::Error, now: Nanos, store: &mut FrameStore) {
        let full = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
        let Some(first) = self.pending.front() else { return };
        if full && now < first.ideal + RETRY_TIMEOUT {
            self.retry_at = Some(now + RETRY_DELAY);
        } else if first.run.count > 1 && error.raw_os_error() == Some(libc::EINVAL) {
            self.superpackets_refused = true;
            self.pending = self.pending.drain(..).flat_map(PendingRun::split).collect();
        } else {
            self.report.hidden += u64::from(first.run.count);
            take_front(&mut self.ideal_departures, first.run.count).for_each(drop);
            self.observers.capture(first.number, first.run.count, CaptureEventKind::Refused);
            store.release(first.slot, u32::from(first.run.count));
            self.pending.pop_front();
        }
    }
}

/// Removes the first `packets` packets. Returns their ideal departures, each with the number of packets that have it.
fn take_front(departures: &mut VecDeque<(Nanos, u16)>, mut packets: u16) -> impl Iterator<Item = (Nanos, u16)> {
    std::iter::from_fn(move || {
        let (ideal, count) = departures.front_mut().filter(|_| packets > 0)?;
        let (ideal, taken) = (*ideal, packets.min(*count));
        packets -= taken;
        *count -= taken;
        if *count == 0 {
            departures.pop_front();
        }
        Some((ideal, taken))
    })
}

/// A run of segments to send.
#[derive(Debug, Clone, Copy)]
struct PendingRun {
    slot: u32,
    run: SegmentRun,
    /// Number of the first packet.
    number: u64,
    /// Ideal departure of the first packet.
    ideal: Nanos,
    /// Size of the run in the link's accounting, in bytes.
    bytes: u32,
}

impl PendingRun {
    /// Returns whether `next` continues this run.
    fn is_contiguous_with(&self, next: &Self) -> bool {
        self.slot == next.slot && self.run.mark == next.run.mark && self.run.first + self.run.count == next.run.first
    }

    fn split(self) -> impl Iterator<Item = Self> {
        let bytes = self.bytes / u32::from(self.run.count);
        (0..self.run.count).map(move |index| Self {
            run: SegmentRun { first: self.run.first + index, count: 1, mark: self.run.mark },
            number: self.number + u64::from(index),
            bytes,
            ..self
        })
    }
}
