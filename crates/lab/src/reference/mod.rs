//! Slow, plain models of queues and losses, written from the papers and RFCs and not from the emulator: recorded
//! arrivals are replayed through them, and every decision must be equal.
//!
//! The models keep no derived state: the queue is a list, and its size is the sum over that list. The conventions of
//! time are those of the emulator. The transmission time of a packet of `b` bytes on a line of `r` bit/s is `8b / r`
//! seconds, rounded to the nearest nanosecond; it starts when the line is free and the packet has arrived. A
//! transmission that ends at the instant of an arrival ends before it. A packet in transmission is not part of the
//! queue. A packet that arrives at an idle line passes through the queue too, and the queue management sees it.

use std::collections::BTreeMap;

use ekiden_proto::units::Rate;

use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{QueueKind, QueueLimit};
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::{Ecn, Packet};
use ekiden_emulator::rng::SeededRng;

mod auto;
mod codel;
mod fq_codel;
pub mod loss;
mod priority;
mod red;
mod tail_drop;

/// The outcome of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceOutcome {
    /// The packet leaves the line.
    Sent {
        /// When its last bit leaves the line.
        at: Nanos,
        /// Whether it is marked "congestion experienced".
        marked: bool,
    },
    /// The packet is dropped.
    Dropped {
        /// Time of the drop.
        at: Nanos,
        /// Reason of the drop.
        cause: DropCause,
    },
}

/// The model of a queue, by the definition of its paper.
trait QueueModel {
    /// Handles the arrival of a packet at `packet.at`: it is queued or dropped, or another packet is dropped.
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog);

    /// Returns the packet that the free line transmits at `now`; `None` if the queue is empty.
    fn take(&mut self, now: Nanos, journal: &mut OutcomeLog) -> Option<Packet>;
}

/// The outcome of each packet, by its number.
#[derive(Debug, Default)]
struct OutcomeLog(BTreeMap<u64, ReferenceOutcome>);

impl OutcomeLog {
    fn record_drop(&mut self, packet: &Packet, at: Nanos, cause: DropCause) {
        self.0.insert(packet.number, ReferenceOutcome::Dropped { at, cause });
    }
}

/// Returns the outcomes of `arrivals`, in their order, on a line of `rate` behind `queue`. Packets arrive at their
/// `at`, in ascending order, and their numbers are distinct. `rng` has the random numbers for the decisions of the
/// queue.
#[must_use]
pub fn simulate_line(arrivals: &[Packet], rate: Rate, queue: &QueueKind, rng: SeededRng) -> Vec<ReferenceOutcome> {
    let mut model: Box<dyn QueueModel> = match queue {
        QueueKind::TailDrop(settings) => Box::new(tail_drop::TailDropModel::new(settings.limit)),
        QueueKind::Red(settings) => Box::new(red::RedModel::new(*settings, 1.0, rate, rng)),
        QueueKind::StaticPriority(settings) => Box::new(priority::StaticPriorityModel::new(settings, rate, rng)),
        QueueKind::DynamicPriority(settings) => Box::new(priority::DynamicPriorityModel::new(*settings, rate, rng)),
        QueueKind::Auto(settings) => Box::new(auto::AutoModel::new(*settings, rate)),
        QueueKind::Codel(settings) => Box::new(codel::CodelModel::new(*settings)),
        QueueKind::FqCodel(settings) => Box::new(fq_codel::FqCodelModel::new(*settings)),
    };
    let mut journal = OutcomeLog::default();
    let mut pending = arrivals.iter().peekable();
    let mut busy_until: Option<Nanos> = None;
    loop {
        let now = match (busy_until, pending.peek()) {
            (None, None) => break,
            (Some(end), next) if next.is_none_or(|packet| end <= packet.at) => {
                busy_until = None;
                end
            }
            (_, _) => {
                let Some(packet) = pending.next() else { break };
                model.arrive(*packet, &mut journal);
                packet.at
            }
        };
        if busy_until.is_none()
            && let Some(packet) = model.take(now, &mut journal)
        {
            let end = now + transmission_time(packet.bytes, rate);
            journal.0.insert(packet.number, ReferenceOutcome::Sent { at: end, marked: packet.ecn == Ecn::Marked });
            busy_until = Some(end);
        }
    }
    // The line takes packets until the queue is empty, so an outcome is missing only if the model loses packets.
    arrivals.iter().filter_map(|packet| journal.0.get(&packet.number).copied()).collect()
}

