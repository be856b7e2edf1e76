//! Controlled delay: RFC 8289 sections 5.3 to 5.6, statement by statement, except for the count of the last drop of a
//! dropping state; and ECN marks as in the Linux kernel.

use super::{OutcomeLog, QueueModel, bytes, fits};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{CodelSettings, QueueLimit};
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::{Ecn, Packet};

/// The smallest MAXPACKET of the RFC, in bytes.
const MIN_MAX_PACKET: u64 = 1514;

/// The drop decisions of `CoDel`; the queue is a list of packets that the caller passes.
#[derive(Debug, Clone, Copy)]
pub struct CodelModelState {
    target: Nanos,
    interval: Nanos,
    ecn: bool,
    first_above_time: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    count: u32,
    last_count: u32,
    /// A queue of at most this many bytes is never subject to drops: MAXPACKET of the RFC.
    max_packet: u64,
}

/// The `dodequeue_result` of section 5.2.
struct DodequeueResult {
    packet: Option<Packet>,
    ok_to_drop: bool,
}

impl CodelModelState {
    pub const fn new(target: Nanos, interval: Nanos, ecn: bool) -> Self {
        Self {
            target,
            interval,
            ecn,
            first_above_time: None,
            dropping: false,
            drop_next: 0,
            count: 0,
            last_count: 0,
            max_packet: MIN_MAX_PACKET,
        }
    }

    /// Returns the packet to send (section 5.5). Packets dropped before it are recorded in the journal.
    pub fn dequeue(&mut self, waiting: &mut Vec<Packet>, now: Nanos, journal: &mut OutcomeLog) -> Option<Packet> {
        let mut head = self.dodequeue(waiting, now);
        if self.dropping {
            if !head.ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                let marked = self.mark_or_drop(&mut head, now, journal);
                if !marked {
                    head = self.dodequeue(waiting, now);
                }
                // As in Nichols and Jacobson 2012 and in the kernel, a drop that ends the dropping state counts as
                // well. The RFC counts only drops after which the state continues.
                self.count += 1;
                if head.ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
                if marked {
                    break;
                }
            }
        } else if head.ok_to_drop {
            if !self.mark_or_drop(&mut head, now, journal) {
                head = self.dodequeue(waiting, now);
            }
            self.dropping = true;
            let delta = i64::from(self.count) - i64::from(self.last_count);
            let lately = i128::from(now) - i128::from(self.drop_next) < 16 * i128::from(self.interval);
            self.count = 1;
            if delta > 1 && lately {
                self.count = u32::try_from(delta).unwrap_or(1);
            }
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        head.packet
    }

    /// Takes the first packet, and reports whether it may be dropped (section 5.6).
    fn dodequeue(&mut self, waiting: &mut Vec<Packet>, now: Nanos) -> DodequeueResult {
        if waiting.is_empty() {
            self.first_above_time = None;
            return DodequeueResult { packet: None, ok_to_drop: false };
        }
        let packet = waiting.remove(0);
        self.max_packet = self.max_packet.max(packet.bytes.into());
        let mut ok_to_drop = false;
        if now - packet.at < self.target || bytes(waiting) <= self.max_packet {
            self.first_above_time = None;
        } else {
            match self.first_above_time {
                None => self.first_above_time = Some(now + self.interval),
                Some(time) => ok_to_drop = now >= time,
            }
        }
        DodequeueResult { packet: Some(packet), ok_to_drop }
    }

    /// Marks the packet, which is then sent, and returns true; if it cannot be marked, drops it.
    fn mark_or_drop(&self, head: &mut DodequeueResult, now: Nanos, journal: &mut OutcomeLog) -> bool {
        match &mut head.packet {
            Some(packet) if self.ecn && packet.ecn != Ecn::NotCapable => {
                packet.ecn = Ecn::Marked;
                true
            }
            Some(packet) => {
                journal.record_drop(packet, now, DropCause::Early);
                false
            }
            None => false,
        }
    }

    /// The time of the next drop (section 5.4).
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "spans")]
    fn control_law(&self, time: Nanos) -> Nanos {
        time + (self.interval as f64 / f64::from(self.count).sqrt()).floor() as Nanos
    }
}

pub struct CodelModel {
    limit: QueueLimit,
    waiting: Vec<Packet>,
    state: CodelModelState,
}

impl CodelModel {
    pub fn new(settings: CodelSettings) -> Self {
        let state = CodelModelState::new(
            ekiden_emulator::nanos(settings.target),
            ekiden_emulator::nanos(settings.interval),
            settings.ecn,
        );
        Self { limit: settings.limit, waiting: Vec::new(), state }
    }
}

