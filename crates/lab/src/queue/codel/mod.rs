//! Controlled delay (RFC 8289): drops when packets have waited too long for too long.
//!
//! # Specification
//!
//! On arrival: if the limit holds with the packet, it goes to the tail; otherwise it is dropped as [`DropCause::Full`].
//!
//! On departure at `now`: `deque` of the pseudocode in RFC 8289 section 5. In short:
//!
//! * To *take* is to remove the head and to see whether it is late. If there is none, or it has not waited too long,
//!   `first_above_time` is forgotten, and it is not late. If it has waited too long and `first_above_time` is forgotten,
//!   that becomes `now + interval`, and it is not late. Otherwise it is late if `now >= first_above_time`.
//! * A packet is taken. If not in the dropping state: a late one is dropped, another is taken, and the dropping state is
//!   entered, whether or not that is late: `delta = count - lastcount`; `count` becomes `delta` if `delta > 1` and
//!   `now - drop_next < 16 * interval`, otherwise 1; `lastcount = count`; `drop_next = control_law(now, count)`.
//! * In the dropping state: if the packet is not late, the state is left. While in the state and `now >= drop_next`:
//!   `count` grows by one, the packet is dropped, another is taken; if that is late,
//!   `drop_next = control_law(drop_next, count)`, otherwise the state is left.
//! * What was taken last departs.
//!
//! With these particulars:
//!
//! * The sojourn time is `now - packet.at`. A packet has waited too long when that is `target` or more and what waits
//!   *behind* it, without it, is more than `MAXPACKET` = 1514 bytes.
//! * `first_above_time` is an option, none where the RFC has 0: time 0 is a time like any other. All counts and times
//!   start at 0.
//! * `control_law(t, count)` is `t + floor(interval / sqrt(count))`, interval in nanoseconds: division and root are
//!   those of doubles, which IEEE 754 rounds correctly, so that it is the same number everywhere.
//! * `now - drop_next` is signed: when `drop_next` is still to come, it is less than `16 * interval`.
//! * With `ecn`, a capable packet is marked where it would be dropped, and departs: nothing is taken in its place, and no
//!   other is marked or dropped at that departure. `count` and `drop_next` move on as by a drop, and the dropping
//!   state is entered or goes on. (The RFC leaves this open; it is what the kernel does.)
//! * Its drops are [`DropCause::Early`], at the time of the departure.
//!
//! The Linux kernel's codel differs in its square root, which is an approximation, in its times, which are in units of
//! 1024 ns, and in its limit, which is in packets.

use std::time::Duration;

use ekiden_proto::units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::dice::SeededRng;
use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::kind::{QueueLimit, QueueSettings};
use crate::queue::{Backlog, Fifo, Queue, try_mark};
use crate::{Nanos, nanos};

#[cfg(test)]
mod tests;

/// With no more than this behind it, in bytes, a packet is never dropped: the line must not go idle (RFC 8289 section 5:
/// `MAXPACKET`).
const MAX_PACKET: u64 = 1514;

/// Settings of `CoDel` (RFC 8289 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodelSettings {
    /// Capacity.
    pub limit: QueueLimit,
    /// Acceptable standing queueing delay.
    #[serde(default = "default_target")]
    pub target: Span,
    /// Time for which the delay may exceed `target` before drops begin.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    #[serde(default)]
    pub ecn: bool,
}

pub(super) const fn default_target() -> Span {
    Span(Duration::from_millis(5))
}

pub(super) const fn default_interval() -> Span {
    Span(Duration::from_millis(100))
}

impl QueueSettings for CodelSettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn build(&self, _rate: Option<Rate>, _rng: SeededRng) -> Box<dyn Queue> {
        Box::new(CodelQueue::new(*self))
    }

    fn replay_check(&self) -> &'static str {
        "CoDel: replay"
    }
}

/// What is acceptable.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodelParams {
    /// The standing delay, in nanoseconds.
    pub(super) target: Nanos,
    /// For how long it may be more, in nanoseconds.
    pub(super) interval: Nanos,
    /// Whether capable packets are marked.
    pub(super) ecn: bool,
}

impl CodelParams {
    /// When the next drop is due, `count` drops into a dropping state.
    fn next_drop(&self, last: Nanos, count: u64) -> Nanos {
        last + (self.interval as f64 / (count as f64).sqrt()) as Nanos
    }
}

