//! Flow queueing with controlled delay (RFC 8290): a `CoDel` queue for each flow, served in turn, new flows first.
//!
//! # Specification
//!
//! There are `flows` queues (at least one). Each has packets, a `CoDel` state as specified in [`codel`](super::codel) and
//! a deficit, in bytes. Two lists of queues, new and old, are served from their heads; a queue on neither is idle. At
//! first all are idle.
//!
//! On arrival (RFC 8290 section 4.1):
//!
//! 1. The packet goes to the tail of queue `packet.flow % flows`.
//! 2. If that queue is idle, its deficit becomes `quantum` and it goes to the end of the new list. Its `CoDel` state is
//!    kept from its last life.
//! 3. While the limit does not hold, over all queues: of the queue with the most bytes (of several, the one with the
//!    lowest index) with `n` packets, the first `ceil(n / 2)`, but no more than 64, are dropped as [`Cause::Full`], at the
//!    time of the arrival. The packet that has just arrived may be among them. `CoDel` states do not change.
//!
//! On departure (RFC 8290 section 4.2):
//!
//! 1. The queue at the head of the new list is taken; if that is empty, of the old list; if that is empty too, there is
//!    no packet.
//! 2. If its deficit is 0 or less, `quantum` (at least one byte) is added to it, the queue moves to the end of the old
//!    list, and it goes on with 1.
//! 3. `CoDel` takes a packet from the queue, perhaps dropping or marking. "What waits behind" is what waits in this queue.
//! 4. If there was a packet, its size is taken off the deficit, and it departs. The queue stays where it is.
//! 5. If there was none: a queue of the new list moves to the end of the old list; one of the old list becomes idle. It
//!    goes on with 1.
//!
//! # Differences from the Linux kernel's `fq_codel`
//!
//! | | here | Linux |
//! |---|---|---|
//! | flow | the hash the packet has, the same in every run | a hash with a random key |
//! | overflow | half of the packets, at most 64 (section 4.1), again until the limit holds | half of the bytes, at most 64 packets |
//! | `count` after an overflow | stays | grows by the packets dropped |
//! | "waits behind" | in this queue | in all queues |
//! | memory limit | none | 32 MiB |
//!
//! and in what [`codel`](super::codel) says of the kernel's `CoDel`.

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::Nanos;
use crate::conditions::{FqCodelSettings, Limit};
use crate::ledger::{Cause, Ledger};
use crate::nanos;
use crate::packet::Packet;
use crate::queue::codel::{Control, Law};
use crate::queue::fifo::Fifo;
use crate::queue::{Held, Queue};

#[cfg(test)]
mod tests;

/// How many packets are dropped at most before the fattest queue is looked for again (RFC 8290 section 4.1).
const BATCH: u64 = 64;

/// The queue of one flow, or of several whose hashes collide.
#[derive(Debug, Default)]
struct Flow {
    waiting: Fifo,
    control: Control,
    /// How many bytes it may still send in its turn.
    deficit: i64,
    /// Whether it is on one of the lists.
    active: bool,
}

/// Queues of flows under one limit.
#[derive(Debug)]
pub struct FqCodel {
    limit: Limit,
    law: Law,
    quantum: i64,
    flows: Vec<Flow>,
    /// Indices of flows that have not used up their first quantum.
    new: VecDeque<usize>,
    /// Indices of the other active flows.
    old: VecDeque<usize>,
    held: Held,
}

impl FqCodel {
    /// Empty queues.
    #[must_use]
    pub fn new(settings: FqCodelSettings) -> Self {
        let FqCodelSettings { limit, target, interval, ecn, flows, quantum } = settings;
        Self {
            limit,
            law: Law { target: nanos(target), interval: nanos(interval), ecn },
            quantum: i64::try_from(quantum.0).unwrap_or(i64::MAX).max(1),
            flows: (0..flows.max(1)).map(|_| Flow::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            held: Held::default(),
        }
    }

    /// Drops from the head of the fattest flow. Not from its tail: its sender learns of it sooner.
    fn drop_batch(&mut self, now: Nanos, ledger: &mut Ledger) {
        let bytes = |(index, flow): &(usize, &mut Flow)| (flow.waiting.held().bytes, Reverse(*index));
        let Some((_, fattest)) = self.flows.iter_mut().enumerate().max_by_key(bytes) else { return };
        let packets = fattest.waiting.held().packets.div_ceil(2).min(BATCH);
        for _ in 0..packets {
            if let Some(packet) = fattest.waiting.pop() {
                self.held.remove(&packet);
                ledger.drop(Packet { at: now, ..packet }, Cause::Full);
            }
        }
    }
}

impl Queue for FqCodel {
    fn enqueue(&mut self, packet: Packet, ledger: &mut Ledger) {
        let index = packet.flow as usize % self.flows.len();
        let flow = &mut self.flows[index];
        flow.waiting.push(packet);
        self.held.add(&packet);
        if !flow.active {
            flow.active = true;
            flow.deficit = self.quantum;
            self.new.push_back(index);
        }
        while self.held.exceeds(self.limit) {
            self.drop_batch(packet.at, ledger);
        }
    }

    fn dequeue(&mut self, now: Nanos, ledger: &mut Ledger) -> Option<Packet> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(self.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = flow.waiting.held();
            let packet = flow.control.dequeue(&self.law, &mut flow.waiting, now, ledger);
            let after = flow.waiting.held();
            self.held.packets -= before.packets - after.packets;
            self.held.bytes -= before.bytes - after.bytes;
            if let Some(packet) = packet {
                flow.deficit -= i64::from(packet.bytes);
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                self.old.push_back(index);
            } else {
                flow.active = false;
            }
        }
    }

    fn held(&self) -> Held {
        self.held
    }
}