impl QueueModel for CodelModel {
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog) {
        if fits(&self.waiting, &packet, self.limit) {
            self.waiting.push(packet);
        } else {
            journal.record_drop(&packet, packet.at, DropCause::Full);
        }
    }

    fn take(&mut self, now: Nanos, journal: &mut OutcomeLog) -> Option<Packet> {
        self.state.dequeue(&mut self.waiting, now, journal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::super::{ReferenceOutcome, simulate_line};
    use super::*;
    use ekiden_emulator::conditions::QueueKind;
    use ekiden_emulator::rng::SeededRng;

    const MS: Nanos = 1_000_000;

    /// 1200 packets with a transmission time of 1 ms arrive at once, so a packet that leaves the queue at `k` ms has
    /// waited for `k` ms.
    fn backlog(ecn: bool, transport: Ecn) -> Vec<ReferenceOutcome> {
        let settings = CodelSettings {
            limit: QueueLimit::Packets(5000),
            target: "5ms".parse().unwrap(),
            interval: "100ms".parse().unwrap(),
            ecn,
        };
        let arrivals: Vec<Packet> = (0..1200).map(|n| Packet { ecn: transport, ..packet(n, 0, 1500) }).collect();
        simulate_line(&arrivals, "12Mbit/s".parse().unwrap(), &QueueKind::Codel(settings), SeededRng::new(1))
    }

    fn drops(outcomes: &[ReferenceOutcome]) -> Vec<Nanos> {
        let dropped = |outcome: &ReferenceOutcome| match outcome {
            ReferenceOutcome::Dropped { at, cause: DropCause::Early } => Some(*at),
            _ => None,
        };
        outcomes.iter().filter_map(dropped).collect()
    }

    /// The delay reaches the target of 5 ms after 5 ms. At 105 ms it has been above the target for an interval of
    /// 100 ms, and the first packet is dropped. Further drops are due after another 100 ms, 100/sqrt(2) ms,
    /// 100/sqrt(3) ms ..., each at the next departure, which is at a whole millisecond.
    #[test]
    fn drop_interval_shrinks_with_the_root_of_the_drop_count() {
        let times = drops(&backlog(false, Ecn::NotCapable));
        let mut wanted = vec![105.0];
        let mut next: f64 = 105.0;
        for count in 1..12 {
            next += 100.0 / f64::from(count).sqrt();
            wanted.push(next.ceil());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and small")]
        let wanted: Vec<Nanos> = wanted.iter().map(|ms| *ms as Nanos * MS).collect();
        assert_eq!(times[..12], wanted);
    }

    #[test]
    fn ecn_capable_packets_are_marked_instead_of_dropped() {
        let marked = backlog(true, Ecn::Capable);
        assert!(drops(&marked).is_empty());
        let sent_at: Vec<Nanos> = marked
            .iter()
            .filter_map(|outcome| match outcome {
                ReferenceOutcome::Sent { at, marked: true } => Some(at - MS),
                _ => None,
            })
            .collect();
        assert_eq!(sent_at[..4], drops(&backlog(false, Ecn::NotCapable))[..4]);
        assert_eq!(drops(&backlog(true, Ecn::NotCapable)), drops(&backlog(false, Ecn::Capable)));
    }

    #[test]
    fn short_delay_and_last_packet_do_not_start_drops() {
        let mut law = CodelModelState::new(5 * MS, 100 * MS, false);
        let mut journal = OutcomeLog::default();
        let mut waiting: Vec<Packet> = (0..2).map(|n| packet(n, 0, 1500)).collect();
        assert!(law.dequeue(&mut waiting, 200 * MS, &mut journal).is_some());
        assert_eq!(law.first_above_time, None, "only one packet of 1500 bytes waits behind");
        waiting = (2..6).map(|n| packet(n, 300 * MS, 1500)).collect();
        law.dequeue(&mut waiting, 305 * MS - 1, &mut journal);
        assert_eq!(law.first_above_time, None);
        law.dequeue(&mut waiting, 305 * MS, &mut journal);
        assert_eq!(law.first_above_time, Some(405 * MS));
        waiting = (6..8).map(|n| packet(n, 400 * MS, 9000)).collect();
        assert!(law.dequeue(&mut waiting, 500 * MS, &mut journal).is_some_and(|head| head.number == 6));
        assert_eq!(law.first_above_time, None, "only one packet of 9000 bytes waits behind");
        assert!(journal.0.is_empty());
    }
}