/// The transmission time of `bytes` on a line of `rate`.
#[must_use]
pub fn transmission_time(bytes: u32, rate: Rate) -> Nanos {
    let bits_per_second = u128::from(rate.bits_per_second());
    let nanos = (u128::from(bytes) * 8 * 1_000_000_000 + bits_per_second / 2) / bits_per_second;
    Nanos::try_from(nanos).unwrap_or(Nanos::MAX)
}

/// The sum of the packet sizes, in bytes.
fn bytes(packets: &[Packet]) -> u64 {
    packets.iter().map(|packet| u64::from(packet.bytes)).sum()
}

/// The number of packets or of bytes, in the unit of `limit`.
fn amount(packets: &[Packet], limit: QueueLimit) -> u64 {
    match limit {
        QueueLimit::Packets(_) => packets.len() as u64,
        QueueLimit::Bytes(_) => bytes(packets),
    }
}

/// The number of a limit, in its own unit.
const fn limit_value(limit: QueueLimit) -> u64 {
    match limit {
        QueueLimit::Packets(number) | QueueLimit::Bytes(number) => number,
    }
}

/// Whether `packet` fits into the queue in addition to `waiting`.
fn fits(waiting: &[Packet], packet: &Packet, limit: QueueLimit) -> bool {
    amount(waiting, limit) + amount(std::slice::from_ref(packet), limit) <= limit_value(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_emulator::conditions::TailDropSettings;

    pub(super) fn packet(number: u64, at: Nanos, bytes: u32) -> Packet {
        Packet { number, at, bytes, flow: 0, source: 0, ecn: Ecn::NotCapable, tag: 0 }
    }

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn transmission_times_are_rounded_to_the_nearest_nanosecond() {
        assert_eq!(transmission_time(1500, rate("12Mbit/s")), 1_000_000);
        assert_eq!(transmission_time(1, rate("3Gbit/s")), 3, "2.67 ns");
        assert_eq!(transmission_time(1, rate("6Gbit/s")), 1, "1.33 ns");
        assert_eq!(transmission_time(1, rate("16Gbit/s")), 1, "0.5 ns");
        assert_eq!(transmission_time(0, rate("8bit/s")), 0);
    }

    /// Packets with a transmission time of 1 ms, and a queue of two. Packet 0 is sent at once, 1 and 2 wait, 3 is
    /// dropped. Packet 4 arrives at the end of the first transmission, which frees space before the arrival.
    #[test]
    fn transmission_ends_before_a_simultaneous_arrival() {
        let arrivals = [(0, 0), (1, 0), (2, 10), (3, 20), (4, 1_000_000), (5, 1_000_001), (6, 50_000_000)]
            .map(|(number, at)| packet(number, at, 1500));
        let kind = QueueKind::TailDrop(TailDropSettings { limit: QueueLimit::Packets(2) });
        let sent = |ms: u64| ReferenceOutcome::Sent { at: ms * 1_000_000, marked: false };
        let full = |at: Nanos| ReferenceOutcome::Dropped { at, cause: DropCause::Full };
        let wanted = [sent(1), sent(2), sent(3), full(20), sent(4), full(1_000_001), sent(51)];
        assert_eq!(simulate_line(&arrivals, rate("12Mbit/s"), &kind, SeededRng::new(1)), wanted);
    }
}
