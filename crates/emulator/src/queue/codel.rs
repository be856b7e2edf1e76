//! Controlled delay (RFC 8289): drops packets when the queueing delay stays above a target for an interval.
//!
//! # Specification
//!
//! On arrival: if the limit holds with the packet, it goes to the tail; otherwise it is dropped as [`DropCause::Full`].
//!
//! On departure at `now`: `deque` of the pseudocode in RFC 8289 section 5. In short:
//!
//! * To *take* is to remove the head and to test whether it is late. If the queue is empty, or the head has not waited
//!   too long, `first_above_time` is cleared, and the head is not late. If the head has waited too long and
//!   `first_above_time` is clear, it becomes `now + interval`, and the head is not late. Otherwise the head is late if
//!   `now >= first_above_time`.
//! * A packet is taken. Outside the dropping state: if it is late, it is dropped, another is taken, and the dropping
//!   state is entered, whether or not the second packet is late: `delta = count - lastcount`; `count` becomes `delta`
//!   if `delta > 1` and `now - drop_next < 16 * interval`, otherwise 1; `lastcount = count`; `drop_next =
//!   control_law(now, count)`.
//! * In the dropping state: if the packet is not late, the state is left. While in the state and `now >= drop_next`:
//!   `count` grows by one, the packet is dropped, another is taken; if that is late, `drop_next =
//!   control_law(drop_next, count)`, otherwise the state is left.
//! * The packet taken last departs.
//!
//! Details of this implementation:
//!
//! * The sojourn time is `now - packet.at`. A packet has waited too long if its sojourn time is `target` or more and
//!   the backlog *behind* it, without it, is more than `MAXPACKET`: the size of the largest packet taken so far, but
//!   at least 1514 bytes.
//! * `first_above_time` is an option, `None` where the RFC has 0: time 0 is an ordinary time. All counts and times
//!   start at 0.
//! * `control_law(t, count)` is `t + floor(interval / sqrt(count))`, interval in nanoseconds. Division and root are
//!   those of doubles, which IEEE 754 rounds correctly, so results do not depend on the machine.
//! * `now - drop_next` is signed: while `drop_next` is in the future, the difference is less than `16 * interval`.
//! * With `ecn`, a capable packet is marked where it would be dropped, and departs: no packet is taken in its place,
//!   and no other is marked or dropped at that departure. `count` and `drop_next` advance as after a drop, and the
//!   dropping state is entered or continues. (The RFC leaves this open; the Linux kernel does it this way.)
//! * Drops of the law are [`DropCause::Early`], at the time of the departure.
//!
//! The Linux kernel's codel differs in its square root, which is an approximation, in its times, which are in units of
//! 1024 ns, in its limit, which is in packets, and in `MAXPACKET`, which follows from the MTU of the interface.

use std::time::Duration;

use ekiden_proto::units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::ledger::{DropCause, StageEvents};
use crate::packet::Packet;
use crate::queue::kind::{QueueLimit, QueueSettings};
use crate::queue::{Backlog, Fifo, Queue, try_mark};
use crate::rng::SeededRng;
use crate::{Nanos, nanos};

/// Minimum of `MAXPACKET` in bytes (RFC 8289 section 5). With no more behind it, a packet is never dropped, so that the
/// line does not go idle.
const MIN_MAX_PACKET: u64 = 1514;

/// Settings of `CoDel` (RFC 8289 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodelSettings {
    /// Capacity, in packets or bytes.
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

/// Parameters of the control law.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodelParams {
    /// Acceptable standing delay, in nanoseconds.
    pub(super) target: Nanos,
    /// Time for which the delay may exceed the target, in nanoseconds.
    pub(super) interval: Nanos,
    /// Whether ECN-capable packets are marked.
    pub(super) ecn: bool,
}

impl CodelParams {
    /// Returns the time of the next drop, `count` drops into a dropping state.
    fn next_drop(&self, last: Nanos, count: u64) -> Nanos {
        last + (self.interval as f64 / (count as f64).sqrt()) as Nanos
    }
}

/// State of the control law of one queue.
#[derive(Debug, Default)]
pub(super) struct CodelState {
    /// Time from which packets may be dropped if the delay stays above the target (`first_above_time`).
    first_above_time: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    /// Number of drops in the current or the last dropping state.
    count: u64,
    /// Value of `count` at the start of this dropping state.
    last_count: u64,
    /// Size of the largest packet taken so far, in bytes.
    largest_packet: u64,
}

