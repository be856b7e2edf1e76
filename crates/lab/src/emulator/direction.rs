//! One direction of a link: frames in, packets through the pipeline, runs out.

use std::collections::VecDeque;
use std::io;

use ekiden_sys::packet::{Outgoing, Received};

use crate::Nanos;
use crate::emulator::frame::{Frame, Run};
use crate::emulator::port::OpenPort;
use crate::emulator::records::Records;
use crate::emulator::store::{Store, Tag};
use crate::emulator::{DirectionReport, Fate, Record};
use crate::ledger::Cause;
use crate::packet::{Ecn, Packet};
use crate::pipeline::Pipeline;

/// How many frames go to the kernel at once.
const BATCH: usize = 32;
/// How long to wait before an interface that was full is tried again, in nanoseconds,
const RETRY: Nanos = 20_000;
/// and how long in all.
const PATIENCE: Nanos = 1_000_000_000;

/// One direction of a link.
pub struct Direction {
    pub(super) pipeline: Pipeline,
    pub(super) report: DirectionReport,
    /// What the link counts of each packet beyond its IP packet.
    overhead: u32,
    /// Unless each packet is to leave at its own time: how long those that are due gather.
    quantum: Nanos,
    next_number: u64,
    records: Option<Records>,
    /// What is to be sent, in order.
    due: VecDeque<Due>,
    /// When to try again what the interface had no room for.
    retry_at: Option<Nanos>,
    /// Until then packets that are due gather.
    not_before: Nanos,
    heads: Vec<Vec<u8>>,
}

impl Direction {
    pub(super) fn new(
        pipeline: Pipeline,
        report: DirectionReport,
        overhead: u32,
        quantum: Nanos,
        records: Option<Records>,
    ) -> Self {
        let heads = vec![Vec::new(); BATCH];
        Self {
            pipeline,
            report,
            overhead,
            quantum,
            next_number: 0,
            records,
            due: VecDeque::new(),
            retry_at: None,
            not_before: 0,
            heads,
        }
    }

    /// What became of every packet so far.
    pub(super) fn records(&self) -> Vec<Record> {
        self.records.as_ref().map(Records::all).unwrap_or_default()
    }

    /// Takes a frame that arrived at `at`.
    pub(super) fn take(
        &mut self,
        buffer: &mut Box<[u8]>,
        got: Received,
        at: Nanos,
        port: &OpenPort,
        store: &mut Store,
    ) {
        self.report.frames_in += 1;
        let Some(bytes) = buffer.get(..got.length) else {
            self.report.hidden += 1;
            return;
        };
        let frame = Frame::read(bytes, port.link_header());
        let number = self.next_number;
        self.next_number += u64::from(frame.packets);
        self.report.packets_in += u64::from(frame.packets);
        self.report.bytes_in += u64::from(frame.wire_bytes(0, frame.packets, self.overhead));
        let kept = store.keep(buffer, got.length, frame);
        let Some(slot) = kept else {
            *self.report.dropped.entry(Cause::Memory).or_default() += u64::from(frame.packets);
            return;
        };
        store.hold(slot, u32::from(frame.packets));
        // Who keeps records wants each packet of the wire, whether or not anything here tells them apart.
        let whole = !self.pipeline.is_by_packet() && !self.report.exact && self.records.is_none();
        let count = if whole { frame.packets } else { 1 };
        for first in (0..frame.packets).step_by(usize::from(count)) {
            let packet = Packet {
                number: number + u64::from(first),
                at,
                bytes: frame.wire_bytes(first, count, self.overhead),
                flow: frame.flow,
                source: frame.source,
                ecn: frame.ecn,
                tag: Tag { slot, first, count }.into(),
            };
            let at = self.pipeline.push(packet);
            if let Some(records) = &mut self.records {
                let packet = Packet { at, ..packet };
                let tcp = frame.tcp(store.get(slot).bytes(), first, count);
                records.push(Record { packet, segment: (first, frame.packets), tcp, fate: Fate::UnderWay });
            }
        }
        self.settle(store);
    }

    /// Reads the ledger: drops give up their bytes, copies hold them.
    pub(super) fn settle(&mut self, store: &mut Store) {
        for copy in self.pipeline.ledger.copied.drain(..) {
            let tag = Tag::from(copy.tag);
            store.hold(tag.slot, u32::from(tag.count));
            self.report.copied += u64::from(tag.count);
        }
        for dropped in self.pipeline.ledger.dropped.drain(..) {
            let tag = Tag::from(dropped.packet.tag);
            store.release(tag.slot, u32::from(tag.count));
            *self.report.dropped.entry(dropped.cause).or_default() += u64::from(tag.count);
            if let Some(record) = self.records.as_mut().and_then(|records| records.of(dropped.packet.number)) {
                record.fate = Fate::Dropped(dropped.cause, dropped.packet.at);
            }
        }
    }

    /// When there may be something to send.
    pub(super) fn wake(&self) -> Option<Nanos> {
        self.retry_at.or_else(|| self.pipeline.wake().map(|at| at.max(self.not_before)))
    }