/// The state of the law over one queue.
#[derive(Debug, Default)]
pub(super) struct CodelState {
    /// From when on packets may be dropped, if they wait too long until then: `first_above_time`.
    first_above_time: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    /// Drops in this dropping state, or in the last one.
    count: u64,
    /// What `count` began this dropping state with.
    last_count: u64,
}

/// A packet that is about to depart.
struct DequeuedHead {
    packet: Option<Packet>,
    /// Whether packets have waited too long for too long: `ok_to_drop`.
    ok_to_drop: bool,
    marked: bool,
}

impl CodelState {
    /// The packet that departs from `waiting` at `now`.
    pub(super) fn dequeue(
        &mut self,
        law: &CodelParams,
        waiting: &mut Fifo,
        now: Nanos,
        ledger: &mut StageEvents,
    ) -> Option<Packet> {
        let mut head = self.dodequeue(law, waiting, now);
        if !self.dropping {
            if head.ok_to_drop {
                head = self.mark_or_drop(head, law, waiting, now, ledger);
                self.enter_dropping(law, now);
            }
            return head.packet;
        }
        self.dropping = head.ok_to_drop;
        while self.dropping && now >= self.drop_next && !head.marked {
            self.count += 1;
            head = self.mark_or_drop(head, law, waiting, now, ledger);
            self.dropping = head.ok_to_drop;
            if self.dropping {
                self.drop_next = law.next_drop(self.drop_next, self.count);
            }
        }
        head.packet
    }

    /// Takes the first packet and looks at how long it has waited: `dodequeue`.
    fn dodequeue(&mut self, law: &CodelParams, waiting: &mut Fifo, now: Nanos) -> DequeuedHead {
        let packet = waiting.pop();
        let too_long =
            packet.is_some_and(|packet| now - packet.at >= law.target && waiting.backlog().bytes > MAX_PACKET);
        let late = match self.first_above_time {
            Some(until) if too_long => now >= until,
            _ => {
                self.first_above_time = too_long.then_some(now + law.interval);
                false
            }
        };
        DequeuedHead { packet, ok_to_drop: late, marked: false }
    }

    /// Marks the packet, or drops it and takes the next.
    fn mark_or_drop(
        &mut self,
        mut head: DequeuedHead,
        law: &CodelParams,
        waiting: &mut Fifo,
        now: Nanos,
        ledger: &mut StageEvents,
    ) -> DequeuedHead {
        if law.ecn && head.packet.as_mut().is_some_and(try_mark) {
            return DequeuedHead { marked: true, ..head };
        }
        if let Some(packet) = head.packet {
            ledger.record_drop(Packet { at: now, ..packet }, DropCause::Early);
        }
        self.dodequeue(law, waiting, now)
    }

    /// Enters the dropping state. Soon after the last one, the rate of drops that controlled the queue then is taken up.
    fn enter_dropping(&mut self, law: &CodelParams, now: Nanos) {
        let last = self.count - self.last_count;
        let recent = now < self.drop_next + 16 * law.interval;
        self.dropping = true;
        self.count = if last > 1 && recent { last } else { 1 };
        self.last_count = self.count;
        self.drop_next = law.next_drop(now, self.count);
    }
}

/// A queue under this law.
#[derive(Debug)]
pub struct CodelQueue {
    limit: QueueLimit,
    params: CodelParams,
    state: CodelState,
    waiting: Fifo,
}

impl CodelQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: CodelSettings) -> Self {
        let CodelSettings { limit, target, interval, ecn } = settings;
        let params = CodelParams { target: nanos(target), interval: nanos(interval), ecn };
        Self { limit, params, state: CodelState::default(), waiting: Fifo::default() }
    }
}

impl Queue for CodelQueue {
    fn enqueue(&mut self, packet: Packet, ledger: &mut StageEvents) {
        if self.backlog().has_room(&packet, self.limit) {
            self.waiting.push(packet);
        } else {
            ledger.record_drop(packet, DropCause::Full);
        }
    }

    fn dequeue(&mut self, now: Nanos, ledger: &mut StageEvents) -> Option<Packet> {
        self.state.dequeue(&self.params, &mut self.waiting, now, ledger)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}