/// The packet at the head, about to depart.
struct DequeuedHead {
    packet: Option<Packet>,
    /// Whether the delay has exceeded the target for an interval (`ok_to_drop`).
    ok_to_drop: bool,
    marked: bool,
}

impl CodelState {
    /// Removes the packet that departs from `waiting` at `now`. Drops go to `ledger`.
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

    /// Removes the head and tests its sojourn time (`dodequeue`).
    fn dodequeue(&mut self, law: &CodelParams, waiting: &mut Fifo, now: Nanos) -> DequeuedHead {
        let packet = waiting.pop();
        self.largest_packet = self.largest_packet.max(packet.map_or(0, |packet| u64::from(packet.bytes)));
        let max_packet = self.largest_packet.max(MIN_MAX_PACKET);
        let is_above_target =
            packet.is_some_and(|packet| now - packet.at >= law.target && waiting.backlog().bytes > max_packet);
        let is_late = match self.first_above_time {
            Some(deadline) if is_above_target => now >= deadline,
            _ => {
                self.first_above_time = is_above_target.then_some(now + law.interval);
                false
            }
        };
        DequeuedHead { packet, ok_to_drop: is_late, marked: false }
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

    /// Enters the dropping state. Soon after the last dropping state, the drop rate of that state is resumed.
    fn enter_dropping(&mut self, law: &CodelParams, now: Nanos) {
        let delta = self.count - self.last_count;
        let is_recent = now < self.drop_next + 16 * law.interval;
        self.dropping = true;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = law.next_drop(now, self.count);
    }
}

/// A queue under the control law.
#[derive(Debug)]
pub struct CodelQueue {
    limit: QueueLimit,
    params: CodelParams,
    state: CodelState,
    waiting: Fifo,
}

impl CodelQueue {
    /// Creates an empty queue.
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