    /// Whether every packet is to leave at its own time, as well as the machine can.
    pub(super) fn is_punctual(&self) -> bool {
        self.report.exact
    }

    /// Sends all that is due at `now`. What the interface has no room for stays, and is tried again.
    pub(super) fn send_due(&mut self, now: Nanos, port: &mut OpenPort, store: &mut Store) {
        if now < self.not_before {
            return;
        }
        while let Some(packet) = self.pipeline.pop(now) {
            self.gather(packet, store, port.refuses_superpackets);
        }
        self.settle(store);
        self.retry_at = None;
        if !self.due.is_empty() && !self.report.exact && self.pipeline.is_by_packet() {
            self.not_before = now + self.quantum;
        }
        while !self.due.is_empty() && self.retry_at.is_none() {
            self.send(now, port, store);
        }
    }

    /// Puts a packet that is due behind the run before it, or begins another.
    fn gather(&mut self, packet: Packet, store: &Store, singly: bool) {
        let tag = Tag::from(packet.tag);
        let mark = packet.ecn == Ecn::Marked && store.get(tag.slot).frame.ecn != Ecn::Marked;
        let due = Due {
            slot: tag.slot,
            run: Run { first: tag.first, count: tag.count, mark },
            number: packet.number,
            ideal: packet.at,
            bytes: packet.bytes,
        };
        if let Some(record) = self.records.as_mut().and_then(|records| records.of(packet.number)) {
            // Neighbours in a run have times of their own; only the hand-over is one. Until then it is taken for punctual.
            record.fate = Fate::Delivered { ideal: packet.at, actual: packet.at, marked: mark };
        }
        match self.due.back_mut() {
            Some(last) if !self.report.exact && !singly && last.is_before(&due) => {
                last.run.count += tag.count;
                last.bytes += packet.bytes;
            }
            _ => self.due.push_back(due),
        }
    }

    /// Sends a batch of what is due.
    fn send(&mut self, now: Nanos, port: &mut OpenPort, store: &mut Store) {
        let batch = self.due.len().min(BATCH);
        let mut frames = Vec::with_capacity(batch);
        for (due, head) in self.due.iter().zip(&mut self.heads) {
            let slot = store.get(due.slot);
            let payload = slot.frame.cut(slot.bytes(), due.run, head);
            frames.push(Outgoing { head, body: &slot.bytes()[payload] });
        }
        match port.send(&frames) {
            Ok(sent) => self.sent(sent, now, store),
            Err(error) => self.refused(&error, now, port, store),
        }
    }

    fn sent(&mut self, count: usize, now: Nanos, store: &mut Store) {
        for due in self.due.drain(..count) {
            let packets = u64::from(due.run.count);
            self.report.frames_out += 1;
            self.report.packets_out += packets;
            self.report.bytes_out += u64::from(due.bytes);
            self.report.marked += if due.run.mark { packets } else { 0 };
            self.report.lateness.count(now - due.ideal, packets);
            for number in due.number..due.number + packets {
                let record = self.records.as_mut().and_then(|records| records.of(number));
                if let Some(Fate::Delivered { actual, .. }) = record.map(|record| &mut record.fate) {
                    *actual = now;
                }
            }
            store.release(due.slot, u32::from(due.run.count));
        }
    }

    /// The first of what is due was refused. An interface that is full is tried again soon; a kernel that does not take
    /// superpackets gets its packets one by one; anything else is a hidden drop.
    fn refused(&mut self, error: &io::Error, now: Nanos, port: &mut OpenPort, store: &mut Store) {
        let full = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
        let Some(first) = self.due.front() else { return };
        if full && now < first.ideal + PATIENCE {
            self.retry_at = Some(now + RETRY);
        } else if first.run.count > 1 && error.raw_os_error() == Some(libc::EINVAL) {
            port.refuses_superpackets = true;
            self.due = self.due.drain(..).flat_map(Due::singles).collect();
        } else {
            self.report.hidden += u64::from(first.run.count);
            store.release(first.slot, u32::from(first.run.count));
            self.due.pop_front();
        }
    }
}

/// A run that is to be sent.
#[derive(Debug, Clone, Copy)]
struct Due {
    slot: u32,
    run: Run,
    /// The number of its first packet.
    number: u64,
    /// When that should leave.
    ideal: Nanos,
    /// What the link counts of it.
    bytes: u32,
}

impl Due {
    /// Whether `next` goes on where this ends.
    fn is_before(&self, next: &Self) -> bool {
        self.slot == next.slot && self.run.mark == next.run.mark && self.run.first + self.run.count == next.run.first
    }

    fn singles(self) -> impl Iterator<Item = Self> {
        let bytes = self.bytes / u32::from(self.run.count);
        (0..self.run.count).map(move |index| Self {
            run: Run { first: self.run.first + index, count: 1, mark: self.run.mark },
            number: self.number + u64::from(index),
            bytes,
            ..self
        })
    }
}
