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
//!    lowest index) with `n` packets, the first `ceil(n / 2)`, but no more than 64, are dropped as [`DropCause::Full`], at the
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

use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use crate::dice::SeededRng;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::codel::{CodelParams, CodelState, default_interval, default_target};
use crate::queue::kind::{QueueErrors, QueueLimit, QueueSettings};
use crate::queue::{Backlog, Fifo, Queue};
use crate::{Nanos, nanos};

#[cfg(test)]
mod tests;

/// How many packets are dropped at most before the fattest queue is looked for again (RFC 8290 section 4.1).
const BATCH: u64 = 64;

/// Settings of FQ-CoDel (RFC 8290 section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FqCodelSettings {
    /// Capacity of all queues together.
    pub limit: QueueLimit,
    /// See [`CodelSettings::target`](super::codel::CodelSettings::target).
    #[serde(default = "default_target")]
    pub target: Span,
    /// See [`CodelSettings::interval`](super::codel::CodelSettings::interval).
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// See [`CodelSettings::ecn`](super::codel::CodelSettings::ecn).
    #[serde(default)]
    pub ecn: bool,
    /// Number of queues.
    #[serde(default = "default_flows")]
    pub flows: u32,
    /// Bytes that a queue may send in a round.
    #[serde(default = "default_quantum")]
    pub quantum: Bytes,
}

const fn default_flows() -> u32 {
    1024
}

const fn default_quantum() -> Bytes {
    Bytes(1514)
}

impl QueueSettings for FqCodelSettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn validate(&self, errors: &mut QueueErrors) {
        errors.require_positive("flows", u64::from(self.flows));
        errors.require_positive("quantum", self.quantum.0);
    }

    fn build(&self, _rate: Option<Rate>, _rng: SeededRng) -> Box<dyn Queue> {
        Box::new(FqCodelQueue::new(*self))
    }

    fn replay_check(&self) -> &'static str {
        "FQ-CoDel: replay"
    }
}

/// The queue of one flow, or of several whose hashes collide.
#[derive(Debug, Default)]
struct FlowQueue {
    waiting: Fifo,
    codel: CodelState,
    /// How many bytes it may still send in its turn.
    deficit: i64,
    /// Whether it is on one of the lists.
    active: bool,
}

/// Queues of flows under one limit.
#[derive(Debug)]
pub struct FqCodelQueue {
    limit: QueueLimit,
    params: CodelParams,
    quantum: i64,
    flows: Vec<FlowQueue>,
    /// Indices of flows that have not used up their first quantum.
    new_flows: VecDeque<usize>,
    /// Indices of the other active flows.
    old_flows: VecDeque<usize>,
    backlog: Backlog,
}

impl FqCodelQueue {
    /// Empty queues.
    #[must_use]
    pub fn new(settings: FqCodelSettings) -> Self {
        let FqCodelSettings { limit, target, interval, ecn, flows, quantum } = settings;
        Self {
            limit,
            params: CodelParams { target: nanos(target), interval: nanos(interval), ecn },
            quantum: i64::try_from(quantum.0).unwrap_or(i64::MAX).max(1),
            flows: (0..flows.max(1)).map(|_| FlowQueue::default()).collect(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    /// Drops from the head of the fattest flow. Not from its tail: its sender learns of it sooner.
    fn drop_batch(&mut self, now: Nanos, ledger: &mut StageEvents) {
        let bytes = |(index, flow): &(usize, &mut FlowQueue)| (flow.waiting.backlog().bytes, Reverse(*index));
        let Some((_, fattest)) = self.flows.iter_mut().enumerate().max_by_key(bytes) else { return };
        let packets = fattest.waiting.backlog().packets.div_ceil(2).min(BATCH);
        for _ in 0..packets {
            if let Some(packet) = fattest.waiting.pop() {
                self.backlog.remove(&packet);
                ledger.record_drop(Packet { at: now, ..packet }, DropCause::Full);
            }
        }
    }
}

impl Queue for FqCodelQueue {
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents) {
        let index = packet.flow as usize % self.flows.len();
        let flow = &mut self.flows[index];
        flow.waiting.push(packet);
        self.backlog.add(&packet);
        if !flow.active {
            flow.active = true;
            flow.deficit = self.quantum;
            self.new_flows.push_back(index);
        }
        while self.backlog.exceeds(self.limit) {
            self.drop_batch(packet.at, ledger);
        }
    }

    fn dequeue(&mut self, now: Nanos, ledger: &mut StageEvents) -> Option<Packet> {
        loop {
            let is_new = !self.new_flows.is_empty();
            let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(self.quantum);
                list.pop_front();
                self.old_flows.push_back(index);
                continue;
            }
            let before = flow.waiting.backlog();
            let packet = flow.codel.dequeue(&self.params, &mut flow.waiting, now, ledger);
            let after = flow.waiting.backlog();
            self.backlog.packets -= before.packets - after.packets;
            self.backlog.bytes -= before.bytes - after.bytes;
            if let Some(packet) = packet {
                flow.deficit -= i64::from(packet.bytes);
                return Some(packet);
            }
            list.pop_front();
            if is_new {
                self.old_flows.push_back(index);
            } else {
                flow.active = false;
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