    fn into_packets(self: Box<Self>) -> Vec<Packet> {
        self.waiting.packets.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MS;
    use crate::fixtures::packet;
    use crate::packet::Ecn;
    use crate::queue::tests::{DriveOutcome, drive, random, span, steady, trace_table};

    const LIMIT: QueueLimit = QueueLimit::Packets(1000);
    /// Transmission time of 1500 bytes, in nanoseconds.
    const SERVICE: Nanos = 1_200_000;

    fn codel(limit: QueueLimit, ecn: bool) -> CodelQueue {
        CodelQueue::new(CodelSettings { limit, target: span(5), interval: span(100), ecn })
    }

    fn run(arrivals: &[Packet], ecn: bool) -> DriveOutcome {
        drive(&mut codel(LIMIT, ecn), arrivals, |_, _, _| ())
    }

    fn drop_times(outcome: &DriveOutcome) -> Vec<Nanos> {
        outcome.events.dropped.iter().map(|drop| drop.packet.at).collect()
    }

    /// Returns `number` packets at twice the rate of the line.
    fn overload(number: u64) -> Vec<Packet> {
        steady(number, SERVICE / 2)
    }

    #[test]
    fn drops_begin_after_an_interval_and_follow_the_control_law() {
        let outcome = run(&overload(1500), false);
        let times = drop_times(&outcome);
        assert!(times.len() > 40);
        // Packet k departs at k * 1.2 ms, after a wait of k * 0.6 ms: number 9 is the first with a wait above 5 ms.
        let mut due = 9 * SERVICE + 100 * MS;
        for (count, time) in (1_u32..).zip(times) {
            let late = time as f64 - due as f64;
            assert!((0.0..SERVICE as f64).contains(&late), "drop {count} at {time}, due at {due}");
            due = if count == 1 { time } else { due };
            due += (100.0 * MS as f64 / f64::from(count).sqrt()) as Nanos;
        }
        assert_eq!(outcome.drops(DropCause::Early), outcome.events.dropped.len());
    }

    #[test]
    fn short_bursts_low_delays_and_last_packets_are_not_dropped() {
        // A burst of 80 packets drains in 96 ms, less than an interval.
        let burst: Vec<Packet> = (0..80).map(|number| packet(number, 0, 1500)).collect();
        assert_eq!(run(&burst, false).events.dropped, []);
        // A standing queue of four packets delays packets by 4.8 ms, less than the target.
        let standing: Vec<Packet> = (0..1000).map(|n| packet(n, n.saturating_sub(4) * SERVICE, 1500)).collect();
        assert_eq!(run(&standing, false).events.dropped, []);
        // A line of 10 kbit/s transmits a packet in 1.2 s: the delay is above the target, but only one packet is behind
        // the head.
        let mut codel = codel(LIMIT, false);
        let mut ledger = StageEvents::default();
        for number in 0..20 {
            let now = number * 1200 * MS;
            codel.enqueue(packet(number, now, 1500), &mut ledger);
            codel.enqueue(packet(number, now, 14), &mut ledger);
            assert!(codel.dequeue(now + 1199 * MS, &mut ledger).is_some_and(|head| head.bytes == 1500));
            assert!(codel.dequeue(now + 1200 * MS, &mut ledger).is_some_and(|head| head.bytes == 14));
        }
        assert_eq!(ledger.dropped, []);
    }

    #[test]
    fn drops_require_more_than_one_packet_behind_the_head() {
        for (sizes, drops) in [
            ([1500, 1500, 1514], 0),
            ([1500, 1500, 1515], 1),
            ([9000, 64, 9000], 0),
            ([9000, 64, 9001], 1),
            ([64, 9000, 9000], 0),
        ] {
            let mut codel = codel(LIMIT, false);
            let mut ledger = StageEvents::default();
            for (number, bytes) in (0..).zip(sizes) {
                codel.enqueue(packet(number, 0, bytes), &mut ledger);
            }
            // Two packets are behind the first, so `first_above_time` is set; one packet is behind the second.
            assert_eq!(codel.dequeue(5 * MS, &mut ledger).map(|head| head.number), Some(0));
            assert_eq!(codel.dequeue(105 * MS, &mut ledger).map(|head| head.number), Some(1 + drops), "{sizes:?}");
            assert_eq!(ledger.dropped.len() as u64, drops);
        }
    }

    /// Returns the drop count and the spacing of the first drops of the second of two overloads, which starts `pause`
    /// after the first.
    fn second_overload(pause: Nanos) -> (u64, Nanos) {
        let (first, gap) = (overload(1500), 1500 * SERVICE / 2 + pause);
        let second =
            overload(1500).into_iter().map(|late| Packet { number: late.number + 1500, at: late.at + gap, ..late });
        let arrivals: Vec<Packet> = first.into_iter().chain(second).collect();
        let times: Vec<Nanos> = drop_times(&run(&arrivals, false)).into_iter().filter(|time| *time >= gap).collect();
        // The spacing of the first drops is interval / sqrt(count).
        let spacing = times.windows(2).map(|pair| pair[1] - pair[0]).find(|spacing| *spacing > 0).unwrap();
        ((100.0 * MS as f64 / spacing as f64).powi(2).round() as u64, spacing)
    }

    #[test]
    fn drop_rate_resumes_soon_after_a_dropping_state() {
        let (count, spacing) = second_overload(1200 * MS);
        assert!(count > 20, "spacing {spacing}");
        // After 16 intervals the dropping state starts with a count of 1.
        let (count, spacing) = second_overload(3500 * MS);
        assert_eq!(count, 1, "spacing {spacing}");
    }

    #[test]
    fn new_dropping_state_resumes_the_recent_drop_count() {
        let law = CodelParams { target: 5 * MS, interval: 100 * MS, ecn: false };
        let entered = |count, last_count, drop_next, now| {
            let mut control = CodelState { count, last_count, drop_next, ..CodelState::default() };
            control.enter_dropping(&law, now);
            assert!(control.dropping && control.last_count == control.count);
            (control.count, control.drop_next - now)
        };
        assert_eq!(entered(30, 5, 1000 * MS, 1200 * MS), (25, 20 * MS));
        assert_eq!(entered(30, 5, 1000 * MS, 900 * MS), (25, 20 * MS), "before the next drop");
        assert_eq!(entered(30, 5, 1000 * MS, 2600 * MS - 1), (25, 20 * MS));
        assert_eq!(entered(30, 5, 1000 * MS, 2600 * MS), (1, 100 * MS), "16 intervals later");
        assert_eq!(entered(30, 29, 1000 * MS, 1200 * MS), (1, 100 * MS), "one drop is not enough");
    }

    #[test]
    fn departure_marks_one_packet_but_may_drop_many() {
        for (ecn, sent, count) in [(Ecn::NotCapable, 9, 7), (Ecn::Capable, 2, 2)] {
            let mut codel = codel(LIMIT, true);
            let mut ledger = StageEvents::default();
            for number in 0..11 {
                codel.enqueue(Packet { ecn, ..packet(number, 0, 1500) }, &mut ledger);
            }
            // At 10 ms the delay exceeds the target, at 110 ms the dropping state begins with the next drop due at
            // 210 ms, and at 900 ms several drops are overdue.
            let departures = [10 * MS, 110 * MS, 900 * MS].map(|now| codel.dequeue(now, &mut ledger).unwrap().number);
            assert_eq!((departures[2], codel.state.count), (sent, count));
            assert_eq!(ledger.dropped.len(), if ecn == Ecn::Capable { 0 } else { 7 });
        }
    }

    #[test]
    fn capable_packets_are_marked_at_the_times_of_drops() {
        let capable: Vec<Packet> = overload(600).into_iter().map(|p| Packet { ecn: Ecn::Capable, ..p }).collect();
        let (marked, dropped) = (run(&capable, true), run(&overload(600), true));
        assert_eq!(marked.events.dropped, []);
        let marks: Vec<Nanos> = marked.sent.iter().filter(|p| p.ecn == Ecn::Marked).map(|p| p.at).collect();
        let drops = drop_times(&dropped);
        // A drop shortens the queue and a mark does not, but the control law is identical while both delays are above
        // the target.
        let both = marks.len().min(drops.len());
        assert!(both > 10);
        for (mark, drop) in marks.iter().zip(&drops) {
            assert_eq!(mark, drop);
        }
        assert_eq!(run(&capable, false).marks(), 0);
    }

    #[test]
    fn packet_above_the_limit_is_dropped_as_full() {
        let burst: Vec<Packet> = (0..12).map(|number| packet(number, 0, 1500)).collect();
        let outcome = drive(&mut codel(QueueLimit::Packets(10), true), &burst, |_, _, _| ());
        assert_eq!((outcome.drops(DropCause::Full), outcome.events.dropped[0].packet.number), (1, 11));
    }

    #[test]
    fn control_law_rounds_down() {
        let law = CodelParams { target: 5 * MS, interval: 100 * MS, ecn: false };
        let next: Vec<Nanos> = [1, 2, 3, 4, 1000].into_iter().map(|count| law.next_drop(7, count)).collect();
        assert_eq!(next, [100_000_007, 70_710_685, 57_735_033, 50_000_007, 3_162_284]);
    }

    #[test]
    fn codel_overload_matches_the_recorded_trace() {
        let mut codel = codel(QueueLimit::Bytes(60_000), true);
        let table = trace_table(&mut codel, &random(42, 2000, MS), 200, |codel| {
            format!("count {}, {}", codel.state.count, if codel.state.dropping { "dropping" } else { "not yet" })
        });
        assert_eq!(
            table,
            [
                "98 ms: 41 = 33011 B, count 0, not yet; 159 sent, 0+0+0 dropped, 0 marked",
                "201 ms: 80 = 54381 B, count 1, dropping; 311 sent, 1+0+8 dropped, 0 marked",
                "295 ms: 81 = 57354 B, count 3, dropping; 481 sent, 3+0+35 dropped, 0 marked",
                "392 ms: 85 = 59473 B, count 4, dropping; 643 sent, 3+0+69 dropped, 1 marked",
                "488 ms: 92 = 59720 B, count 7, dropping; 812 sent, 5+0+91 dropped, 2 marked",
                "583 ms: 73 = 57641 B, count 9, dropping; 986 sent, 7+0+134 dropped, 2 marked",
                "682 ms: 81 = 58289 B, count 13, dropping; 1146 sent, 10+0+163 dropped, 3 marked",
                "791 ms: 74 = 55912 B, count 17, dropping; 1328 sent, 13+0+185 dropped, 4 marked",
                "888 ms: 83 = 59629 B, count 21, dropping; 1486 sent, 17+0+214 dropped, 4 marked",
                "989 ms: 83 = 59630 B, count 26, dropping; 1657 sent, 22+0+238 dropped, 4 marked",
                "1036 ms: 0 = 0 B, count 28, not yet; 1738 sent, 24+0+238 dropped, 4 marked",
            ]
        );
    }
}
