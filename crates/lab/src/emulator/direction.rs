//! One direction of a link: frames in, packets through the pipeline, runs out.

use std::io;

use ekiden_sys::packet::{Outgoing, Received};

use crate::Nanos;
use crate::emulator::frame::{Frame, Run};
use crate::emulator::port::Port;
use crate::emulator::store::{Store, Tag};
use crate::emulator::{DirectionReport, FAST_QUANTUM, Fate, Record};
use crate::ledger::Cause;
use crate::packet::{Ecn, Packet};
use crate::pipeline::Pipeline;

/// How many frames go to the kernel at once.
const BATCH: usize = 32;

/// One direction of a link.
pub struct Direction {
    pub(super) pipeline: Pipeline,
    pub(super) report: DirectionReport,
    /// What the link counts of each packet beyond its IP packet.
    overhead: u32,
    next_number: u64,
    records: Option<Vec<Record>>,
    /// Runs that are due, with the ideal time of their first packet.
    due: Vec<(u32, Run, Nanos)>,
    heads: Vec<Vec<u8>>,
}

impl Direction {
    pub(super) fn new(pipeline: Pipeline, report: DirectionReport, overhead: u32, record: bool) -> Self {
        let heads = vec![Vec::new(); BATCH];
        let records = record.then(Vec::new);
        Self { pipeline, report, overhead, next_number: 0, records, due: Vec::new(), heads }
    }

    /// What became of every packet so far.
    pub(super) fn records(&self) -> Vec<Record> {
        self.records.clone().unwrap_or_default()
    }

    /// Takes a frame that arrived at `at`.
    pub(super) fn take(&mut self, buffer: &mut Box<[u8]>, got: Received, at: Nanos, port: &Port, store: &mut Store) {
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
        let whole = !self.pipeline.is_by_packet() && !self.report.exact;
        let count = if whole { frame.packets } else { 1 };
        for first in (0..frame.packets).step_by(usize::from(count)) {
            let packet = Packet {
                number: number + u64::from(first),
                at,
                bytes: frame.wire_bytes(first, count, self.overhead),
                flow: frame.flow,
                ecn: frame.ecn,
                tag: Tag { slot, first, count }.into(),
            };
            if let Some(records) = &mut self.records {
                records.push(Record { packet, segment: (first, frame.packets), fate: Fate::UnderWay });
            }
            self.pipeline.push(packet);
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
            if let Some(record) = record_of(&mut self.records, dropped.packet.number) {
                record.fate = Fate::Dropped(dropped.cause, dropped.packet.at);
            }
        }
    }

    /// When there may be something to send.
    pub(super) fn wake(&self) -> Option<Nanos> {
        let quantum = if self.report.exact { 0 } else { FAST_QUANTUM };
        self.pipeline.wake().map(|at| at + quantum)
    }

    /// Sends all that is due at `now`.
    pub(super) fn send_due(&mut self, now: Nanos, port: &mut Port, store: &mut Store) {
        while let Some(packet) = self.pipeline.pop(now) {
            self.gather(packet, now, store, port.refuses_superpackets);
        }
        self.settle(store);
        let due = std::mem::take(&mut self.due);
        let mut rest = due.as_slice();
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(rest.len().min(BATCH));
            self.send(batch, port, store);
            rest = others;
        }
        for (slot, run, _) in &due {
            store.release(*slot, u32::from(run.count));
        }
        self.due = due;
        self.due.clear();
    }

    /// Puts a packet that is due behind the run before it, or begins another.
    fn gather(&mut self, packet: Packet, now: Nanos, store: &Store, singly: bool) {
        let tag = Tag::from(packet.tag);
        let mark = packet.ecn == Ecn::Marked && store.get(tag.slot).frame.ecn != Ecn::Marked;
        self.report.packets_out += u64::from(tag.count);
        self.report.bytes_out += u64::from(packet.bytes);
        self.report.marked += u64::from(mark) * u64::from(tag.count);
        self.report.lateness.count(now - packet.at, u64::from(tag.count));
        if let Some(record) = record_of(&mut self.records, packet.number) {
            record.fate = Fate::Delivered { ideal: packet.at, actual: now, marked: mark };
        }
        if let Some((slot, run, _)) = self.due.last_mut().filter(|_| !self.report.exact && !singly)
            && *slot == tag.slot
            && run.mark == mark
            && run.first + run.count == tag.first
        {
            run.count += tag.count;
            return;
        }
        self.due.push((tag.slot, Run { first: tag.first, count: tag.count, mark }, packet.at));
    }

    fn send(&mut self, runs: &[(u32, Run, Nanos)], port: &mut Port, store: &Store) {
        let mut frames = Vec::with_capacity(runs.len());
        for ((slot, run, _), head) in runs.iter().zip(&mut self.heads) {
            let slot = store.get(*slot);
            let payload = slot.frame.cut(slot.bytes(), *run, head);
            frames.push(Outgoing { head, body: &slot.bytes()[payload] });
        }
        let mut sent = 0;
        let mut refused = Vec::new();
        while sent < frames.len() {
            match port.send(&frames[sent..]) {
                Ok(count) => sent += count,
                Err(error) => {
                    refused.push((sent, error));
                    sent += 1;
                }
            }
        }
        self.report.frames_out += frames.len() as u64;
        drop(frames);
        for (index, error) in refused {
            self.refused(runs[index], &error, port, store);
        }
    }

    /// A kernel that does not take a superpacket gets its packets one by one; anything else it refuses is a hidden drop.
    fn refused(&mut self, (slot, run, ideal): (u32, Run, Nanos), error: &io::Error, port: &mut Port, store: &Store) {
        if run.count > 1 && error.kind() == io::ErrorKind::InvalidInput {
            port.refuses_superpackets = true;
            for first in run.first..run.first + run.count {
                self.send(&[(slot, Run { first, count: 1, mark: run.mark }, ideal)], port, store);
            }
        } else {
            self.report.hidden += u64::from(run.count);
        }
    }
}

fn record_of(records: &mut Option<Vec<Record>>, number: u64) -> Option<&mut Record> {
    let records = records.as_mut()?;
    let place = records.binary_search_by_key(&number, |record| record.packet.number).ok()?;
    records.get_mut(place)
}
